"""Meshes of devices, and checks of programs that run on them."""

import math

import jax
import numpy as np
from dtypes import assert_same_bits
from jax.sharding import Mesh, NamedSharding

from bench.hlo import collectives

#: Our custom call as it stands in compiled text.
CALL = 'custom_call_target="jax_transpose_v1"'


def device_mesh(shape, names=("x", "y", "z"), explicit=False, platform="cpu"):
    """A mesh over a platform's first devices; ``device_mesh((4, 2))`` has axes "x" and "y"."""
    devices = np.array(jax.devices(platform)[: math.prod(shape)]).reshape(shape)
    names = names[: len(shape)]
    if not explicit:
        return Mesh(devices, names)
    return Mesh(devices, names, axis_types=(jax.sharding.AxisType.Explicit,) * len(shape))


def use_mesh(mesh):
    """Context manager that makes `mesh` the one of the code within, by whichever name it has."""
    return (jax.set_mesh if hasattr(jax, "set_mesh") else jax.sharding.use_mesh)(mesh)


def put(x, mesh, spec):
    """`x` on the devices of `mesh`, split as `spec` says."""
    return jax.device_put(x, NamedSharding(mesh, spec))


def shard_map(f, mesh, in_specs, out_specs, manual=None):
    """`jax.shard_map` with varying-axis checks on; manual over all axes, or over `manual`."""
    manual = set(mesh.axis_names if manual is None else manual)
    return jax.shard_map(
        f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=manual, check_vma=True
    )


def compile_text(f, *args, **options):
    """The text of `f`, compiled for `args`; `options` are those of `jax.jit`."""
    return jax.jit(f, **options).lower(*args).compile().as_text()


def check_sharded(f, expected, x, sharding, exchanges=()):
    """`f(x)` is `expected`, lies as `sharding` says, and no more than `exchanges` was exchanged."""
    jitted = jax.jit(f)
    text = jitted.lower(x).compile().as_text()
    assert collectives(text) == list(exchanges)
    out = jitted(x)
    assert_same_bits(out, expected)
    assert out.sharding.is_equivalent_to(sharding, out.ndim), out.sharding
    return text


def moved_spec(spec, axes):
    """The PartitionSpec of a transposed array."""
    entries = (*spec, *[None] * (len(axes) - len(spec)))
    return jax.sharding.PartitionSpec(*(entries[axis] for axis in axes))
