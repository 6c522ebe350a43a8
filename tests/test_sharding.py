"""Meshes x specs x permutations x transforms: right bits, and nothing is exchanged.

The permutation carries the sharding: each device runs our kernel on its own shard, and the compiled
program has no collective. Meshes have one to eight devices.
"""

import contextlib
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import SUB_BYTE, assert_same_bits, expect, random_bits, small_values, x64_if_needed
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import (
    CALL,
    check_sharded,
    collectives,
    compile_text,
    device_mesh,
    moved_spec,
    put,
    use_mesh,
)

import jax_transpose as jt

native = functools.partial(jt.transpose, kernel="native")

SHAPE = (16, 32, 24)
PERMUTATIONS = [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
MESHES = {
    (1,): [P("x"), P(None, None, "x")],
    (2,): [P("x"), P(None, "x")],
    (4,): [P(None, None, "x")],
    (8,): [P("x"), P(None, "x"), P(None, None, "x"), P()],
    (4, 2): [P("x", "y"), P("y", None, "x"), P(("x", "y")), P(None, ("y", "x")), P(None, "y")],
    (2, 2, 2): [P("z", "x", "y"), P(("z", "x"), None, "y"), P("y")],
}
LAYOUTS = [(mesh, spec) for mesh, specs in MESHES.items() for spec in specs]


@pytest.mark.parametrize("axes", PERMUTATIONS, ids=str)
@pytest.mark.parametrize("shape, spec", LAYOUTS, ids=str)
def test_sharded_operands(shape, spec, axes):
    mesh = device_mesh(shape)
    x = small_values(SHAPE, "float32")
    text = check_sharded(
        functools.partial(native, axes=axes),
        x.transpose(axes),
        put(x, mesh, spec),
        NamedSharding(mesh, moved_spec(spec, axes)),
    )
    assert text.count(CALL) == 1


@pytest.mark.parametrize("axes", PERMUTATIONS, ids=str)
@pytest.mark.parametrize("spec", [P("x", "y"), P("y", None, "x"), P(None, ("y", "x"))], ids=str)
def test_explicit_axes(spec, axes):
    """The type of a traced result names its sharding, which the compiled program then has."""
    mesh = device_mesh((4, 2), explicit=True)
    x = small_values(SHAPE, "float32")
    traced = []

    def f(x):
        out = native(x, axes)
        traced.append(jax.typeof(out).sharding.spec)
        return out

    sharding = NamedSharding(mesh, moved_spec(spec, axes))
    with use_mesh(mesh):
        text = check_sharded(f, x.transpose(axes), put(x, mesh, spec), sharding)
        half_square = jax.grad(lambda x: 0.5 * jnp.sum(native(x, axes) ** 2))
        check_sharded(half_square, x, put(x, mesh, spec), NamedSharding(mesh, spec))
        batched = jax.vmap(lambda x: native(x, (1, 0)))
        sharding = NamedSharding(mesh, moved_spec(spec, (0, 2, 1)))
        check_sharded(batched, x.transpose(0, 2, 1), put(x, mesh, spec), sharding)
    assert text.count(CALL) == 1
    assert traced[0] == moved_spec(spec, axes)


def test_explicit_axes_bind_the_partitioner():
    """As for XLA's transpose, the lowered result is tied to the sharding that its type names."""
    mesh = device_mesh((4, 2), explicit=True)
    x = put(small_values(SHAPE, "float32"), mesh, P("x"))
    with use_mesh(mesh):
        texts = [jax.jit(f).lower(x).as_text() for f in (native, lambda x: jnp.transpose(x))]
    ours, theirs = (len(re.findall(r"sharding_constraint|@Sharding", text)) for text in texts)
    assert ours == theirs > 0


@pytest.mark.parametrize("axes", PERMUTATIONS, ids=str)
def test_eager_calls(axes):
    mesh, spec = device_mesh((4, 2)), P("y", "x")
    x = small_values(SHAPE, "float32")
    out = native(put(x, mesh, spec), axes)
    assert_same_bits(out, x.transpose(axes))
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, moved_spec(spec, axes)), 3)


def once(f):
    return f


def gradient(f):
    """Of a function that is linear: the cotangent x itself goes back through f."""
    return lambda x: jax.vjp(f, jnp.zeros_like(jax.linear_transpose(f, x)(x)[0]))[1](x)[0]


def twice(f):
    return lambda x: f(f(x))


def scanned(f):
    return lambda x: jax.lax.scan(lambda carry, _: (f(carry), None), x, length=3)[0]


def rematerialized(f):
    return jax.grad(lambda x: 0.5 * jnp.sum(jax.checkpoint(lambda x: f(x) ** 2)(x)))


def second_derivative(f):
    """Forward over reverse: the tangent goes through f and back."""
    half_square = jax.grad(lambda x: 0.5 * jnp.sum(f(x) ** 2))
    return lambda x: jax.jvp(half_square, (x,), (x,))[1]


#: A transform of `x -> x.transpose(0, 2, 1)` and whether its result is transposed.
TRANSFORMS = {
    "jit": (once, True),
    "grad": (gradient, True),
    "twice": (twice, False),
    "scan": (scanned, True),
    "remat": (rematerialized, False),
    "jvp of grad": (second_derivative, False),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("spec", [P("x", "y"), P("y", None, "x"), P(None, "x", "y")], ids=str)
@pytest.mark.parametrize("shape", [(4, 2), (2, 1), (1, 8)], ids=str)
def test_transforms(shape, spec, name):
    transform, transposed = TRANSFORMS[name]
    mesh, axes = device_mesh(shape), (0, 2, 1)
    # Square, so that scan's carry keeps its shape; and split alike, so that it keeps its sharding.
    x = small_values((8, 16, 16), "float32")
    if name in ("twice", "scan"):
        spec = P(tuple(axis for axis in spec if axis))
    text = check_sharded(
        transform(functools.partial(native, axes=axes)),
        x.transpose(axes) if transposed else x,
        put(x, mesh, spec),
        NamedSharding(mesh, moved_spec(spec, axes) if transposed else spec),
    )
    assert CALL in text


@pytest.mark.parametrize("spmd_axis_name", [None, "x"])
@pytest.mark.parametrize("in_axis, out_axis", [(0, 0), (2, 1), (1, 3)])
def test_vmap(spmd_axis_name, in_axis, out_axis):
    mesh = device_mesh((4, 2))
    x = small_values((8, 4, 16, 6), "float32")
    spec = [None] * 4
    spec[in_axis] = "x"
    spec[(in_axis + 1) % 4] = "y"
    f = jax.vmap(
        functools.partial(native, axes=(2, 0, 1)),
        in_axes=in_axis,
        out_axes=out_axis,
        spmd_axis_name=spmd_axis_name,
    )
    axes = [axis for axis in range(4) if axis != in_axis]
    axes = [axes[2], axes[0], axes[1]]
    axes.insert(out_axis, in_axis)
    text = check_sharded(
        f,
        x.transpose(axes),
        put(x, mesh, P(*spec)),
        NamedSharding(mesh, moved_spec(P(*spec), axes)),
    )
    assert CALL in text


def test_jacobian():
    mesh = device_mesh((8,))
    x = small_values((8, 4, 6), "float32")
    f = jax.jacrev(lambda x: native(x, (0, 2, 1)).sum(axis=(1, 2)))
    theirs = jax.jacrev(lambda x: x.transpose(0, 2, 1).sum(axis=(1, 2)))
    sharded = put(x, mesh, P("x"))
    expected = np.eye(8, dtype=np.float32)[:, :, None, None] * np.ones_like(x)
    assert_same_bits(jax.jit(f)(sharded), expected)
    assert collectives(compile_text(f, sharded)) == collectives(compile_text(theirs, sharded))


@pytest.mark.parametrize("length", [1, 7, 9, 13])
def test_uneven_shards(length):
    """Eight devices share `length` rows; only the result, which is whole, is gathered."""
    sharding = NamedSharding(device_mesh((8,)), P("x"))
    x = small_values((length, 5, 3), "float32")
    replicated = put(x, device_mesh((8,)), P())

    def run(transpose, x):
        x = jax.lax.with_sharding_constraint(x * 2, sharding)
        return transpose(x, (2, 1, 0)) + 1

    ours = functools.partial(run, native)
    assert_same_bits(jax.jit(ours)(replicated), x.transpose(2, 1, 0) * 2 + 1)
    found = collectives(compile_text(ours, replicated))
    assert found == collectives(compile_text(functools.partial(run, jnp.transpose), replicated))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of meshes as context managers
@pytest.mark.parametrize("context", [None, (8,), (4, 2), (2,)], ids=str)
def test_shards_along_a_part_of_a_mesh_axis(context):
    """A reshape splits "x" in two, which no PartitionSpec of any mesh can say."""
    x = small_values((8, 60), "float32")
    sharded = put(x, device_mesh((8,)), P("x"))
    with device_mesh(context) if context else contextlib.nullcontext():
        check_parts(x, sharded)


def check_parts(x, sharded):

    def run(transpose, x):
        return transpose(x.reshape(2, 4, 6, 10), (3, 2, 1, 0)).sum(axis=0)

    text = compile_text(functools.partial(run, native), sharded)
    assert CALL in text
    theirs = compile_text(functools.partial(run, jnp.transpose), sharded)
    assert collectives(text) == collectives(theirs)
    out = jax.jit(functools.partial(run, native))(sharded)
    assert_same_bits(out, run(np.transpose, x))


@pytest.mark.parametrize("name", ["data parallel", "1", "a/b"])
def test_odd_axis_names(name):
    mesh = device_mesh((2, 4), (name, "->"))
    x = small_values(SHAPE, "float32")
    spec, axes = P(name, None, "->"), (2, 0, 1)
    check_sharded(
        functools.partial(native, axes=axes),
        x.transpose(axes),
        put(x, mesh, spec),
        NamedSharding(mesh, moved_spec(spec, axes)),
    )


@pytest.mark.parametrize("name", ["bool", "uint8", "int4", "bfloat16", "float64", "complex128"])
def test_dtypes(name):
    with x64_if_needed(name):
        x = random_bits(SHAPE, name) if name not in SUB_BYTE else small_values(SHAPE, name)
        mesh, axes, spec = device_mesh((4, 2)), (1, 2, 0), P("y", None, "x")
        check_sharded(
            functools.partial(native, axes=axes),
            expect(x, axes),
            put(x, mesh, spec),
            NamedSharding(mesh, moved_spec(spec, axes)),
        )


def test_two_meshes_in_one_program():
    first, second = device_mesh((8,)), device_mesh((2, 4), ("a", "b"))
    x, y = small_values(SHAPE, "float32"), small_values((8, 4), "float32")
    f = jax.jit(lambda x, y: (native(x), native(y)))
    args = put(x, first, P("x")), put(y, second, P("b", "a"))
    text = f.lower(*args).compile().as_text()
    assert text.count(CALL) == 2 and collectives(text) == []
    for out, expected, sharding in zip(
        f(*args),
        (x.T, y.T),
        (NamedSharding(first, P(None, None, "x")), NamedSharding(second, P("a", "b"))),
        strict=True,
    ):
        assert_same_bits(out, expected)
        assert out.sharding.is_equivalent_to(sharding, out.ndim)


@pytest.mark.parametrize("pick", [slice(None, None, -1), slice(4, None), [5, 2, 7, 0]], ids=str)
def test_devices_in_any_order(pick):
    mesh = Mesh(np.array(jax.devices("cpu")[:8])[pick], "x")
    x = small_values(SHAPE, "float32")
    f = functools.partial(native, axes=(1, 2, 0))
    sharding = NamedSharding(mesh, P("x"))
    check_sharded(f, x.transpose(1, 2, 0), put(x, mesh, P(None, "x")), sharding)


def test_lowered_without_devices():
    """An AbstractMesh has a shape and axis names, which is all that lowering needs."""
    sharding = NamedSharding(device_mesh((8,)).abstract_mesh, P("x"))
    f = jax.jit(native, in_shardings=sharding)
    traced = f.trace(jax.ShapeDtypeStruct(SHAPE, np.float32))
    text = traced.lower(lowering_platforms=("cpu",)).as_text()
    # What the partitioner will split, and into what.
    assert 'jax_transpose_v1 = "(2, 1, 0) native 0"' in text


def test_a_result_split_further_than_the_operand_transposes_slices():
    mesh = device_mesh((8,))
    x = small_values((16, 24), "float32")
    f = jax.jit(native, out_shardings=NamedSharding(mesh, P("x")))
    text = f.lower(put(x, mesh, P())).compile().as_text()
    assert collectives(text) == []
    assert "f32[3,16]{1,0} custom-call" in text and text.count(CALL) == 1
    assert_same_bits(f(put(x, mesh, P())), x.T)


def test_the_choice_is_made_for_a_shard():
    """`auto` takes our kernel for the whole array, but a shard is small enough for XLA."""
    mesh = device_mesh((8,))
    shape, shard = (64, 64), (8, 64)
    kinds = [jt.explain(s, platform="cpu").implementation for s in (shape, shard)]
    assert kinds == ["native", "xla"]
    x = put(small_values(shape, "float32"), mesh, P("x"))
    assert CALL not in compile_text(jt.transpose, x)
    assert CALL in compile_text(native, x)


def partitioners():
    """Shardy and GSPMD, as long as this JAX has both."""
    name = "jax_use_shardy_partitioner"
    return [True, False] if hasattr(jax.config, name) else []


@pytest.mark.parametrize("shardy", partitioners())
def test_both_partitioners(shardy):
    mesh, axes = device_mesh((4, 2)), (2, 0, 1)
    x, spec = small_values(SHAPE, "float32"), P("y", None, "x")
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        for transform, result in (
            (lambda f: f, x.transpose(axes)),
            (lambda f: jax.grad(lambda x: 0.5 * jnp.sum(f(x) ** 2)), x),
        ):
            f = transform(functools.partial(native, axes=axes))
            out_spec = spec if result is x else moved_spec(spec, axes)
            text = check_sharded(f, result, put(x, mesh, spec), NamedSharding(mesh, out_spec))
            assert CALL in text
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)
