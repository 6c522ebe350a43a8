"""Results that go into a given buffer: `transpose_into_p`, and `transpose_in_place_p` for one.

Both are `transpose_p` to every transformation; a buffer's old content is read by nobody. Tangents
and cotangents get buffers of their own.
"""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jax_transpose import _compat
from jax_transpose._autotune import autotune
from jax_transpose._buffers import (
    check_array,
    check_distinct,
    check_memory,
    check_no_constant,
    check_placement,
    follow,
)
from jax_transpose._decide import (
    PLATFORMS,
    decide_in_place,
    decide_into,
    takes_one_buffer,
    takes_symbolic_shapes,
)
from jax_transpose._dtypes import element_bits, stored
from jax_transpose._ffi import INTO_TARGET, TARGET
from jax_transpose._lowering import (
    ffi_call,
    lower_to,
    measured_here,
    on_stored,
    place_of,
    platform_of,
)
from jax_transpose._primitive import costs_of_x, transpose_p

transpose_into_p = Primitive("jax_transpose_into")  # operands: x, out
transpose_in_place_p = Primitive("jax_transpose_in_place")  # operand: x


@cache
def _donating(primitive, params: tuple, sharding):
    # keep_unused: XLA writes its own transpose into the donated buffer as well.
    bound = partial(primitive.bind, **dict(params))
    consumed = 0 if primitive is transpose_in_place_p else 1
    return jax.jit(bound, donate_argnums=consumed, keep_unused=True, out_shardings=sharding)


def bind(primitive, x, *out, permutation, **params):
    """Binds; where arrays with data come straight from the caller, the buffer is given away.

    Only then: what differentiates, checks or replays a call may read the arrays again, and so may a
    caller who debugs a program step by step. There the result is a new array.
    """
    given = out[0] if out else x
    if any(isinstance(array, jax.core.Tracer) for array in (x, given)):
        return primitive.bind(x, *out, permutation=permutation, **params)
    check_array(given)
    x = x if x is given else follow(jnp.asarray(x), given, permutation)
    if jax.config.jax_disable_jit:  # a program may give its arguments what shardings it likes
        return primitive.bind(x, *out, permutation=permutation, **params)
    check_placement(x, given, permutation)
    if out:
        check_distinct(x, given)
    if jax.config.jax_debug_nans or jax.config.jax_debug_infs:
        return primitive.bind(x, *out, permutation=permutation, **params)
    # Over several devices JAX ties the buffer to the result where both are known to lie alike.
    sharding = given.sharding if len(given.devices()) > 1 else None
    params = tuple(sorted({"permutation": permutation, **params}.items()))
    return _donating(primitive, params, sharding)(x, *out)


def _run_eagerly(x, *out, **params):
    return transpose_p.bind(x, **params)


def _abstract_eval(x, *out, permutation, kernel, tile):
    result = lax.transpose_p.abstract_eval(x, permutation=permutation)[0]
    for given in out or (x,):
        if (given.shape, given.dtype) != (result.shape, result.dtype):
            raise ValueError(f"out is {given.str_short()}, the result {result.str_short()}")
        check_memory(_compat.memory_space(given), _compat.memory_space(result), given.shape)
    return result


# --- transformations: those of transpose_p ------------------------------------------------------


def _jvp_rule(primitive, primals, tangents, **params):
    check_no_constant(primals[-1])
    result = primitive.bind(*primals, **params)
    if type(tangents[0]) is ad.Zero:
        return result, ad.Zero(jax.typeof(result).to_tangent_aval())
    return result, transpose_p.bind(tangents[0], **params)


def _transpose_rule(cotangent, x, *out, permutation, **params):
    zeros = [ad.Zero(given.aval) if ad.is_undefined_primal(given) else None for given in out]
    if type(cotangent) is ad.Zero:
        return [ad.Zero(x.aval), *zeros]
    inverse = tuple(int(axis) for axis in np.argsort(permutation))
    return [transpose_p.bind(cotangent, permutation=inverse, **params), *zeros]


def _jet_rule(primitive, primals, series, **params):
    result = primitive.bind(*primals, **params)
    return result, [transpose_p.bind(term, **params) for term in series[0]]


def _batched_permutation(permutation, batch: int, result_batch: int) -> tuple[int, ...]:
    """`permutation` with a batch axis, from position `batch` to `result_batch`."""
    rest = [axis + (axis >= batch) for axis in permutation]
    return (*rest[:result_batch], batch, *rest[result_batch:])


def _batch_into(args, dims, *, permutation, **params):
    (x, out), (x_batch, out_batch) = args, dims
    check_no_constant(out)
    # Loops under vmap are first traced with carries that have no batch yet: no error.
    if x_batch is None:
        return transpose_p.bind(x, permutation=permutation, **params), None
    if out_batch is None:  # a batch of results does not fit the buffer of one
        batched = _batched_permutation(permutation, x_batch, 0)
        return transpose_p.bind(x, permutation=batched, **params), 0
    batched = _batched_permutation(permutation, x_batch, out_batch)
    return bind(transpose_into_p, x, out, permutation=batched, **params), out_batch


def _batch_in_place(args, dims, *, permutation, **params):
    (x,), (batch,) = args, dims
    check_no_constant(x)
    batched = _batched_permutation(permutation, batch, batch)
    if takes_one_buffer(*stored(x.shape, batched, x.dtype)):
        return bind(transpose_in_place_p, x, permutation=batched, **params), batch
    # The batch parts axes that move together, such as the first two of (8, 3, 8, 3).
    batched = _batched_permutation(permutation, batch, 0)
    return transpose_p.bind(x, permutation=batched, **params), 0


# --- lowering -----------------------------------------------------------------------------------


def _lower_into(ctx, x, out, *, permutation, kernel, tile, platform):
    aval, platform = ctx.avals_in[0], platform_of(ctx, platform)

    def by_xla(x, _):
        return lax.transpose(x, permutation)

    if _compat.scope(ctx) != "device":  # a program over several devices allocates its shards
        options = dict(permutation=permutation, kernel=kernel, tile=tile)
        return lower_to(lambda x, _: transpose_p.bind(x, **options), ctx, x, out)
    place = place_of(ctx)
    kernel = measured_here(ctx, kernel, place)
    if all(isinstance(extent, int) for extent in aval.shape):
        if kernel == "autotune" and tile == 0 and not place.obstacle:
            autotune(platform, aval.shape, permutation, element_bits(aval.dtype))
        choice = decide_into(platform, aval.shape, permutation, aval.dtype, kernel, tile, place)
        if choice.implementation == "xla":
            return lower_to(by_xla, ctx, x, out)
        kernel, tile = choice.kernel, choice.tile
    elif not takes_symbolic_shapes(platform, aval.shape, kernel, aval.dtype, place):
        return lower_to(by_xla, ctx, x, out)
    options = dict(permutation=permutation, kernel=kernel, tile=tile)
    return ffi_call(ctx, INTO_TARGET, x, out, aliases={1: 0}, **options)


def _lower_in_place(ctx, x, *, permutation, kernel, tile, platform):
    (aval,), platform = ctx.avals_in, platform_of(ctx, platform)
    place = place_of(ctx)
    choice = decide_in_place(platform, aval.shape, permutation, aval.dtype, kernel, place)
    if choice.implementation == "identity":
        return [x]
    if choice.implementation == "xla":
        return lower_to(partial(lax.transpose, permutation=permutation), ctx, x)
    if _compat.scope(ctx) != "device":
        options = dict(permutation=permutation, kernel=kernel, tile=tile)
        return lower_to(partial(transpose_p.bind, **options), ctx, x)
    options = dict(permutation=permutation, kernel="auto", tile=0)
    return ffi_call(ctx, TARGET, x, aliases={0: 0}, **options)


def _define(primitive, batch, lower):
    primitive.def_impl(_run_eagerly)
    primitive.def_abstract_eval(_abstract_eval)
    ad.primitive_jvps[primitive] = partial(_jvp_rule, primitive)
    ad.primitive_transposes[primitive] = _transpose_rule
    _compat.define_jet_rule(primitive, partial(_jet_rule, primitive))
    batching.primitive_batchers[primitive] = batch
    _compat.complete_rules(primitive, lax.transpose_p, costs_of_x, moves=False)
    lower = on_stored(lower)
    mlir.register_lowering(primitive, partial(lower, platform=None))
    for platform in PLATFORMS:
        mlir.register_lowering(primitive, partial(lower, platform=platform), platform=platform)


_define(transpose_into_p, _batch_into, _lower_into)
_define(transpose_in_place_p, _batch_in_place, _lower_in_place)
