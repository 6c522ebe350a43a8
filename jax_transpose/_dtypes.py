"""Element widths as XLA stores them."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import dtypes


def is_key(dtype) -> bool:
    """Whether `dtype` is that of typed PRNG keys."""
    return is_extended(dtype) and jnp.issubdtype(dtype, dtypes.prng_key)


def is_extended(dtype) -> bool:
    """Whether NumPy does not know `dtype`: that of PRNG keys, or one that a user registered."""
    try:
        return jnp.issubdtype(dtype, dtypes.extended)
    except TypeError:  # no dtype at all
        return False


def check_dtype(dtype) -> np.dtype:
    """`dtype` as JAX has it, NumPy's form where there is one; TypeError for what is none."""
    if is_extended(dtype) or dtype == dtypes.float0:
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

    0 for elements that are no plain bits: dtypes that users register, and float0.
    """
    if is_extended(dtype):
        return 0
    if np.dtype(dtype).itemsize == 1 and dtype != np.bool_:
        for info in (ml_dtypes.iinfo, ml_dtypes.finfo):
            try:
                return info(dtype).bits
            except (TypeError, ValueError, KeyError):
                continue
    return np.dtype(dtype).itemsize * 8
