"""Every private JAX name this package uses, and every difference between supported JAX versions."""

from __future__ import annotations

from functools import partial
from typing import Any

from jax._src import dispatch, sharding_impls
from jax.extend.core import Primitive

try:
    from jax.experimental import jet
except ImportError:  # experimental: may leave JAX in any release
    jet = None


def eager_primitive(name: str) -> Primitive:
    """A primitive that runs eagerly by compiling itself, as JAX's own do.

    Its lowering rules are told how many devices the program spans.
    """
    primitive = Primitive(name)
    primitive.def_impl(partial(dispatch.apply_primitive, primitive))
    dispatch.prim_requires_devices_during_lowering.add(primitive)
    return primitive


def define_jet(primitive: Primitive) -> None:
    """Taylor-mode rule of a linear primitive, where this JAX has ``jet``."""
    if jet is not None:
        jet.deflinear(primitive)


def runs_on_one_device(ctx: Any) -> bool:
    """Whether the code being lowered sees whole arrays of one device.

    True for single-device programs and for the body of a fully manual ``shard_map``; false where
    XLA's partitioner will split the program around us.
    """
    axis_context = ctx.module_context.axis_context
    if isinstance(axis_context, sharding_impls.ShardingContext):
        return axis_context.num_devices == 1
    if isinstance(axis_context, sharding_impls.SPMDAxisContext):
        mesh = axis_context.mesh
        return mesh.size == 1 or set(axis_context.manual_axes) == set(mesh.axis_names)
    return True
