"""`transpose_p`: a primitive with every rule that `lax.transpose_p` has.

Operand:
  x: array of any shape and any JAX dtype.

Parameters, which `transpose` has checked:
  permutation: tuple of ``x.ndim`` non-negative Python ints; axis ``permutation[i]`` of `x` becomes
    axis ``i`` of the result.
  kernel: as for `transpose`.
  tile: side of the tile in elements, 0 where the plan chooses.

The result has shape ``tuple(x.shape[a] for a in permutation)`` and the dtype of `x`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from jax import lax
from jax.interpreters import ad, batching, mlir

from jax_transpose import _compat
from jax_transpose._autotune import autotune
from jax_transpose._decide import PLATFORMS, decide, takes_symbolic_shapes
from jax_transpose._dtypes import element_bits
from jax_transpose._ffi import TARGET
from jax_transpose._lowering import (
    ffi_call,
    lower_to,
    measured_here,
    on_stored,
    place_of,
    platform_of,
)
from jax_transpose._partitioning import partitioned, shard_by_shard


def _abstract_eval(x, *, permutation, kernel, tile):
    # JAX's own rule knows this version's shardings, varying axes and weak types.
    return lax.transpose_p.abstract_eval(x, permutation=permutation)[0]


def _transpose_rule(cotangent, x, *, permutation, kernel, tile):
    if type(cotangent) is ad.Zero:
        return [ad.Zero(x.aval)]
    inverse = tuple(int(axis) for axis in np.argsort(permutation))
    return [transpose_p.bind(cotangent, permutation=inverse, kernel=kernel, tile=tile)]


def _batching_rule(args, dims, *, permutation, kernel, tile):
    (x,), (batch,) = args, dims
    rest = (axis + (axis >= batch) for axis in permutation)
    return transpose_p.bind(x, permutation=(batch, *rest), kernel=kernel, tile=tile), 0


def _lower_to_shards(ctx, x, **params):
    if _compat.partial_sums(ctx.avals_in[0]):
        source, target = ctx.avals_in[0].sharding, ctx.avals_out[0].sharding
        return lower_to(shard_by_shard(partial(transpose_p.bind, **params), source, target), ctx, x)
    results = lower_to(partial(_partitioned, **params), _compat.with_devices(ctx), x)
    return _compat.with_explicit_sharding(ctx, results)


@on_stored
def _lower(ctx, x, *, permutation, kernel, tile, platform):
    (aval,), (result,) = ctx.avals_in, ctx.avals_out
    platform, scope = platform_of(ctx, platform), _compat.scope(ctx)
    by_xla = partial(lax.transpose, permutation=permutation)
    place = place_of(ctx)
    kernel = measured_here(ctx, kernel, place)
    if all(isinstance(extent, int) for extent in aval.shape):
        if kernel == "autotune" and tile == 0 and scope == "device" and not place.obstacle:
            autotune(platform, aval.shape, permutation, element_bits(aval.dtype))
        choice = decide(platform, aval.shape, permutation, aval.dtype, kernel, tile, place)
        if choice.implementation == "identity" and scope == "device":
            return lower_to(partial(lax.reshape, new_sizes=result.shape), ctx, x)
        if choice.implementation != "native":
            return lower_to(by_xla, ctx, x)
        if scope == "mesh":  # a shard is lowered on its own: its shape decides, not the array's
            return _lower_to_shards(ctx, x, permutation=permutation, kernel=kernel, tile=tile)
        kernel, tile = choice.kernel, choice.tile
    elif not takes_symbolic_shapes(platform, aval.shape, kernel, aval.dtype, place):
        return lower_to(by_xla, ctx, x)
    return ffi_call(ctx, TARGET, x, permutation=permutation, kernel=kernel, tile=tile)


def _without_options(rule):
    """JAX's rule for `lax.transpose_p` as one for ours, where there is no kernel to choose."""

    def ours(*args, kernel, tile, **params):
        if kernel not in ("auto", "xla"):
            raise ValueError(
                f"kernel={kernel!r}: no kernel of ours runs within another kernel, or on sparse "
                "arrays; allowed here: 'auto', 'xla'"
            )
        return rule(*args, **params)

    return ours


def costs_of_x(rule):
    """JAX's rule of what `lax.transpose_p` costs as one for ours: no buffer is read."""

    def ours(ctx, x, *out, permutation, kernel, tile):
        return rule(replace(ctx, avals_in=ctx.avals_in[:1]), x, permutation=permutation)

    return ours


transpose_p = _compat.eager_primitive("jax_transpose")
transpose_p.def_abstract_eval(_abstract_eval)
ad.deflinear2(transpose_p, _transpose_rule)
batching.primitive_batchers[transpose_p] = _batching_rule
_compat.define_jet(transpose_p)
_compat.complete_rules(transpose_p, lax.transpose_p, _without_options)
_compat.complete_rules(transpose_p, lax.transpose_p, costs_of_x, moves=False)
_partitioned = partitioned(transpose_p)
mlir.register_lowering(transpose_p, partial(_lower, platform=None))
for _platform in PLATFORMS:
    mlir.register_lowering(transpose_p, partial(_lower, platform=_platform), platform=_platform)
