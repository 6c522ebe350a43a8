"""Element widths as XLA stores them."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import dtypes

from jax_transpose import _compat


def is_key(dtype) -> bool:
    """Whether `dtype` is that of typed PRNG keys."""
    return is_extended(dtype) and jnp.issubdtype(dtype, dtypes.prng_key)


def is_extended(dtype) -> bool:
    """Whether NumPy does not know `dtype`: that of PRNG keys, or one that a user registered."""
    try:
        return jnp.issubdtype(dtype, dtypes.extended)
    except TypeError:  # no dtype at all
        return False


def stored(shape, permutation, dtype) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
    """The three as they are in memory: extended elements are arrays, whose axes come last."""
    if is_extended(dtype):
        element = _compat.element_type(dtype)
        permutation = (*permutation, *range(len(shape), len(shape) + len(element.shape)))
        return (*shape, *element.shape), permutation, element.dtype
    return tuple(shape), permutation, dtype


def is_float0(dtype) -> bool:
    """Whether `dtype` is that of the tangents of integers, which hold nothing."""
    return dtype == dtypes.float0


def dtype_name(dtype) -> str:
    """A dtype as JAX calls it; NumPy has no name for float0."""
    return "float0" if is_float0(dtype) else dtype.name


def check_dtype(dtype) -> np.dtype:
    """NumPy's form of a plain JAX dtype; TypeError for what is none."""
    if is_float0(dtype):
        return dtype
    try:
        known = np.dtype(dtype)
    except TypeError:
        known = None
    if known is None or not (jnp.issubdtype(known, np.number) or known == np.bool_):
        raise TypeError(
            f"dtype={dtype!r} is no dtype of JAX; allowed: bool, integers, floats, complex "
            "numbers, and the dtypes of PRNG keys"
        )
    return known


def has_kernels(dtype: np.dtype) -> bool:
    """Whether our kernels move elements of this width: whole bytes, or 4 or 2 bits packed."""
    bits = element_bits(dtype)
    return bits in (2, 4) or (bits > 0 and bits % 8 == 0)


def element_bits(dtype: np.dtype) -> int:
    """Bits of one element in a device buffer: sub-byte types are packed there.

    0 for float0, which has none. Of extended dtypes see `stored`.
    """
    if np.dtype(dtype).itemsize == 1 and dtype != np.bool_:
        for info in (ml_dtypes.iinfo, ml_dtypes.finfo):
            try:
                return info(dtype).bits
            except (TypeError, ValueError, KeyError):
                continue
    return np.dtype(dtype).itemsize * 8
