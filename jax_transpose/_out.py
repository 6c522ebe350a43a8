"""The argument `out`: what it may be, and which primitive takes it."""

from __future__ import annotations

import jax

from jax_transpose._buffers import check_array, check_no_constant
from jax_transpose._decide import decide_in_place
from jax_transpose._dtypes import dtype_name, stored
from jax_transpose._into import bind, transpose_in_place_p, transpose_into_p


def check_out(out, x: jax.Array, permutation: tuple[int, ...]) -> None:
    """Raises TypeError or ValueError where `out` cannot take the transpose of `x`.

    Where both hold data is checked when the primitive runs, whatever transformed the call.
    """
    check_array(out)
    if out.dtype != x.dtype:
        raise TypeError(
            f"out of dtype {dtype_name(out.dtype)} for an operand of dtype {dtype_name(x.dtype)}: "
            "they must be the same"
        )
    if not isinstance(x, jax.core.Tracer) and x is not out and x.is_deleted():
        raise ValueError(
            f"the operand of shape {x.shape} was deleted: its buffer was given away before, as by "
            "an earlier call with out="
        )
    shape = tuple(x.shape[axis] for axis in permutation)
    if out is not x and out.shape != shape:
        raise ValueError(
            f"out of shape {out.shape} for an operand of shape {x.shape} and axes {permutation}: "
            f"the result has shape {shape}"
        )
    if isinstance(out, jax.core.Tracer):
        return
    if out.is_deleted():
        raise ValueError(f"out of shape {out.shape} was deleted: its buffer was donated before")
    check_no_constant(out)


def check_in_place(shape, permutation: tuple[int, ...], dtype, kernel: str, tile: int) -> None:
    """Raises ValueError where no platform can work within the one buffer."""
    what = f"out is the operand, of shape {tuple(shape)}, axes {permutation}"
    if not all(isinstance(extent, int) for extent in shape):
        raise ValueError(f"{what}: in place needs a shape that is known while tracing")
    result = tuple(shape[axis] for axis in permutation)
    if result != tuple(shape):
        raise ValueError(
            f"{what}: the result has shape {result}; in place two axes of equal length can be "
            "exchanged"
        )
    if tile:
        raise ValueError(f"{what}: tile={tile} is not possible in place; allowed: None")
    try:
        decide_in_place("cpu", shape, permutation, dtype, kernel)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def write_into(x, out, permutation: tuple[int, ...], kernel: str, tile: int) -> jax.Array:
    """The transpose of `x`, in the buffer of `out`."""
    return bind(transpose_into_p, x, out, permutation=permutation, kernel=kernel, tile=tile)


def write_in_place(x, permutation: tuple[int, ...], kernel: str, tile: int) -> jax.Array:
    """The transpose of `x`, in the buffer of `x`; ValueError where that is not possible."""
    check_in_place(*stored(x.shape, permutation, x.dtype), kernel, tile)
    return bind(transpose_in_place_p, x, permutation=permutation, kernel=kernel, tile=0)
