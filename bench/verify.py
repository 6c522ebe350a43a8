"""Bit-for-bit checks against something that is not our kernel.

Small arrays and everything on a CPU: numpy on the host. Larger arrays on an accelerator stay there
and are compared with XLA's transpose of the same array; bringing them back, or computing every
address anew, would take longer than all timed calls together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .cases import element_bits

HOST_BYTES = 64 << 20


def wrong_elements(
    x: jax.Array,
    y: jax.Array,
    axes: tuple[int, ...],
    on_host: bool = False,
    by_xla: Callable[[], jax.Array] | None = None,
) -> int:
    """How many elements of `y` differ in any bit from `x` transposed by `axes`; 0 is right.

    A wrong shape or dtype counts every element. `by_xla` gives XLA's transpose of `x` where the
    caller has compiled it already.
    """
    expected_shape = tuple(x.shape[a] for a in axes)
    if y.shape != expected_shape or y.dtype != x.dtype:
        return max(1, math.prod(expected_shape))
    if x.size == 0:
        return 0
    if on_host or jax.default_backend() == "cpu" or x.nbytes <= HOST_BYTES:
        return host_wrong(np.asarray(x), np.asarray(y), axes)
    want = by_xla() if by_xla else jax.jit(jnp.transpose, static_argnums=1)(x, tuple(axes))
    return int(_count_differing(want, y))


def host_wrong(x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> int:
    """The same by numpy; NaNs compare as bits, both halves of a complex number count."""
    want = np.transpose(words(x), (*axes, x.ndim))
    differs = words(y) != want
    return int(np.count_nonzero(differs.any(axis=-1) if differs.shape[-1] > 1 else differs))


def words(a: np.ndarray) -> np.ndarray:
    """The elements of `a` as unsigned integers, with one trailing axis of words per element."""
    size = a.dtype.itemsize
    unsigned = np.dtype(f"u{min(size, 8)}")
    flat = np.ascontiguousarray(a).reshape(-1).view(unsigned)
    bits = element_bits(a.dtype.name)
    if bits < 8:
        flat = flat & unsigned.type((1 << bits) - 1)
    return flat.reshape(*a.shape, size // unsigned.itemsize)


def _bits(a):
    """Unsigned integers of `a`'s bits on the device, for anything but complex numbers."""
    if a.dtype == jnp.bool_:
        return a.astype(jnp.uint8)
    bits = element_bits(a.dtype.name)
    raw = jax.lax.bitcast_convert_type(a, f"uint{bits}")
    return raw.astype(jnp.uint8) if bits < 8 else raw


@jax.jit
def _count_differing(want, have):
    def words_of(a):
        if not jnp.issubdtype(a.dtype, jnp.complexfloating):
            return [_bits(a)]
        return [_bits(a.real), _bits(a.imag)]

    differs = [a != b for a, b in zip(words_of(want), words_of(have), strict=True)]
    return jnp.count_nonzero(functools.reduce(jnp.logical_or, differs))
