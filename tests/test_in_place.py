"""`transpose(x, out=x)`: two axes of equal length change places within one buffer."""

import functools
import itertools

import dtypes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import needs_cuda_module, planned_platforms
from dtypes import assert_same_bits, expect, random_bits, small_values
from jax import export
from jax.sharding import PartitionSpec as P
from meshes import device_mesh, put, shard_map

import jax_transpose as jt

CASES = [
    ((64, 64), (1, 0)),
    ((333, 333), (1, 0)),
    ((1024, 1024), (1, 0)),
    ((3, 130, 130), (0, 2, 1)),
    ((70, 3, 70), (2, 1, 0)),
    ((2, 5, 65, 3, 65), (0, 1, 4, 3, 2)),
    ((40, 40, 3), (1, 0, 2)),
    ((2, 30, 30, 64), (0, 2, 1, 3)),
    ((20, 4, 20, 5), (2, 1, 0, 3)),
    ((8, 3, 8, 3), (2, 3, 0, 1)),  # pairs of axes, merged: 24 by 24
    ((5000, 4, 4), (0, 2, 1)),
    ((7, 1, 7), (2, 1, 0)),
    ((1, 9, 1), (2, 1, 0)),
    ((0, 5, 5), (0, 2, 1)),
    ((2, 2), (1, 0)),
]


def owned(target, host):
    """`host` on the device, in a buffer that JAX may donate."""
    return jax.block_until_ready(jax.jit(jnp.copy)(target.put(host)))


@pytest.mark.parametrize("shape, axes", CASES)
def test_eager_calls_consume_the_operand(platform_device, shape, axes):
    for name in ("uint8", "bfloat16", "float32", "complex64"):
        host = random_bits(shape, name)
        x = owned(platform_device, host)
        pointer = x.unsafe_buffer_pointer() if x.size else None
        y = jt.transpose(x, axes, out=x)
        assert_same_bits(y, expect(host, axes), name)
        assert x.is_deleted()
        if host.size:
            assert y.unsafe_buffer_pointer() == pointer


@pytest.mark.parametrize("name", [*dtypes.BYTE_DTYPES])
def test_every_dtype(platform_device, name):
    with dtypes.x64_if_needed(name):
        for side in (256, 129):
            host = random_bits((2, side, side), name)
            x = owned(platform_device, host)
            assert_same_bits(jt.transpose(x, (0, 2, 1), out=x), expect(host, (0, 2, 1)), name)


def test_the_peak_is_one_buffer(platform_device):
    f = jax.jit(lambda x: jt.transpose(x, (0, 2, 1), out=x), donate_argnums=0)
    x = jax.ShapeDtypeStruct((2, 512, 512), np.float32)
    with jax.default_device(platform_device.device):
        program = f.lower(x).compile()
    memory, size = program.memory_analysis(), 2 * 512 * 512 * 4
    assert memory.argument_size_in_bytes == memory.output_size_in_bytes == size
    assert memory.alias_size_in_bytes == size and memory.temp_size_in_bytes == 0
    assert "output_to_operand_aliasing={{}: (0, {})}" in program.as_text()
    assert " copy(" not in program.as_text()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("donated", [(), (0,)])
def test_odd_and_even_numbers_of_transposes(platform_device, count, donated):
    host = small_values((96, 96), "float32")

    @functools.partial(jax.jit, donate_argnums=donated)
    def chain(x):
        for _ in range(count):
            x = jt.transpose(x, out=x)
        return x

    @functools.partial(jax.jit, donate_argnums=donated)
    def loop(x):
        return jax.lax.fori_loop(0, count, lambda _, x: jt.transpose(x, out=x), x)

    want = host.T if count % 2 else host
    for f in (chain, loop):
        x = owned(platform_device, host)
        assert_same_bits(f(x), want)
        assert x.is_deleted() == bool(donated)
        if not donated:
            assert_same_bits(x, host)


def test_a_loop_works_in_one_buffer(platform_device):
    f = jax.jit(
        lambda x: jax.lax.fori_loop(0, 5, lambda _, x: jt.transpose(x, out=x), x), donate_argnums=0
    )
    x = jax.ShapeDtypeStruct((512, 512), np.float32)
    with jax.default_device(platform_device.device):
        memory = f.lower(x).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4096


def test_an_operand_that_is_used_again_is_kept(platform_device):
    host = small_values((96, 96), "float32")

    def f(x):
        x = x * 2
        return jt.transpose(x, out=x), x, x.sum()

    for donated in ((), (0,)):
        moved, x, _ = jax.jit(f, donate_argnums=donated)(owned(platform_device, host))
        assert_same_bits(moved, 2 * host.T)
        assert_same_bits(x, 2 * host)


def test_a_buffer_lent_by_numpy_stays_as_it_was(cpu):
    lent = small_values((64, 64), "float32")
    before = lent.copy()
    x = cpu.put(lent)
    assert_same_bits(jt.transpose(x, out=x), before.T)
    assert (lent == before).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap(platform_device, axis):
    host = small_values((3, 48, 48), "float32")
    x = owned(platform_device, np.moveaxis(host, 0, axis))
    f = jax.vmap(lambda x: jt.transpose(x, out=x), axis, axis)
    program = jax.jit(f, donate_argnums=0).lower(x).compile()
    assert program.memory_analysis().temp_size_in_bytes == 0
    assert_same_bits(f(x), np.moveaxis(host.transpose(0, 2, 1), 0, axis))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4])
def test_vmap_between_axes_that_move_together(platform_device, axis, batch):
    """In place where the plan can, right where it cannot."""
    axes, shape = (2, 3, 0, 1), (8, 3, 8, 3)
    host = small_values((batch, *shape), "float32")
    want = host.transpose(0, 3, 4, 1, 2)
    f = jax.vmap(lambda x: jt.transpose(x, axes, out=x, kernel="native"), axis, axis)
    x = owned(platform_device, np.moveaxis(host, 0, axis))
    program = jax.jit(f, donate_argnums=0).lower(x).compile()
    parts = axis in (1, 3) and batch > 1
    assert ("output_to_operand_aliasing" in program.as_text()) == (not parts)
    assert_same_bits(f(x), np.moveaxis(want, 0, axis))
    assert x.is_deleted() == (not parts)


def test_a_batch_of_unknown_length():
    f = jax.jit(jax.vmap(lambda x: jt.transpose(x, out=x)))
    x = jax.ShapeDtypeStruct(export.symbolic_shape("b, 4, 4"), np.float32)
    saved = export.export(f, platforms=["cpu"], disabled_checks=jt.export_checks())(x)
    host = small_values((3, 4, 4), "float32")
    assert_same_bits(saved.call(host), host.transpose(0, 2, 1))


def test_a_saved_program(platform_device):
    f = jax.jit(lambda x: jt.transpose(x, (0, 2, 1), out=x))
    x = jax.ShapeDtypeStruct((2, 128, 128), np.float32)
    saved = export.export(f, platforms=["cpu", "cuda"], disabled_checks=jt.export_checks())(x)
    assert "output_operand_alias" in saved.mlir_module()
    host = small_values(x.shape, "float32")
    kept = platform_device.put(host)
    assert_same_bits(saved.call(kept), host.transpose(0, 2, 1))
    assert_same_bits(kept, host)
    with jax.default_device(platform_device.device):
        program = jax.jit(saved.call, donate_argnums=0).lower(x).compile()
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes == host.nbytes and memory.temp_size_in_bytes == 0


def test_derivatives(platform_device):
    x = platform_device.put(small_values((4, 4), "float32"))
    weights = small_values((4, 4), "float32") + 3

    def f(x):
        x = x + 0
        return (jt.transpose(x, out=x) * weights).sum()

    for run in (lambda f: f, jax.jit):
        assert_same_bits(run(jax.grad(f))(x), weights.T)
        value, tangent = run(lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),)))(x)
        assert value == (np.asarray(x).T * weights).sum() and tangent == weights.sum()
    cubes = jax.jit(jax.hessian(lambda x: (jt.transpose(x, out=x) ** 3).sum()))(x)
    np.testing.assert_array_equal(
        np.reshape(cubes, (16, 16)), np.diag(6 * np.asarray(x).reshape(-1))
    )
    back = jax.linear_transpose(lambda x: jt.transpose(x, out=x), x)
    assert_same_bits(jax.jit(back)(weights)[0], weights.T)


def test_tangents_and_cotangents_are_not_consumed(platform_device):
    """What the caller handed to jvp and vjp is the caller's."""
    x, seed = (owned(platform_device, small_values((8, 8), "float32")) for _ in range(2))
    _, tangent = jax.jvp(lambda x: jt.transpose(x, out=x), (x,), (seed,))
    assert_same_bits(tangent, np.asarray(seed).T)
    x = owned(platform_device, small_values((8, 8), "float32"))
    _, back = jax.vjp(lambda x: jt.transpose(x, out=x), x)
    assert_same_bits(back(seed)[0], np.asarray(seed).T)
    assert not seed.is_deleted()


def test_disable_jit(platform_device):
    host = small_values((64, 64), "float32")
    x = owned(platform_device, host)
    with jax.disable_jit():
        assert_same_bits(jt.transpose(x, out=x), host.T)


def test_programs_over_many_devices_get_the_right_result():
    host = small_values((64, 64), "float32")
    for spec in (P(None, "x"), P("x", None), P()):
        x = put(host, device_mesh((8,)), spec)
        f = jax.jit(lambda x: jt.transpose(x, out=x))
        assert_same_bits(f(x), host.T)


def test_eager_calls_over_many_devices():
    host = small_values((8, 16, 16), "float32")
    for spec in (P("x"), P()):
        x = put(host, device_mesh((8,)), spec)
        y = jt.transpose(x, (0, 2, 1), out=x)
        assert_same_bits(y, host.transpose(0, 2, 1))
        assert x.is_deleted() and y.sharding.is_equivalent_to(x.sharding, 3)
    x = put(host, device_mesh((8,)), P(None, "x"))
    with pytest.raises(ValueError, match=r"the result NamedSharding.*outside jit"):
        jt.transpose(x, (0, 2, 1), out=x)
    assert not x.is_deleted()


def test_shard_map_works_in_place():
    mesh = device_mesh((8,))
    host = small_values((8, 64, 64), "float32")
    body = functools.partial(jt.matrix_transpose, kernel="native")
    f = jax.jit(shard_map(lambda x: body(x, out=x), mesh, P("x"), P("x")), donate_argnums=0)
    x = put(host, mesh, P("x"))
    program = f.lower(x).compile()
    assert "output_to_operand_aliasing={{}: (0, {})}" in program.as_text()
    assert program.memory_analysis().temp_size_in_bytes == 0
    assert_same_bits(f(x), host.transpose(0, 2, 1))
    assert x.is_deleted()


def test_pmap():
    host = small_values((8, 5, 5), "float32")
    f = jax.pmap(lambda x: jt.transpose(x, out=x))
    assert_same_bits(f(host), host.transpose(0, 2, 1))


def test_keys():
    keys = jax.random.split(jax.random.key(0), (4, 4))
    moved = jax.jit(lambda x: jt.transpose(x, out=x))(keys)
    assert_same_bits(jax.random.key_data(moved), jax.random.key_data(keys).transpose(1, 0, 2))


def test_autotune_means_auto(platform_device):
    host = small_values((64, 64), "float32")
    x = owned(platform_device, host)
    pointer = x.unsafe_buffer_pointer()
    y = jt.transpose(x, out=x, kernel="autotune")
    assert_same_bits(y, host.T)
    assert y.unsafe_buffer_pointer() == pointer
    plans = [jt.explain((64, 64), kernel=k, out="in_place") for k in ("autotune", "auto")]
    assert plans[0] == plans[1]
    elsewhere = jt.explain((8, 8), platform="tpu", kernel="autotune", out="in_place")
    assert (elsewhere.implementation, elsewhere.kernel) == ("xla", "transpose")


def test_xla_by_name(platform_device):
    host = small_values((64, 64), "float32")
    x = owned(platform_device, host)
    assert_same_bits(jt.transpose(x, out=x, kernel="xla"), host.T)
    assert x.is_deleted()


def test_the_other_functions_take_it_too(platform_device):
    host = small_values((3, 40, 40), "float32")
    for f, axes in (
        (lambda x: jt.matrix_transpose(x, out=x), (0, 2, 1)),
        (lambda x: jt.swapaxes(x, 1, 2, out=x), (0, 2, 1)),
        (lambda x: jt.permute_dims(x, (0, 2, 1), out=x), (0, 2, 1)),
        (lambda x: jt.moveaxis(x, 1, 2, out=x), (0, 2, 1)),
    ):
        assert_same_bits(f(owned(platform_device, host)), host.transpose(axes))


# --- what is possible ---------------------------------------------------------------------------


def swaps(shape, axes):
    """Whether the permutation keeps the shape and exchanges two equal runs of axes, if any."""
    if any(shape[a] != extent for a, extent in zip(axes, shape, strict=True)):
        return False
    moved = [a for a in axes if shape[a] != 1]
    order = sorted(moved)
    n = len(order)
    if moved == order:
        return True
    at = [order.index(a) for a in moved]
    for i, j, k, last in itertools.combinations_with_replacement(range(n + 1), 4):
        exchanged = [*range(i), *range(k, last), *range(j, k), *range(i, j), *range(last, n)]
        sizes = [
            int(np.prod([shape[order[a]] for a in part], dtype=int))
            for part in (range(i, j), range(k, last))
        ]
        if at == exchanged and sizes[0] == sizes[1]:
            return True
    return False


def is_possible(platform, shape, axes):
    try:
        jt.explain(shape, axes, "complex128", platform, out="in_place")
    except ValueError:
        return False
    return True


@planned_platforms
def test_one_buffer_is_enough_exactly_where_two_equal_runs_are_exchanged(platform):
    possible = 0
    for rank in (2, 3, 4):
        for shape in itertools.product((1, 2, 4), repeat=rank):
            for axes in itertools.permutations(range(rank)):
                want = swaps(shape, axes)
                assert is_possible(platform, shape, axes) == want, (shape, axes)
                possible += want
    assert possible > 300


@pytest.mark.parametrize(
    "shape, axes, message",
    [
        ((3, 4), (1, 0), r"operand, of shape \(3, 4\).*\(4, 3\)"),
        ((4, 4, 4), (1, 2, 0), r"two axes of equal length.*\(4, 16\)"),
        ((2, 3, 3, 2), (3, 2, 1, 0), r"two axes of equal length"),
    ],
)
def test_permutations_that_need_two_buffers(shape, axes, message):
    x = jnp.ones(shape)

    def eager(x):
        return jt.transpose(x, axes, out=x)

    for call in (eager, jax.jit(eager)):
        with pytest.raises(ValueError, match=message):
            call(x)
    assert not x.is_deleted()


def test_options_that_do_not_go_with_it():
    x = jnp.ones((64, 64))
    with pytest.raises(ValueError, match=r"kernel='blocked'.*'auto', 'native', 'autotune', 'xla'"):
        jt.transpose(x, out=x, kernel="blocked")
    with pytest.raises(ValueError, match=r"tile=32"):
        jt.transpose(x, out=x, tile=32)
    with pytest.raises(ValueError, match="4 bits"):
        jax.jit(lambda x: jt.transpose(x, out=x))(jnp.ones((4, 4), jnp.int4))
    assert not x.is_deleted()


@planned_platforms
def test_explain(platform):
    plan = jt.explain((8192, 8192), (1, 0), "float32", platform, out="in_place")
    assert (plan.implementation, plan.kernel, plan.out) == ("native", "in_place", "in_place")
    assert "`x`" in str(plan) and plan.reason.startswith("in place")
    assert plan.grid >= 1
    assert jt.explain((8192, 8192), platform="tpu", out="in_place").implementation == "xla"


@needs_cuda_module
@pytest.mark.parametrize(
    "dtype, side, tile, vector",
    [
        ("uint8", 4096, 128, 16),
        ("bfloat16", 4096, 64, 16),
        ("float32", 8192, 64, 16),
        ("complex64", 4096, 32, 16),
        ("complex128", 4096, 32, 16),
        ("float32", 8191, 64, 4),
        ("uint8", 4098, 64, 1),
    ],
)
def test_cuda_tiles_and_grids(dtype, side, tile, vector):
    plan = jt.explain((3, side, side), (0, 2, 1), dtype, "cuda", out="in_place")
    per_side = -(-side // tile)
    assert (plan.tile, plan.vector_width) == (tile, vector)
    assert plan.grid == 3 * per_side * (per_side + 1) // 2


@needs_cuda_module
def test_huge_cuda_grids_do_not_wrap():
    plan = jt.explain((1 << 17, 1 << 17), (1, 0), "uint8", "cuda", out="in_place")
    assert plan.grid == 1024 * 1025 // 2
    runs = jt.explain((1 << 15, 1 << 15, 64), (1, 0, 2), "uint8", "cuda", out="in_place")
    pairs = (1 << 15) * ((1 << 15) - 1) // 2
    assert runs.grid == -(-pairs * 4 // 256)
