"""Every private JAX name this package uses, and every difference between supported JAX versions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax._src import core, dispatch, sharding_impls, source_info_util, xla_bridge
from jax._src.interpreters import mlir
from jax._src.interpreters.partial_eval import DynamicJaxprTrace
from jax.extend.core import Primitive

from jax_transpose._imports import when_imported

try:
    from jax.experimental import jet
except ImportError:  # experimental: may leave JAX in any release
    jet = None


def eager_primitive(name: str) -> Primitive:
    """A primitive that runs eagerly by compiling itself, as JAX's own do."""
    primitive = Primitive(name)
    primitive.def_impl(partial(dispatch.apply_primitive, primitive))
    return primitive


def define_jet(primitive: Primitive) -> None:
    """Taylor-mode rule of a linear primitive, where this JAX has ``jet``."""
    if jet is not None:
        jet.deflinear(primitive)


def define_jet_rule(primitive: Primitive, rule: Callable) -> None:
    """``rule(primals, series, **params)`` as the Taylor-mode rule, where this JAX has ``jet``."""
    if jet is not None:
        jet.jet_rules[primitive] = rule


#: Registries of rules in parts of JAX that a program may never load, and whether their rules are
#: for moving bytes; if not, they only tell something of them.
_OPTIONAL_REGISTRIES = (
    ("jax.experimental.sparse.transform", "sparse_rules_bcoo", True),
    ("jax.experimental.roofline.roofline", "_rooflines", False),
    ("jax._src.pallas.triton.lowering", "triton_lowering_rules", True),
    ("jax._src.pallas.mosaic.lowering", "lowering_rules", True),
    ("jax._src.pallas.mosaic_gpu.lowering", "mosaic_lowering_rules", True),
    ("jax._src.pallas.fuser.block_spec", "eval_rules", True),
    ("jax._src.pallas.fuser.block_spec", "pull_block_spec_rules", True),
    ("jax._src.pallas.fuser.block_spec", "push_block_spec_rules", True),
    ("jax._src.interpreters.partial_eval", "padding_rules", True),  # gone in newer JAX
)
_FILLED_BY = {"jax.experimental.roofline.roofline": "jax.experimental.roofline.rooflines"}


def complete_rules(primitive: Primitive, like: Primitive, adapt: Callable, *, moves=True) -> None:
    """Gives `primitive` the rule of `like`, by way of `adapt`, in the registries of `moves`.

    Now where they are loaded, else when a program loads them: programs that were traced before that
    may meet them too.
    """

    def complete(name, attribute, _):
        registry = getattr(sys.modules.get(name), attribute, None)
        if not isinstance(registry, dict):  # a JAX that has none, or another kind of it
            return
        # Pallas has one registry for each kind of core.
        nested = [rules for rules in registry.values() if isinstance(rules, dict)]
        for rules in nested or [registry]:
            if like in rules:
                rules[primitive] = adapt(rules[like])

    for name, attribute, moves_bytes in _OPTIONAL_REGISTRIES:
        if moves_bytes == moves:
            when_imported(_FILLED_BY.get(name, name), partial(complete, name, attribute))


def element_type(dtype: Any) -> Any:
    """What an element of an extended dtype is made of: an abstract array of plain elements."""
    return core.physical_element_aval(dtype)


def as_stored(ctx: Any) -> Any:
    """`ctx` with arrays of plain elements in place of those of extended dtypes."""
    stored = {
        name: [core.physical_aval(aval) for aval in getattr(ctx, name)]
        for name in ("avals_in", "avals_out")
    }
    return ctx.replace(**stored)


def is_traced_into_program() -> bool:
    """Whether what runs now becomes part of a program, as under ``jit``.

    False in plain Python, and under ``grad`` or ``vmap`` alone.
    """
    trace = core.trace_ctx.trace
    while trace is not None and not isinstance(trace, DynamicJaxprTrace):
        trace = getattr(trace, "parent_trace", None)
    return trace is not None


def memory_space(aval: Any) -> Any:
    """The memory that an abstract array lies in; None where this JAX does not type it."""
    return getattr(aval, "memory_space", None)


def runs_on_host(ctx: Any) -> bool:
    """Whether the code being lowered is for the host of its device."""
    return getattr(ctx.jaxpr_eqn_ctx, "compute_type", None) == "device_host"


def in_host_memory(array: Any) -> bool:
    """Whether an array, abstract or not, lies in the memory of its device's host."""
    kind = getattr(getattr(array, "sharding", None), "memory_kind", None)
    return kind == "pinned_host" or getattr(memory_space(array), "name", "") == "Host"


def device_count(ctx: Any) -> int:
    """Devices that the program being lowered runs on, also where it is lowered for one shard."""
    axis_context = ctx.module_context.axis_context
    if isinstance(axis_context, sharding_impls.SPMDAxisContext):
        return axis_context.mesh.size
    if isinstance(axis_context, sharding_impls.ShardingContext):
        return axis_context.num_devices
    return axis_context.axis_env.nreps  # of pmap in older JAX


def partial_sums(array: Any) -> str:
    """How an explicit mesh holds an array as sums: "explicit", "mixed" or "" (it does not).

    "explicit": over a mesh whose axes are all explicit. Both unreduced sums, and the reduced values
    whose cotangents are unreduced.
    """
    sharding = getattr(array, "sharding", None)
    spec = getattr(sharding, "spec", None)
    if not (getattr(spec, "unreduced", None) or getattr(spec, "reduced", None)):
        return ""
    explicit = all(kind == jax.sharding.AxisType.Explicit for kind in sharding.mesh.axis_types)
    return "explicit" if explicit else "mixed"


def for_export(ctx: Any) -> bool:
    """Whether `jax.export` lowers, for machines that are not known."""
    return bool(ctx.module_context.lowering_parameters.for_export)


def known_platforms() -> set[str]:
    """Names of platforms that this JAX has heard of, aliases such as "gpu" among them."""
    return set(xla_bridge.known_platforms())


def hide_frames(folder: str) -> None:
    """Makes JAX blame what its profiles and programs hold on the callers of a folder's code."""
    source_info_util.register_exclusion(folder)


def scope(ctx: Any) -> str:
    """What the code being lowered sees.

    "device": whole arrays of one device, in a program for one device or a ``shard_map`` body that
    is manual over every mesh axis longer than 1. "mesh": arrays that XLA's partitioner will split.
    "opaque": such arrays too, where no custom partitioning is possible: a partly manual
    ``shard_map``, and a saved program, which cannot hold the functions that the partitioner calls.
    """
    axis_context = ctx.module_context.axis_context
    if isinstance(axis_context, sharding_impls.SPMDAxisContext):
        split = {name for name, size in axis_context.mesh.shape.items() if size > 1}
        return "device" if split <= set(axis_context.manual_axes) else "opaque"
    if isinstance(axis_context, sharding_impls.ShardingContext) and axis_context.num_devices > 1:
        return "opaque" if for_export(ctx) else "mesh"
    return "device"


def with_devices(ctx: Any) -> Any:
    """`ctx` with devices, which lowering a custom-partitioned function demands.

    They only label the shardings that our callbacks get; XLA counts devices from 0. JAX fills in
    the program's own for primitives that ask for it, and then refuses programs that name more than
    one mesh, or no device.
    """
    module = ctx.module_context
    count = module.axis_context.num_devices
    try:
        devices = jax.devices(module.platforms[0])[:count]
    except RuntimeError:  # lowered for a platform that is not here
        devices = []
    devices += [None] * (count - len(devices))
    axis_context = sharding_impls.ShardingContext(count, tuple(devices))
    return ctx.replace(module_context=module.replace(axis_context=axis_context))


def with_explicit_sharding(ctx: Any, results: list) -> list:
    """Lowered `results`, tied to the shardings that explicit mesh axes gave them while tracing."""
    return [
        mlir.lower_with_sharding_in_types(ctx, result, aval)
        for result, aval in zip(results, ctx.avals_out, strict=True)
    ]


def _tiles(sharding: Any, rank: int) -> tuple[Any, tuple[int, ...]]:
    """XLA's form of a sharding, and into how many pieces it cuts each axis; () where into none."""
    hlo = sharding._to_xla_hlo_sharding(rank)
    return hlo, tuple(hlo.tile_assignment_dimensions()) if hlo.is_tiled() else ()


def permute_spec(spec: Any, permutation: Sequence[int]) -> Any:
    """The PartitionSpec of a transposed array; what it says of partial sums stays."""
    partitions = getattr(spec, "partitions", spec)  # newer JAX; older has no partial sums
    entries = (*partitions, *[None] * len(permutation))
    moved = tuple(entries[axis] for axis in permutation)
    return spec.update(partitions=moved) if hasattr(spec, "partitions") else type(spec)(*moved)


def shard_count(sharding: Any, rank: int) -> int:
    """Into how many different shards a partitioner's sharding cuts an array of `rank` axes."""
    return math.prod(_tiles(sharding, rank)[1][:rank])


def permute_sharding(sharding: Any, permutation: Sequence[int]) -> Any:
    """The sharding of a transposed array: each axis takes its shards along."""
    rank = len(permutation)
    hlo, tiles = _tiles(sharding, rank)
    if not tiles:
        return sharding
    devices = np.array(hlo.tile_assignment_devices()).reshape(tiles)
    # Axes after the array's own hold replicas.
    devices = devices.transpose((*permutation, *range(rank, devices.ndim)))
    moved = hlo.to_proto()
    moved.iota_reshape_dims, moved.iota_transpose_perm = [], []
    moved.tile_assignment_dimensions = list(devices.shape)
    moved.tile_assignment_devices = devices.ravel().tolist()
    return sharding_impls.GSPMDSharding(sharding._device_assignment, moved)
