"""Every rule under permutations that are not their own inverse, with extents that all differ.

An exchange of two axes undoes itself, and equal extents hide which axis went where: rules that
confuse a permutation with its inverse, or an axis with its neighbor, pass tests of those.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, expect, random_bits, small_values, x64_if_needed
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import CALL, check_sharded, collectives, device_mesh, moved_spec, put, shard_map

import jax_transpose as jt

CYCLES = pytest.mark.parametrize(
    "axes", [(1, 2, 0), (2, 0, 1), (3, 0, 1, 2), (1, 3, 0, 2), (2, 0, 3, 1)], ids=str
)
RUNS = pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])
SHAPE = (3, 5, 7, 2)


def operand(axes):
    return small_values(SHAPE[: len(axes)], "float32")


def result_of(axes):
    """Values of the result's shape, to go backwards."""
    shape = tuple(SHAPE[axis] for axis in axes)
    return small_values(shape, "float32") * 2 + 1


def back(y, axes):
    """What numpy makes of `y` when the permutation is undone: axis i came from axis axes[i]."""
    return np.moveaxis(y, range(len(axes)), axes)


def plain(axes):
    return functools.partial(jt.transpose, axes=axes, kernel="native")


def into(axes):
    """The same with a buffer that the program makes."""
    shape = tuple(SHAPE[axis] for axis in axes)
    return lambda x: jt.transpose(x, axes, out=jnp.zeros(shape, x.dtype), kernel="native")


BOTH = pytest.mark.parametrize("make", [plain, into])


@RUNS
@BOTH
@CYCLES
def test_cotangents_go_back(axes, make, run):
    f, x, ct = make(axes), operand(axes), result_of(axes)
    want = back(ct, axes)
    assert_same_bits(run(lambda x, ct: jax.vjp(f, x)[1](ct)[0])(x, ct), want)
    assert_same_bits(run(lambda ct: jax.linear_transpose(f, x)(ct)[0])(ct), want)
    assert_same_bits(run(jax.grad(lambda x: (f(x) * ct).sum()))(x), want)


@CYCLES
def test_cotangents_of_both_operands(axes):
    """The buffer is an operand too, which nothing depends on."""
    x, ct = operand(axes), result_of(axes)
    f = lambda x, out: jt.transpose(x, axes, out=out, kernel="native")  # noqa: E731
    of_x, of_out = jax.jit(lambda ct: jax.linear_transpose(f, x, jnp.zeros_like(ct))(ct))(ct)
    assert_same_bits(of_x, back(ct, axes))
    assert_same_bits(of_out, np.zeros_like(ct))


@RUNS
@BOTH
@CYCLES
def test_tangents_go_along(axes, make, run):
    f, x = make(axes), operand(axes)
    dx = x * 3 - 5
    out, tangent = run(lambda x, dx: jax.jvp(f, (x,), (dx,)))(x, dx)
    assert_same_bits(out, x.transpose(axes))
    assert_same_bits(tangent, dx.transpose(axes))


def assert_terms(out, moved, x, terms, axes):
    assert_same_bits(out, x.transpose(axes))
    for got, source in zip(moved, terms, strict=True):
        # JAX divides terms by factorials and multiplies them again.
        want = source.transpose(axes)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-6)


@BOTH
@CYCLES
def test_taylor_terms_go_along(axes, make):
    jet = pytest.importorskip("jax.experimental.jet").jet
    x = operand(axes)
    terms = (x * 2 + 1, x * 3 - 5)
    out, moved = jax.jit(lambda x, *terms: jet(make(axes), (x,), (terms,)))(x, *terms)
    assert_terms(out, moved, x, terms, axes)


@pytest.mark.parametrize("in_axis", [0, 1, 2, 3])
@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=str)
def test_batches_into_buffers(axes, in_axis):
    host = small_values((2, 3, 5, 7), "float32")
    want = host.transpose(0, *(axis + 1 for axis in axes))
    x = np.moveaxis(host, 0, in_axis)
    for out_axis in range(4):
        f = jax.vmap(plain(axes), in_axis, out_axis)
        assert_same_bits(jax.jit(f)(x), np.moveaxis(want, 0, out_axis))
        f = jax.vmap(
            lambda x, out: jt.transpose(x, axes, out=out, kernel="native"),
            (in_axis, out_axis),
            out_axis,
        )
        buffer = np.zeros_like(np.moveaxis(want, 0, out_axis))
        assert_same_bits(jax.jit(f)(x, buffer), np.moveaxis(want, 0, out_axis))
        assert_same_bits(f(jnp.array(x), jnp.array(buffer)), np.moveaxis(want, 0, out_axis))
    only_x = jax.vmap(lambda x, out: jt.transpose(x, axes, out=out), (in_axis, None))
    assert_same_bits(jax.jit(only_x)(x, np.zeros_like(want[0])), want)


# Two equal runs change places; what lies between and around them has lengths of its own.
IN_PLACE = pytest.mark.parametrize(
    "shape, axes",
    [((2, 6, 5, 6, 3), (0, 3, 2, 1, 4)), ((2, 3, 5, 7, 2, 3), (4, 5, 2, 3, 0, 1))],
    ids=str,
)


def own(x):
    """A copy that a program makes, which may then be overwritten."""
    return x + 0


@RUNS
@IN_PLACE
def test_rules_in_place(shape, axes, run):
    x = small_values(shape, "float32")
    seed = x * 2 + 1

    def f(x):
        return (lambda x: jt.transpose(x, axes, out=x, kernel="native"))(own(x))

    out, tangent = run(lambda x, dx: jax.jvp(f, (x,), (dx,)))(x, seed)
    assert_same_bits(out, x.transpose(axes))
    assert_same_bits(tangent, seed.transpose(axes))
    assert_same_bits(run(lambda x, ct: jax.vjp(f, x)[1](ct)[0])(x, seed), back(seed, axes))
    assert_same_bits(run(lambda ct: jax.linear_transpose(f, x)(ct)[0])(seed), back(seed, axes))


@IN_PLACE
def test_taylor_terms_in_place(shape, axes):
    jet = pytest.importorskip("jax.experimental.jet").jet
    x = small_values(shape, "float32")
    terms = (x * 2 + 1, x * 3 - 5)

    def f(x):
        return jt.transpose(x, axes, out=x, kernel="native")

    out, moved = jax.jit(lambda x, *terms: jet(f, (x,), (terms,)))(x, *terms)
    assert_terms(out, moved, x, terms, axes)


@IN_PLACE
def test_batches_in_place(shape, axes):
    host = small_values((4, *shape), "float32")
    want = host.transpose(0, *(axis + 1 for axis in axes))
    for at in range(len(shape) + 1):
        f = jax.vmap(lambda x: jt.transpose(x, axes, out=x, kernel="native"), at, at)
        x = np.moveaxis(host, 0, at)
        assert_same_bits(jax.jit(f)(x), np.moveaxis(want, 0, at), f"batch axis {at}")
        assert_same_bits(f(jnp.array(x)), np.moveaxis(want, 0, at), f"batch axis {at}")


# --- several devices ----------------------------------------------------------------------------

LARGE = (16, 32, 24)
SPECS = [P("x"), P(None, "x"), P(None, None, "x"), P("y", None, "x"), P(("x", "y")), P("x", "y")]


def partitioners():
    """Shardy and GSPMD, as long as this JAX has both; None where there is no choice."""
    return [True, False] if hasattr(jax.config, "jax_use_shardy_partitioner") else [None]


@pytest.fixture(params=partitioners())
def partitioner(request):
    if request.param is None:
        yield
        return
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_result_that_is_split_further_than_the_operand(partitioner, spec, axes):
    """Each device slices what it has and transposes that: nothing is exchanged."""
    mesh = device_mesh((4, 2))
    host = small_values(LARGE, "float32")
    x, sharding = put(host, mesh, P()), NamedSharding(mesh, spec)
    f = jax.jit(functools.partial(jt.transpose, axes=axes, kernel="native"), out_shardings=sharding)
    text = f.lower(x).compile().as_text()
    assert collectives(text) == [] and text.count(CALL) == 1
    part = ",".join(map(str, sharding.shard_shape(tuple(LARGE[axis] for axis in axes))))
    assert f"f32[{part}]{{2,1,0}} custom-call" in text
    out = f(x)
    assert_same_bits(out, host.transpose(axes))
    assert out.sharding.is_equivalent_to(sharding, 3)


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_shards_go_along(partitioner, spec, axes):
    mesh = device_mesh((4, 2))
    host, f = small_values(LARGE, "float32"), plain(axes)
    result = NamedSharding(mesh, moved_spec(spec, axes))
    assert CALL in check_sharded(f, host.transpose(axes), put(host, mesh, spec), result)
    ct = put(host.transpose(axes), mesh, moved_spec(spec, axes))
    undo = lambda ct: jax.linear_transpose(f, host)(ct)[0]  # noqa: E731
    assert CALL in check_sharded(undo, host, ct, NamedSharding(mesh, spec))


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_shards_into_buffers(spec, axes):
    mesh = device_mesh((4, 2))
    host = small_values(LARGE, "float32")
    shape = tuple(LARGE[axis] for axis in axes)
    x, out = put(host, mesh, spec), put(jnp.zeros(shape), mesh, moved_spec(spec, axes))
    places = [shard.data.unsafe_buffer_pointer() for shard in out.addressable_shards]
    y = jt.transpose(x, axes, out=out, kernel="native")
    assert_same_bits(y, host.transpose(axes))
    assert [shard.data.unsafe_buffer_pointer() for shard in y.addressable_shards] == places
    # The sharding of the inverse permutation's result is another one.
    wrong = moved_spec(spec, tuple(np.argsort(axes)))
    other = put(jnp.zeros(shape), mesh, wrong)
    if not other.sharding.is_equivalent_to(y.sharding, 3):
        with pytest.raises(ValueError, match="sharding"):
            jt.transpose(x, axes, out=other, kernel="native")
    body = lambda x, out: jt.transpose(x, axes, out=out, kernel="native")  # noqa: E731
    moved = moved_spec(spec, axes)
    mapped = jax.jit(shard_map(body, mesh, (spec, moved), moved), donate_argnums=1)
    assert_same_bits(mapped(x, put(jnp.zeros(shape), mesh, moved)), host.transpose(axes))


# --- the rest -----------------------------------------------------------------------------------


# Integers where there are some: XLA's own slices of bfloat16 quiet NaNs in older JAX.
@CYCLES
@pytest.mark.parametrize("name", ["uint8", "uint16", "uint32", "uint64", "complex128"])
def test_operands_and_results_at_any_offset(platform_device, name, axes):
    """A slice reaches the kernel as a pointer that is aligned to the element only."""
    with x64_if_needed(name):
        shape = (9, 17, 21, 3)[: len(axes)]
        count = int(np.prod(shape))
        flat = random_bits((count + 8,), name)

        @jax.jit
        def f(x, starts):
            parts = [jax.lax.dynamic_slice(x, (s,), (count,)).reshape(shape) for s in starts]
            return [jt.transpose(part, axes, kernel="native") for part in parts]

        starts = (0, 1, 3, 8)
        for start, out in zip(starts, f(platform_device.put(flat), starts), strict=True):
            want = expect(flat[start : start + count].reshape(shape), axes)
            assert_same_bits(out, want, f"{name} at {start}")


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=str)
def test_symbolic_shapes(axes):
    extents = export.symbolic_shape("a, b, c")
    x = jax.ShapeDtypeStruct(extents, np.float32)
    out = jax.ShapeDtypeStruct(tuple(extents[axis] for axis in axes), np.float32)
    f = jax.jit(lambda x, out: jt.transpose(x, axes, out=out))
    g = jax.jit(lambda x: jt.transpose(x, axes))
    options = dict(platforms=["cpu"], disabled_checks=jt.export_checks())
    host = small_values((3, 5, 7), "float32")
    want = host.transpose(axes)
    assert_same_bits(export.export(f, **options)(x, out).call(host, np.zeros_like(want)), want)
    assert_same_bits(export.export(g, **options)(x).call(host), want)


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=str)
def test_keys(axes):
    keys = jax.random.split(jax.random.key(0), (3, 5, 7))
    words = np.asarray(jax.random.key_data(keys))
    want = words.transpose(*axes, 3)
    spare = jax.random.split(jax.random.key(1), want.shape[:3])
    for moved in (jt.transpose(keys, axes), jax.jit(plain(axes))(keys)):
        assert_same_bits(jax.random.key_data(moved), want)
    assert_same_bits(jax.random.key_data(jt.transpose(keys, axes, out=spare)), want)
