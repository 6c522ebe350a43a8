"""`transpose(x, out=buffer)`: the result lands in the buffer, whatever surrounds the call."""

import functools
import re

import dtypes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import needs_cuda_module
from dtypes import assert_same_bits, expect, random_bits, small_values
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import device_mesh, moved_spec, put, shard_map

import jax_transpose as jt
from jax_transpose import _into

CALL = "jax_transpose_into_v1"
CASES = [
    ((64, 48), (1, 0)),
    ((300, 3), (1, 0)),
    ((5, 6, 7), (2, 0, 1)),
    ((4, 5, 6, 7), (0, 2, 1, 3)),
    ((8, 8, 8), (1, 2, 0)),
    ((3, 4), (0, 1)),
    ((1, 9, 1), (2, 1, 0)),
    ((0, 4), (1, 0)),
    ((513, 700), (1, 0)),
]
KERNELS = pytest.mark.parametrize("kernel", ["auto", "native", "xla"])


def result_shape(shape, axes):
    return tuple(shape[axis] for axis in axes)


def buffer_for(target, host, axes):
    """A buffer that no host array shares, with content that must not survive."""
    filled = jnp.full(result_shape(host.shape, axes), 1, host.dtype)
    return jax.block_until_ready(target.put(filled))


@KERNELS
@pytest.mark.parametrize("shape, axes", CASES)
def test_eager_calls_consume_the_buffer(platform_device, shape, axes, kernel):
    host = random_bits(shape, "float32")
    x, out = platform_device.put(host), buffer_for(platform_device, host, axes)
    pointer = out.unsafe_buffer_pointer() if out.size else None
    y = jt.transpose(x, axes, out=out, kernel=kernel)
    assert_same_bits(y, expect(host, axes))
    assert out.is_deleted() and not x.is_deleted()
    if out.size:
        assert y.unsafe_buffer_pointer() == pointer
    assert_same_bits(x, host)


@pytest.mark.parametrize("name", [*dtypes.BYTE_DTYPES, "int4", "uint4"])
def test_every_dtype(platform_device, name):
    with dtypes.x64_if_needed(name):
        host = (
            small_values((64, 48), "uint8") % 8 if "int4" in name else random_bits((64, 48), name)
        )
        host = host.astype(dtypes.numpy_dtype(name))
        x, out = platform_device.put(host), buffer_for(platform_device, host, (1, 0))
        assert_same_bits(jt.transpose(x, out=out), expect(host))


@pytest.mark.parametrize("kernel", ["auto", "native"])
def test_a_program_with_donation_allocates_nothing(platform_device, kernel):
    f = jax.jit(lambda x, out: jt.transpose(x, out=out, kernel=kernel), donate_argnums=1)
    x = jax.ShapeDtypeStruct((256, 512), np.float32)
    out = jax.ShapeDtypeStruct((512, 256), np.float32)
    with jax.default_device(platform_device.device):
        program = f.lower(x, out).compile()
    memory = program.memory_analysis()
    assert CALL in program.as_text()
    assert memory.temp_size_in_bytes == 0
    assert memory.alias_size_in_bytes == memory.output_size_in_bytes == 512 * 256 * 4
    assert " copy(" not in program.as_text()


def test_small_arrays_take_our_kernel_with_a_buffer(platform_device):
    x = jnp.ones((4, 4))
    assert CALL in jax.jit(lambda x, o: jt.transpose(x, out=o)).lower(x, x).as_text()
    plan = jt.explain((4, 4), platform=platform_device.name, out="buffer")
    assert plan.implementation == "native" and "`out`" in str(plan)


def test_a_loop_keeps_its_buffers(platform_device):
    host = small_values((64, 64), "float32")

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def run(x, out):
        def body(_, pair):
            x, out = pair
            return jt.transpose(x, out=out) + 1, x

        return jax.lax.fori_loop(0, 7, body, (x, out))

    x, out = platform_device.put(host), buffer_for(platform_device, host, (1, 0))
    last, before = run(x, out)
    assert_same_bits(last, host.T + 7)
    assert_same_bits(before, host + 6)


def test_without_donation_nothing_is_overwritten(platform_device):
    host = small_values((64, 32), "float32")
    old = small_values((32, 64), "float32") + 5
    x, out = platform_device.put(host), platform_device.put(old)
    f = jax.jit(lambda x, out: (jt.transpose(x, out=out, kernel="native"), out * 2))
    moved, doubled = f(x, out)
    assert_same_bits(moved, host.T)
    assert_same_bits(doubled, old * 2)
    assert_same_bits(out, old)


def test_a_buffer_lent_by_numpy_stays_as_it_was(cpu):
    host = small_values((64, 32), "float32")
    lent = np.full((32, 64), 3, np.float32)
    out = cpu.put(lent)
    assert_same_bits(jt.transpose(cpu.put(host), out=out), host.T)
    assert (lent == 3).all()


@pytest.mark.parametrize(
    "operands",
    [
        lambda x: (x * 2, x * 2),
        lambda x: (x, jnp.copy(x)),
        lambda x: (x, x * 1),
        lambda x: (x, jax.lax.optimization_barrier(x)),
    ],
)
@pytest.mark.parametrize("donated", [(), (0,)])
def test_a_buffer_that_holds_what_the_operand_holds(platform_device, operands, donated):
    """XLA merges equal values: the two operands must still not become one buffer."""
    host = small_values((8, 8, 8), "float32")

    def f(x):
        x, out = operands(x)
        return jt.transpose(x, (1, 2, 0), out=out, kernel="native"), x

    moved, x = jax.jit(f, donate_argnums=donated)(platform_device.put(jnp.array(host)))
    assert_same_bits(moved, np.asarray(x).transpose(1, 2, 0))
    assert_same_bits(x, np.asarray(operands(jnp.array(host))[0]))


@pytest.mark.parametrize("x_axis", [0, 1, 2])
@pytest.mark.parametrize("out_axis", [0, 1, 2])
def test_vmap(platform_device, x_axis, out_axis):
    host = small_values((3, 4, 5), "float32")
    x = platform_device.put(np.moveaxis(host, 0, x_axis))
    out = platform_device.put(np.zeros(np.insert([5, 4], out_axis, 3), np.float32))
    f = jax.vmap(lambda x, out: jt.transpose(x, out=out, kernel="native"), (x_axis, out_axis))
    assert_same_bits(f(x, jnp.array(out)), host.transpose(0, 2, 1))
    assert_same_bits(jax.jit(f)(x, out), host.transpose(0, 2, 1))
    assert CALL in jax.jit(f).lower(x, out).as_text()


def test_a_batch_lands_in_its_buffer(platform_device):
    host = small_values((3, 4, 5), "float32")
    f = jax.vmap(lambda x, out: jt.transpose(x, out=out), (0, 1), 1)
    x = platform_device.put(host)
    out = jax.block_until_ready(platform_device.put(jnp.zeros((5, 3, 4))))
    pointer = out.unsafe_buffer_pointer()
    y = f(x, out)
    assert_same_bits(y, host.transpose(2, 0, 1))
    assert y.unsafe_buffer_pointer() == pointer


def test_derivatives(platform_device):
    x = platform_device.put(small_values((3, 4), "float32"))
    weights = small_values((4, 3), "float32")

    def f(x, out):
        return (jt.transpose(x, out=out, kernel="native") * weights).sum()

    buffer = functools.partial(jnp.zeros, (4, 3))
    for run in (lambda f: f, jax.jit):
        assert_same_bits(run(jax.grad(f))(x, buffer()), weights.T)
        assert_same_bits(run(jax.grad(f, argnums=1))(x, buffer()), np.zeros((4, 3), np.float32))
        value, tangent = run(lambda x, t, o: jax.jvp(lambda x: f(x, o), (x,), (t,)))(
            x, jnp.ones_like(x), buffer()
        )
        assert value == (np.asarray(x).T * weights).sum() and tangent == weights.sum()
    _, vjp = jax.vjp(lambda x: jt.transpose(x, out=buffer(), kernel="native"), x)
    assert_same_bits(vjp(weights)[0], weights.T)
    hessian = jax.jit(jax.hessian(lambda x: (jt.transpose(x, out=buffer()) ** 3).sum()))(x)
    np.testing.assert_array_equal(
        np.reshape(hessian, (12, 12)), np.diag(6 * np.asarray(x).reshape(-1))
    )
    transposed = jax.linear_transpose(lambda x: jt.transpose(x, out=buffer()), x)
    assert_same_bits(jax.jit(transposed)(weights)[0], weights.T)
    rematerialized = jax.jit(jax.grad(jax.checkpoint(f)))(x, buffer())
    assert_same_bits(rematerialized, weights.T)


def test_taylor_mode():
    jet = pytest.importorskip("jax.experimental.jet")
    x, out = small_values((3, 4), "float32"), jnp.zeros((4, 3))
    f = jax.jit(
        lambda x, t, out: jet.jet(
            lambda x: jt.transpose(x, out=out), (x,), [[t, jnp.zeros_like(t)]]
        )
    )
    value, (first, second) = f(x, 2 * x, out)
    assert_same_bits(value, x.T)
    assert_same_bits(first, 2 * x.T)
    assert not np.asarray(second).any()


def test_disable_jit(platform_device):
    x = platform_device.put(small_values((3, 4), "float32"))
    with jax.disable_jit():
        y = jt.transpose(x, out=platform_device.put(jnp.zeros((4, 3))))
    assert_same_bits(y, np.asarray(x).T)


def test_the_other_functions_take_it_too(platform_device):
    host = small_values((2, 3, 4), "float32")
    x = platform_device.put(host)

    def out(*shape):
        return platform_device.put(jnp.zeros(shape))

    assert_same_bits(jt.permute_dims(x, (1, 2, 0), out=out(3, 4, 2)), host.transpose(1, 2, 0))
    assert_same_bits(jt.matrix_transpose(x, out=out(2, 4, 3)), host.transpose(0, 2, 1))
    assert_same_bits(jt.swapaxes(x, 0, 2, out=out(4, 3, 2)), host.swapaxes(0, 2))
    assert_same_bits(jt.moveaxis(x, 0, 2, out=out(3, 4, 2)), np.moveaxis(host, 0, 2))


def test_keys():
    keys = jax.random.split(jax.random.key(0), (3, 4))
    out = jax.random.split(jax.random.key(1), (4, 3))
    moved = jax.jit(lambda x, out: jt.transpose(x, out=out))(keys, out)
    assert_same_bits(jax.random.key_data(moved), jax.random.key_data(keys).transpose(1, 0, 2))


def test_programs_over_many_devices_get_the_right_result():
    mesh = device_mesh((8,))
    host = small_values((16, 32), "float32")
    x = put(host, mesh, P("x", None))
    for spec in (P(None, "x"), P("x", None), P()):
        out = put(jnp.zeros((32, 16)), mesh, spec)
        f = jax.jit(lambda x, out: jt.transpose(x, out=out, kernel="native"))
        assert_same_bits(f(x, out), host.T)
        assert CALL not in f.lower(x, out).as_text()


SPECS = [P("x"), P(None, "y"), P("x", "y"), P(("x", "y")), P("y", "x"), P()]


def addresses(x):
    return [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards]


@KERNELS
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_eager_calls_over_many_devices_consume_the_buffer(spec, kernel):
    mesh = device_mesh((4, 2))
    host = small_values((16, 32), "float32")
    x = put(host, mesh, spec)
    out = put(jnp.zeros((32, 16)), mesh, moved_spec(spec, (1, 0)))
    before = addresses(out)
    y = jt.transpose(x, out=out, kernel=kernel)
    assert_same_bits(y, host.T)
    assert out.is_deleted() and not x.is_deleted()
    assert addresses(y) == before
    assert y.sharding.is_equivalent_to(out.sharding, 2)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_buffer_in_another_sharding_than_the_result(spec):
    mesh = device_mesh((4, 2))
    x = put(small_values((16, 32), "float32"), mesh, spec)
    wanted = NamedSharding(mesh, moved_spec(spec, (1, 0)))
    for other in SPECS:
        out = put(jnp.zeros((32, 16)), mesh, other)
        if out.sharding.is_equivalent_to(wanted, 2):
            continue
        both = f"{re.escape(str(out.sharding))}.*{re.escape(str(wanted))}"
        with pytest.raises(ValueError, match=both):
            jt.transpose(x, out=out)
        assert not out.is_deleted()


def test_sharded_batches_outside_of_jit():
    mesh = device_mesh((8,))
    host = small_values((8, 4, 5), "float32")
    f = jax.vmap(lambda x, out: jt.transpose(x, out=out))
    x, out = put(host, mesh, P("x")), put(jnp.zeros((8, 5, 4)), mesh, P("x"))
    assert_same_bits(f(x, out), host.transpose(0, 2, 1))
    assert out.is_deleted()
    with pytest.raises(ValueError, match="sharding"):
        f(x, put(jnp.zeros((8, 5, 4)), mesh, P()))


@pytest.mark.parametrize("kernel", ["auto", "native", "autotune"])
def test_shard_map_over_the_whole_mesh_runs_our_kernel(kernel):
    mesh = device_mesh((8,))
    host = small_values((16, 32), "float32")
    x, out = put(host, mesh, P("x")), put(jnp.zeros((32, 16)), mesh, P(None, "x"))
    f = jax.jit(
        shard_map(
            lambda x, out: jt.transpose(x, out=out, kernel=kernel),
            mesh,
            (P("x", None), P(None, "x")),
            P(None, "x"),
        ),
        donate_argnums=1,
    )
    program = f.lower(x, out).compile()
    assert CALL in program.as_text() and program.memory_analysis().temp_size_in_bytes == 0
    before = addresses(out)
    y = f(x, out)
    assert_same_bits(y, host.T)
    assert addresses(y) == before


def test_pmap():
    host = small_values((8, 5, 7), "float32")
    f = jax.pmap(lambda x, out: jt.transpose(x, out=out, kernel="native"), donate_argnums=1)
    assert_same_bits(f(host, np.zeros((8, 7, 5), np.float32)), host.transpose(0, 2, 1))


def test_arrays_of_pmap_outside_of_jit():
    """Older JAX cannot say where the transpose of such an array would lie."""
    host, copy = small_values((8, 5, 7), "float32"), jax.pmap(jnp.copy)
    x, out = copy(host), copy(np.zeros((8, 7, 5), np.float32))
    if isinstance(x.sharding, NamedSharding):
        assert_same_bits(jt.transpose(x, (0, 2, 1), out=out), host.transpose(0, 2, 1))
    else:
        with pytest.raises(ValueError, match="needs a NamedSharding"):
            jt.transpose(x, (0, 2, 1), out=out)
        assert not out.is_deleted()


def test_autotune_measures_where_it_would_without_a_buffer(cpu, monkeypatch):
    seen = []
    monkeypatch.setattr(_into, "autotune", lambda *request: seen.append(request))
    host = small_values((7, 9), "float32")
    f = jax.jit(lambda x, out: jt.transpose(x, out=out, kernel="autotune"))
    assert_same_bits(f(cpu.put(host), cpu.put(np.zeros((9, 7), np.float32))), host.T)
    assert seen == [("cpu", (7, 9), (1, 0), 32)]
    for options in (dict(kernel="autotune", tile=32), dict(kernel="native")):
        y = jt.transpose(cpu.put(host), out=cpu.put(jnp.zeros((9, 7))), **options)
        assert_same_bits(y, host.T)
    assert len(seen) == 1


def test_a_saved_program(cpu):
    f = jax.jit(lambda x, out: jt.transpose(x, out=out))
    x = jax.ShapeDtypeStruct((64, 48), np.float32)
    out = jax.ShapeDtypeStruct((48, 64), np.float32)
    saved = export.export(f, platforms=["cpu", "cuda"], disabled_checks=jt.export_checks())(x, out)
    assert CALL in saved.mlir_module()
    host = small_values((64, 48), "float32")
    assert_same_bits(saved.call(cpu.put(host), np.zeros((48, 64), np.float32)), host.T)
    program = jax.jit(saved.call, donate_argnums=1).lower(x, out).compile()
    assert program.memory_analysis().alias_size_in_bytes == host.nbytes


@needs_cuda_module
def test_a_wished_tile_leaves_the_kernel_ours():
    for platform in ("cpu", "cuda"):
        for tile in (None, 32):
            plan = jt.explain((64, 32), platform=platform, out="buffer", tile=tile)
            assert plan.implementation == "native", plan


def test_symbolic_shapes():
    a, b = export.symbolic_shape("a, b")
    x = jax.ShapeDtypeStruct((a, b), np.float32)
    out = jax.ShapeDtypeStruct((b, a), np.float32)
    f = jax.jit(lambda x, out: jt.transpose(x, out=out))
    checks = [export.DisabledSafetyCheck.custom_call(CALL)]
    program = export.export(f, platforms=["cpu"], disabled_checks=checks)(x, out)
    assert CALL in program.mlir_module()
    host = small_values((5, 3), "float32")
    assert_same_bits(program.call(host, np.zeros((3, 5), np.float32)), host.T)


# --- errors -------------------------------------------------------------------------------------


def test_shape_dtype_and_type_are_checked_while_tracing():
    x = jnp.ones((3, 4))

    def eager(x, out):
        return jt.transpose(x, out=out)

    for call in (eager, jax.jit(eager)):
        with pytest.raises(ValueError, match=r"out of shape \(3, 4\).*result has shape \(4, 3\)"):
            call(x, jnp.ones((3, 4)))
        with pytest.raises(TypeError, match=r"out of dtype int32.*float32"):
            call(x, jnp.ones((4, 3), jnp.int32))
    for bad in (np.ones((4, 3), np.float32), 3.0, "out"):
        with pytest.raises(TypeError, match=rf"out of type {type(bad).__name__}"):
            jt.transpose(x, out=bad)


def test_a_buffer_that_was_donated_before():
    x, out = jnp.ones((3, 4)), jnp.ones((4, 3))
    jt.transpose(x, out=out)
    with pytest.raises(ValueError, match="was deleted"):
        jt.transpose(x, out=out)


def test_a_buffer_that_would_become_a_constant():
    out = jnp.ones((4, 3))
    with pytest.raises(ValueError, match="constant of the program"):
        jax.jit(lambda x: jt.transpose(x, out=out))(jnp.ones((3, 4)))
    with pytest.raises(ValueError, match="constant of the program"):
        jax.jit(jax.grad(lambda x: jt.transpose(x, out=out).sum()))(jnp.ones((3, 4)))
    assert not out.is_deleted()


def test_constants_behind_a_transformation():
    x, out = jnp.ones((3, 4, 5)), jnp.ones((3, 5, 4))
    square = jnp.ones((3, 4, 4))

    def into(x, out):
        return jt.transpose(x, (0, 2, 1), out=out)

    for f in (
        lambda x: jax.vmap(lambda x, out: jt.transpose(x, out=out))(x, out),
        lambda x: jax.vjp(into, x, out)[0],
        lambda x: jax.vmap(lambda x: jt.transpose(x, out=x))(square) + x.sum(),
    ):
        with pytest.raises(ValueError, match="constant of the program"):
            jax.jit(f)(x)
    assert not out.is_deleted() and not square.is_deleted()


@pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_batch_of_only_one_operand_gets_memory_of_its_own(run):
    x, out = jnp.arange(60.0).reshape(3, 4, 5), jnp.zeros((3, 5, 4))

    def into(x, out):
        return jt.transpose(x, out=out)

    want = np.asarray(x).transpose(0, 2, 1)
    got = run(jax.vmap(into, (0, None)))(x, out[0])
    assert_same_bits(got, want)
    got = run(jax.vmap(into, (None, 0)))(x[0], out)
    assert_same_bits(got, np.stack([want[0]] * 3))
    assert not out.is_deleted()


def test_a_loop_under_vmap_that_passes_its_buffer_on():
    def twice(x):
        def body(_, carry):
            x, spare = carry
            return jt.transpose(x, out=spare), x

        return jax.lax.fori_loop(0, 3, body, (x, jnp.zeros(x.shape)))[0]

    x = np.arange(48.0, dtype=np.float32).reshape(3, 4, 4)
    assert_same_bits(jax.jit(jax.vmap(twice))(x), x.transpose(0, 2, 1))


def aliased(x):
    """Another array with the buffers of `x`."""
    parts = [shard.data for shard in x.addressable_shards]
    alias = jax.make_array_from_single_device_arrays(x.shape, x.sharding, parts)
    assert alias is not x and addresses(alias) == addresses(x)
    return alias


def test_a_buffer_that_is_the_operands():
    x = jax.block_until_ready(jnp.ones((3, 8, 8)))
    alias = aliased(x)
    f = jax.vmap(lambda x, out: jt.transpose(x, out=out))
    for call in (
        lambda: jt.transpose(x, (0, 2, 1), out=alias),
        lambda: f(x, alias),
        lambda: f(x, x),
    ):
        with pytest.raises(ValueError, match=r"buffer of the operand.*as out"):
            call()
    assert not x.is_deleted()
    assert_same_bits(jt.transpose(x, (0, 2, 1), out=x), np.ones((3, 8, 8), np.float32))


def test_shards_that_are_the_operands():
    x = put(jnp.ones((8, 16, 16)), device_mesh((8,)), P("x"))
    with pytest.raises(ValueError, match="buffer of the operand"):
        jt.transpose(x, (0, 2, 1), out=aliased(x))


def test_arrays_of_numpy_under_vmap():
    f = jax.vmap(lambda x, out: jt.transpose(x, out=out))
    x, out = small_values((3, 4, 5), "float32"), np.zeros((3, 5, 4), np.float32)
    assert_same_bits(f(x, jnp.array(out)), x.transpose(0, 2, 1))
    with pytest.raises(TypeError, match="out of type"):
        f(x, out)


def test_a_buffer_on_another_device():
    first, second = jax.devices("cpu")[:2]
    x, out = jax.device_put(np.ones((3, 4)), first), jax.device_put(np.ones((4, 3)), second)
    with pytest.raises(ValueError, match="lies on"):
        jt.transpose(x, out=out)


def test_no_warning_about_donation(recwarn, platform_device):
    x = platform_device.put(jnp.ones((30, 40)))
    for kernel in ("auto", "native", "xla"):
        jt.transpose(x, out=platform_device.put(jnp.ones((40, 30))), kernel=kernel)
    assert not [w for w in recwarn if "donated" in str(w.message)]


def test_explain_checks_out():
    with pytest.raises(ValueError, match=r"out='x'.*'buffer'.*'in_place'"):
        jt.explain((3, 4), out="x")
