"""Every kernel moves every bit to the place where numpy says it belongs."""

import functools
import itertools
import random

import dtypes
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_transpose as jt


def check(target, x, axes_list, kernels=None, tiles=(None,)):
    """One program of every kernel (default: all of ours), axes and tile, against numpy."""
    kernels = kernels or ("native", *target.kinds)
    runs = list(itertools.product(kernels, axes_list, tiles))
    with dtypes.x64_if_needed(x.dtype.name):
        outs = jax.jit(lambda a: [jt.transpose(a, ax, kernel=k, tile=t) for k, ax, t in runs])(
            target.put(x)
        )
    for (kernel, axes, tile), out in zip(runs, outs, strict=True):
        dtypes.assert_same_bits(
            out, dtypes.expect(x, axes), f"{kernel} {x.shape} {axes} tile={tile}"
        )


@st.composite
def cases(draw):
    """(array of random bits, axes): rank up to 6, at most about 20 000 elements."""
    rank = draw(st.integers(0, 6))
    sides = {0: 1, 1: 400, 2: 140, 3: 27, 4: 12, 5: 7, 6: 5}[rank]
    shape = tuple(draw(st.lists(st.integers(0, sides), min_size=rank, max_size=rank)))
    axes = tuple(draw(st.permutations(range(rank))))
    name = draw(st.sampled_from(dtypes.BYTE_DTYPES))
    return dtypes.random_bits(shape, name, seed=draw(st.integers(0, 9))), axes


@hypothesis.given(case=cases())
def test_any_shape_axes_and_dtype(platform_device, case):
    x, axes = case
    check(platform_device, x, [axes], ("auto", "native", "xla", *platform_device.kinds))


@pytest.mark.parametrize("name", dtypes.BYTE_DTYPES)
def test_every_dtype_bit_for_bit(platform_device, name):
    check(platform_device, dtypes.random_bits((5, 19, 35), name), [(0, 2, 1), (2, 1, 0)])


@pytest.mark.parametrize("name", dtypes.FLOAT8)
def test_all_256_patterns_of_a_float8(platform_device, name):
    bits = np.arange(272).astype(np.uint8).reshape(16, 17)
    x = bits.view(dtypes.numpy_dtype(name))
    f = functools.partial(jt.transpose, kernel="native")
    out = f(platform_device.put(x))
    dtypes.assert_same_bits(np.asarray(out).view(np.uint8), bits.T)
    out = jax.jit(jax.vmap(f, in_axes=1))(platform_device.put(x.reshape(4, 4, 17)))
    want = bits.reshape(4, 4, 17).transpose(1, 2, 0)
    dtypes.assert_same_bits(np.asarray(out).view(np.uint8), want)


@pytest.mark.parametrize("name", dtypes.ONE_PER_WIDTH)
@pytest.mark.parametrize("shape", [(257, 131), (128, 256), (1, 300), (3, 999), (1000, 2)])
def test_matrices_around_the_tile_sizes(platform_device, name, shape):
    check(platform_device, dtypes.random_bits(shape, name), [(1, 0)])


TILED = ("tiled_unpadded", "tiled", "vectorized", "async_copy")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TILED)
@pytest.mark.parametrize("name", dtypes.ONE_PER_WIDTH)
def test_every_cuda_tile(cuda, kind, name):
    for shape in ((3, 129, 199), (2, 128, 256)):  # guarded and aligned
        x = dtypes.random_bits(shape, name)
        sides = [side for side in (8, 16, 32, 64, 128) if compiled(shape, x.dtype, kind, side)]
        assert sides
        check(cuda, x, [(0, 2, 1), (2, 0, 1)], [kind], sides)


def compiled(shape, dtype, kind, side):
    """Whether `kind` has a tile of `side`; where not, the error lists what it has."""
    try:
        return jt.explain(shape, (0, 2, 1), dtype, "cuda", kernel=kind, tile=side).tile > 0
    except ValueError as error:
        if "allowed" not in str(error):
            raise
        return False


def small_shapes(rank):
    return itertools.product((1, 2, 3), repeat=rank)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["uint8", "uint16", "complex64"])
def test_all_permutations_of_all_small_shapes(platform_device, rank, name):
    kernels = ("native", *platform_device.kinds)
    check_many(platform_device, small_shapes(rank), name, kernels)


def test_all_permutations_of_all_small_shapes_of_rank_4(cpu):
    shapes = list(small_shapes(4))
    for start in range(0, len(shapes), 9):
        check_many(cpu, shapes[start : start + 9], "float32", ("native",))


def check_many(target, shapes, name, kernels):
    """One program for all permutations of all `shapes`."""
    xs = [dtypes.random_bits(shape, name, seed=i) for i, shape in enumerate(shapes)]
    runs = [
        (i, axes, kernel)
        for i, x in enumerate(xs)
        for axes in itertools.permutations(range(x.ndim))
        for kernel in kernels
    ]
    outs = jax.jit(lambda xs: [jt.transpose(xs[i], axes, kernel=k) for i, axes, k in runs])(
        [target.put(x) for x in xs]
    )
    for (i, axes, kernel), out in zip(runs, outs, strict=True):
        dtypes.assert_same_bits(out, dtypes.expect(xs[i], axes), f"{kernel} {xs[i].shape} {axes}")


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((2, 1, 3, 1, 4), (3, 2, 0, 4, 1)),
        ((1, 1, 1), (2, 0, 1)),
        ((1, 7, 1), (2, 1, 0)),
        ((1, 32, 76), (0, 2, 1)),
        ((33, 65, 7), (2, 0, 1)),
        ((10, 10, 10, 100, 1, 2, 5), (3, 0, 1, 2, 4, 5, 6)),
        ((64, 12, 16, 8), (0, 2, 1, 3)),
        ((64, 12, 16, 8), (0, 3, 1, 2)),
        ((999, 2, 2), (0, 2, 1)),
        ((999, 3, 3), (0, 2, 1)),
        ((4, 32, 33, 4), (0, 2, 1, 3)),
    ],
)
def test_reported_shapes(platform_device, shape, axes):
    check(platform_device, dtypes.random_bits(shape, "bfloat16"), [axes])


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 4), (0, 0)])
@pytest.mark.parametrize("name", ["float32", "int8"])
def test_zero_size(platform_device, shape, name):
    x = platform_device.put(dtypes.random_bits(shape, name))
    f = functools.partial(jt.transpose, kernel="native")
    for out in (f(x), jax.jit(f)(x)):
        assert out.shape == shape[::-1] and out.dtype == x.dtype
    for batch in (4, 0):
        out = jax.jit(jax.vmap(f))(jnp.zeros((batch, *shape), x.dtype))
        assert out.shape == (batch, *shape[::-1])
    if name == "float32":
        assert jax.grad(lambda x: f(x).sum())(x).shape == shape


@pytest.mark.parametrize("kernel", ["auto", "native", "naive"])
@pytest.mark.parametrize("axes", [(), [], None])
def test_rank_0(platform_device, kernel, axes):
    f = functools.partial(jt.transpose, axes=axes, kernel=kernel)
    x = platform_device.put(np.float32(1.5))
    assert f(x) == jax.jit(f)(x) == 1.5 and f(x).shape == ()
    assert jax.grad(f)(x) == 1.0
    dtypes.assert_same_bits(
        jax.jit(jax.vmap(f))(np.arange(4, dtype=np.float32)), np.arange(4, dtype=np.float32)
    )


def test_high_rank(platform_device):
    rng = random.Random(0)
    shapes = [
        (2,) * 12 + (1,) * 14,
        (1, 2, 1) * 8 + (3, 2),
        (2,) * 16,
        (2, 1) * 13 + (1,) * 3,
    ]
    for shape in shapes:
        rng.shuffle(axes := list(range(len(shape))))
        x = dtypes.random_bits(shape, "uint16")
        check(platform_device, x, [axes, None], ["native", *platform_device.kinds])


@pytest.mark.parametrize("name", ["uint8", "float16", "float32", "complex64"])
def test_operands_at_odd_offsets(platform_device, name):
    """A slice may reach the kernel as a pointer that is aligned to the element only."""
    flat = dtypes.random_bits((67 * 64,), name)
    base = platform_device.put(flat)

    def run(x, start, kernel):
        part = jax.lax.dynamic_slice(x, (start,), (65 * 64,)).reshape(65, 64)
        return jt.transpose(part, kernel=kernel)

    kernels = ("native", *platform_device.kinds)
    offsets = (0, 1, 3, 64)
    static = jax.jit(lambda x: [[run(x, o, k) for o in offsets] for k in kernels])(base)
    dynamic = jax.jit(lambda x, os: [[run(x, o, k) for o in os] for k in kernels])(base, offsets)
    for outs in (static, dynamic):
        for kernel, row in zip(kernels, outs, strict=True):
            for offset, out in zip(offsets, row, strict=True):
                want = dtypes.expect(flat[offset : offset + 65 * 64].reshape(65, 64))
                dtypes.assert_same_bits(out, want, f"{kernel} at {offset}")


@pytest.mark.parametrize("kernel", ["auto", "native"])
def test_prng_keys(platform_device, kernel):
    keys = jax.random.split(jax.random.key(7), (4, 6))
    bits = np.asarray(jax.random.key_data(keys))
    f = functools.partial(jt.transpose, kernel=kernel)
    for out in (f(keys), jax.jit(f)(keys)):
        assert out.dtype == keys.dtype and out.shape == (6, 4)
        dtypes.assert_same_bits(jax.random.key_data(out), bits.transpose(1, 0, 2))
    out = jax.jit(jax.vmap(f, in_axes=1))(jax.random.split(jax.random.key(1), (2, 3, 5)))
    want = jax.random.key_data(jax.random.split(jax.random.key(1), (2, 3, 5)))
    dtypes.assert_same_bits(jax.random.key_data(out), np.asarray(want).transpose(1, 2, 0, 3))
    legacy = jt.transpose(jnp.asarray(bits), (1, 0, 2), kernel=kernel)
    dtypes.assert_same_bits(legacy, bits.transpose(1, 0, 2))
