"""`transpose_p`: a primitive with every rule that `lax.transpose_p` has."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import lax
from jax.interpreters import ad, batching, mlir

from jax_transpose import _compat
from jax_transpose._autotune import autotune
from jax_transpose._decide import PLATFORMS, decide, takes_symbolic_shapes
from jax_transpose._dtypes import element_bits
from jax_transpose._ffi import TARGET
from jax_transpose._partitioning import partitioned


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


def _lower_to_xla(ctx, x, *, permutation):
    rule = mlir.lower_fun(partial(lax.transpose, permutation=permutation), multiple_results=False)
    return rule(ctx, x)


def _lower_to_reshape(ctx, x):
    (result,) = ctx.avals_out
    rule = mlir.lower_fun(partial(lax.reshape, new_sizes=result.shape), multiple_results=False)
    return rule(ctx, x)


def _lower_to_shards(ctx, x, **params):
    rule = mlir.lower_fun(partial(_partitioned, **params), multiple_results=False)
    return _compat.with_explicit_sharding(ctx, rule(_compat.with_devices(ctx), x))


def _lower(ctx, x, *, permutation, kernel, tile, platform):
    (aval,) = ctx.avals_in
    if platform is None:  # the rule for every platform that has no rule of its own
        platform = next((p for p in ctx.module_context.platforms if p not in PLATFORMS), "other")
    scope = _compat.scope(ctx)
    if scope == "opaque":
        return _lower_to_xla(ctx, x, permutation=permutation)
    if all(isinstance(extent, int) for extent in aval.shape):
        if kernel == "autotune" and tile == 0 and scope == "device":
            autotune(platform, aval.shape, permutation, element_bits(aval.dtype))
        choice = decide(platform, aval.shape, permutation, aval.dtype, kernel, tile)
        if choice.implementation == "identity" and scope == "device":
            return _lower_to_reshape(ctx, x)
        if choice.implementation != "native":
            return _lower_to_xla(ctx, x, permutation=permutation)
        if scope == "mesh":  # a shard is lowered on its own: its shape decides, not the array's
            return _lower_to_shards(ctx, x, permutation=permutation, kernel=kernel, tile=tile)
        kernel, tile = choice.kernel, choice.tile
    elif not takes_symbolic_shapes(platform, kernel, aval.dtype):
        return _lower_to_xla(ctx, x, permutation=permutation)
    call = jax.ffi.ffi_lowering(TARGET)
    return call(
        ctx,
        x,
        permutation=np.array(permutation, np.int64),
        element_bits=np.int64(element_bits(aval.dtype)),
        kernel=kernel,
        tile=np.int64(tile),
    )


transpose_p = _compat.eager_primitive("jax_transpose")
transpose_p.def_abstract_eval(_abstract_eval)
ad.deflinear2(transpose_p, _transpose_rule)
batching.primitive_batchers[transpose_p] = _batching_rule
_compat.define_jet(transpose_p)
_partitioned = partitioned(transpose_p)
mlir.register_lowering(transpose_p, partial(_lower, platform=None))
for _platform in PLATFORMS:
    mlir.register_lowering(transpose_p, partial(_lower, platform=_platform), platform=_platform)
