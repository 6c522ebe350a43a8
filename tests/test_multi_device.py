"""Programs over eight devices: right results, and never an all-gather.

A custom call is opaque to the partitioner, which would replicate its operand on every
device. Programs over more than one device are therefore lowered to XLA's own op.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_transpose as jt

CALL = "custom_call @jax_transpose_v1"
KERNELS = pytest.mark.parametrize("kernel", ["auto", "native"])


def host_mesh(*shape):
    """A mesh over eight CPU devices, e.g. ``host_mesh(4, 2)`` with axes "x" and "y"."""
    devices = np.array(jax.devices("cpu")[:8]).reshape(shape)
    return Mesh(devices, ("x", "y")[: len(shape)])


def explicit_mesh():
    axis_types = (jax.sharding.AxisType.Explicit,)
    return jax.make_mesh((8,), ("x",), axis_types=axis_types, devices=jax.devices("cpu")[:8])


def shard_map(f, mesh, in_specs, out_specs):
    """shard_map with varying-axis checks on, by whichever name this JAX has."""
    if hasattr(jax, "shard_map"):
        run = jax.shard_map
    else:
        from jax.experimental.shard_map import shard_map as run
    name = "check_vma" if "check_vma" in inspect.signature(run).parameters else "check_rep"
    return run(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **{name: True})


def compiled_text(f, *args):
    return jax.jit(f).lower(*args).compile().as_text()


CASES = [
    ((0, 2, 1), P("x", None, None)),
    ((2, 1, 0), P(None, None, "x")),
    ((1, 2, 0), P(None, None, "x")),
]


@KERNELS
@pytest.mark.parametrize("axes, out_spec", CASES)
def test_sharded_operand(kernel, axes, out_spec):
    mesh = host_mesh(8)
    x = small_values((8, 16, 32), "float32")
    sharded = jax.device_put(x, NamedSharding(mesh, P("x", None, None)))
    f = functools.partial(jt.transpose, axes=axes, kernel=kernel)
    assert "all-gather" not in compiled_text(f, sharded)
    out = jax.jit(f)(sharded)
    assert_same_bits(out, x.transpose(axes))
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, out_spec), 3)
    assert_same_bits(f(sharded), x.transpose(axes))


@pytest.mark.parametrize("axes, out_spec", CASES)
def test_explicit_mesh(axes, out_spec):
    mesh = explicit_mesh()
    x = small_values((8, 16, 32), "float32")
    sharded = jax.device_put(x, NamedSharding(mesh, P("x", None, None)))
    seen = []

    def f(x):
        out = jt.transpose(x, axes)
        seen.append(jax.typeof(out).sharding.spec)
        return out

    assert_same_bits(jax.jit(f)(sharded), x.transpose(axes))
    assert seen == [out_spec]
    assert "all-gather" not in compiled_text(f, sharded)


@KERNELS
def test_two_axes_of_a_mesh(kernel):
    x = small_values((8, 6, 4), "float32")
    sharded = jax.device_put(x, NamedSharding(host_mesh(4, 2), P("x", None, "y")))
    f = functools.partial(jt.transpose, axes=(2, 0, 1), kernel=kernel)
    assert "all-gather" not in compiled_text(f, sharded)
    assert_same_bits(jax.jit(f)(sharded), x.transpose(2, 0, 1))


@KERNELS
def test_transforms_of_sharded_operands(kernel):
    spec = NamedSharding(host_mesh(8), P("x", None, None))
    x, w = small_values((8, 4, 6), "float32"), small_values((8, 6, 4), "float32")
    sharded = jax.device_put(x, spec)
    f = functools.partial(jt.transpose, kernel=kernel)

    def loss(x):
        return (f(x, (0, 2, 1)) * w).sum()

    grad = jax.jit(jax.grad(loss), out_shardings=spec)
    assert_same_bits(grad(sharded), w.transpose(0, 2, 1))
    assert "all-gather" not in grad.lower(sharded).compile().as_text()
    assert_same_bits(jax.jit(jax.vmap(f))(sharded), x.transpose(0, 2, 1))
    assert "all-gather" not in compiled_text(jax.vmap(f), sharded)
    assert_same_bits(jax.jit(jax.vmap(f, spmd_axis_name="x"))(sharded), x.transpose(0, 2, 1))
    jac = jax.jit(jax.jacrev(lambda x: f(x, (0, 2, 1)).sum(axis=(1, 2))))(sharded)
    assert_same_bits(jac, np.eye(8, dtype=np.float32)[:, :, None, None] * np.ones_like(x))


@KERNELS
def test_shard_map_checks_varying_axes(kernel):
    mesh = host_mesh(8)
    x = small_values((8, 6, 6), "float32")
    sharded = jax.device_put(x, NamedSharding(mesh, P("x")))

    def twice(x):
        step = functools.partial(jt.transpose, axes=(0, 2, 1), kernel=kernel)
        return jax.lax.scan(lambda c, _: (step(c), None), x, length=2)[0]

    f = jax.jit(shard_map(twice, mesh, P("x"), P("x")))
    assert_same_bits(f(sharded), x)
    grad = jax.jit(jax.grad(lambda x: (f(x) * x).sum()))
    assert_same_bits(grad(sharded), 2 * x)


@KERNELS
def test_shard_map_with_a_collective(kernel):
    mesh = host_mesh(8)
    x = small_values((8, 3), "float32")

    def f(x):  # (1, 3) on every device -> (3, 1), summed over the devices
        return jax.lax.psum(jt.transpose(x, kernel=kernel), "x")

    out = jax.jit(shard_map(f, mesh, P("x", None), P()))(x)
    assert_same_bits(out, x.sum(axis=0)[:, None])


def test_one_device_of_many_still_takes_our_kernel():
    device = jax.devices("cpu")[3]
    x = jax.device_put(small_values((5, 7), "float32"), device)
    f = jax.jit(functools.partial(jt.transpose, kernel="native"))
    out = f(x)
    assert out.devices() == {device}
    assert_same_bits(out, np.asarray(x).T)
    assert f.lower(x).as_text().count(CALL) == 1
    assert_same_bits(jt.transpose(x, kernel="native"), np.asarray(x).T)


def test_replicated_operands():
    x = small_values((5, 7), "float32")
    replicated = jax.device_put(x, NamedSharding(host_mesh(8), P()))
    out = jax.jit(lambda x: jt.transpose(x, kernel="native") + 1)(replicated)
    assert_same_bits(out, x.T + 1)
    assert len(out.devices()) == 8
    assert_same_bits(jnp.sum(out), (x + 1).sum())
