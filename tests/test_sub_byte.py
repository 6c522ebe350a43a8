"""Elements narrower than a byte, which XLA packs, moved by our own kernels.

Expected values come from numpy on unpacked values: ml_dtypes keeps one element a byte.
"""

import functools
import itertools

import dtypes
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import planned_platforms

import jax_transpose as jt

NARROW = pytest.mark.parametrize("name", dtypes.SUB_BYTE)
#: Dtypes that XLA stores in other ways, so that `auto` leaves them to it.
OTHERS = tuple(
    name for name in ("int1", "uint1", "float6_e2m3fn", "float6_e3m2fn") if hasattr(jnp, name)
)


def bits_of(name):
    return 2 if name.endswith("int2") else 4


def codes(shape, name, seed=0):
    """Random bit patterns of dtype `name`, one a byte, as unsigned integers."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << bits_of(name), shape, dtype=np.uint8)


def array(patterns, name):
    """A numpy array of dtype `name` with these bit patterns; ml_dtypes signs int4 by value."""
    if name.startswith("int"):
        half = 1 << (bits_of(name) - 1)
        signed = patterns.astype(np.int8)
        return np.where(signed >= half, signed - 2 * half, signed).astype(dtypes.numpy_dtype(name))
    if name.startswith("uint"):
        return patterns.astype(dtypes.numpy_dtype(name))
    return patterns.view(dtypes.numpy_dtype(name))


def pattern(x, name):
    """Bit patterns of a result, one a byte."""
    return np.asarray(x).view(np.uint8) & ((1 << bits_of(name)) - 1)


def check(target, name, shape, axes_list, kernel="native"):
    """Each axes, in one program, against numpy."""
    want = codes(shape, name)
    outs = jax.jit(lambda x: [jt.transpose(x, axes, kernel=kernel) for axes in axes_list])(
        target.put(array(want, name))
    )
    for axes, out in zip(axes_list, outs, strict=True):
        assert out.dtype == dtypes.numpy_dtype(name)
        np.testing.assert_array_equal(
            pattern(out, name), want.transpose(axes), f"{name} {shape} {axes} {kernel}"
        )


@NARROW
@pytest.mark.parametrize(
    "shape",
    [
        *((3, 5), (1, 7), (2, 3), (128, 255), (127, 33), (31, 64), (64, 31)),
        # Rows on bytes, on 16-byte boundaries, and tiles that the matrix does not fill.
        *((64, 64), (130, 132), (256, 256), (512, 768), (320, 1088)),
        # Long rows that start anywhere: each last word of a column holds the next one's first.
        *((257, 131), (255, 1025), (248, 248), (700, 701), (505, 512)),
    ],
)
def test_matrices(platform_device, name, shape):
    check(platform_device, name, shape, [(1, 0)])


@NARROW
@pytest.mark.parametrize("kernel", ["auto", "xla"])
@pytest.mark.parametrize("shape", [(3, 5), (127, 33), (512, 768)])
def test_auto_and_xla(platform_device, name, kernel, shape):
    if kernel == "xla" and platform_device.name == "cuda" and bits_of(name) == 2:
        pytest.skip("XLA's own transpose of 2-bit types does not compile for every GPU")
    check(platform_device, name, shape, [(1, 0)], kernel)


@NARROW
@pytest.mark.parametrize(
    "shape",
    [
        (3, 5, 7),
        (3, 64, 192),
        (3, 129, 199),
        (64, 5, 128),
        (6, 10, 3),
        (2, 3, 64, 128),
        (2, 131, 3, 133),
        (64, 2, 3, 64),
        (3, 3, 5, 3),
    ],
)
def test_every_permutation_of_higher_ranks(platform_device, name, shape):
    check(platform_device, name, shape, list(itertools.permutations(range(len(shape)))))


@NARROW
@pytest.mark.parametrize("shape", [(16,), (15,), (1,), (0,), (), (0, 5), (4, 0, 3), (1, 9, 1)])
def test_shapes_with_nothing_to_exchange(platform_device, name, shape):
    x = platform_device.put(array(codes(shape, name), name))
    f = functools.partial(jt.transpose, kernel="native")
    for out in (f(x), jax.jit(f)(x)):
        assert out.shape == shape[::-1] and out.dtype == x.dtype
        np.testing.assert_array_equal(pattern(out, name), codes(shape, name).T)


@pytest.mark.parametrize("name", ["int4", "uint2"])
def test_high_rank(platform_device, name):
    if name not in dtypes.SUB_BYTE:
        pytest.skip(f"this JAX has no {name}")
    axes = np.random.default_rng(0).permutation(14)
    check(platform_device, name, (2,) * 14, [tuple(axes.tolist()), None])
    check(platform_device, name, (3, 1, 2, 1, 3, 2, 3, 2), [(7, 2, 1, 0, 3, 5, 4, 6), None])


@st.composite
def cases(draw):
    rank = draw(st.integers(2, 5))
    sides = {2: 150, 3: 30, 4: 12, 5: 6}[rank]
    shape = tuple(draw(st.lists(st.integers(1, sides), min_size=rank, max_size=rank)))
    return shape, tuple(draw(st.permutations(range(rank))))


@hypothesis.given(case=cases(), name=st.sampled_from(dtypes.SUB_BYTE))
def test_any_shape_and_axes(platform_device, case, name):
    check(platform_device, name, case[0], [case[1]])


@NARROW
def test_inside_a_program(platform_device, name):
    """Operands and results that never leave the program are packed as well."""
    want = codes((65, 34), name)

    @jax.jit
    def f(x, start):
        once = jt.transpose(jnp.flip(x, 0), kernel="native")
        part = jax.lax.dynamic_slice(x.reshape(-1), (start,), (64 * 32,)).reshape(64, 32)
        return (
            once,
            jt.transpose(jnp.flip(once, 0), kernel="native"),
            jt.transpose(part, kernel="native"),
        )

    for start in (0, 1, 2, 64):
        once, twice, part = f(platform_device.put(array(want, name)), start)
        np.testing.assert_array_equal(pattern(once, name), want[::-1].T)
        np.testing.assert_array_equal(pattern(twice, name), want[::-1, ::-1])
        cut = want.reshape(-1)[start : start + 64 * 32].reshape(64, 32)
        np.testing.assert_array_equal(pattern(part, name), cut.T)


@NARROW
@pytest.mark.parametrize("in_axes", [0, 1, 2])
def test_vmap(platform_device, name, in_axes):
    for shape in ((4, 5, 3), (64, 128, 64)):
        want = codes(shape, name)
        f = jax.jit(jax.vmap(functools.partial(jt.transpose, kernel="native"), in_axes=in_axes))
        out = f(platform_device.put(array(want, name)))
        moved = np.moveaxis(want, in_axes, 0).transpose(0, 2, 1)
        np.testing.assert_array_equal(pattern(out, name), moved)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize(
    "shape, axes",
    [
        ((2047, 1025), (1, 0)),
        ((2048, 1032), (1, 0)),
        ((3, 520, 712), (2, 0, 1)),
        ((9, 31, 7), (1, 0, 2)),
        ((3, 3), (1, 0)),
    ],
)
def test_threads_and_the_last_byte(bits, shape, axes, threads):
    """Also that the bits after the last element are zero and no byte after it is touched."""
    from jax_transpose import _cpu

    name = f"uint{bits}"
    values, per_byte = codes(shape, name), 8 // bits

    def pack(x):
        flat = np.append(x.reshape(-1), np.zeros(-x.size % per_byte, np.uint8))
        fields = flat.reshape(-1, per_byte) << (bits * np.arange(per_byte, dtype=np.uint8))
        return np.bitwise_or.reduce(fields, axis=1).astype(np.uint8)

    source, want = pack(values), pack(values.transpose(axes))
    out = np.full(want.size + 8, 0xA5, np.uint8)
    _cpu._run(source, out[: want.size], shape, axes, bits / 8, threads=threads)
    np.testing.assert_array_equal(out, np.append(want, np.full(8, 0xA5, np.uint8)))


@NARROW
@planned_platforms
def test_plans(platform, name):
    width = bits_of(name) / 8
    plan = jt.explain((4096, 4096), (1, 0), name, platform, kernel="native")
    assert (plan.kernel, plan.element_bytes) == ("sub_byte", width)
    assert plan.bytes_moved == 2 * 4096 * 4096 * width
    odd = jt.explain((4095, 4097), (1, 0), name, platform, kernel="native")
    assert odd.kernel == "sub_byte" and (odd.tile > 0) == (platform == "cuda")
    assert odd.bytes_moved == 2 * -(-4095 * 4097 * bits_of(name) // 8)
    # Kept runs of whole bytes are moved as bytes or wider.
    kept = jt.explain((7, 5, 64), (1, 0, 2), name, platform, kernel="native")
    assert kept.kernel != "sub_byte" and kept.element_bytes == 16
    assert kept.canonical_shape in ((7, 5), (7, 5, 2))
    odd_run = jt.explain((7, 5, 3), (1, 0, 2), name, platform, kernel="native")
    assert odd_run.kernel == "sub_byte" and odd_run.element_bytes == width
    assert f"{width}-byte" in str(odd_run)


def test_two_bits_may_become_four():
    plan = jt.explain((7, 5, 6), (1, 0, 2), "uint2", "cpu", kernel="native")
    assert (plan.element_bytes, plan.canonical_shape) == (0.5, (7, 5, 3))
    plan = jt.explain((7, 5, 2), (1, 0, 2), "uint2", "cpu", kernel="native")
    assert (plan.element_bytes, plan.canonical_shape) == (0.5, (7, 5))


@NARROW
@pytest.mark.parametrize("kernel", ["naive", "rows", "blocked", "tiled"])
def test_kinds_by_name_are_an_error(name, kernel):
    x = jnp.zeros((3, 5), name)
    with pytest.raises(TypeError, match=rf"{name}.*native"):
        jt.transpose(x, kernel=kernel)
    with pytest.raises(TypeError, match=name):
        jax.jit(lambda x: jt.transpose(x, kernel=kernel)).lower(x)


@pytest.mark.parametrize("name", OTHERS)
def test_other_widths_go_to_xla(name):
    plan = jt.explain((4096, 4096), (1, 0), name, "cpu")
    assert plan.implementation == "xla" and name in plan.reason
    for kernel in ("native", "naive"):
        with pytest.raises(TypeError, match=name):
            jt.explain((4096, 4096), (1, 0), name, "cpu", kernel=kernel)
