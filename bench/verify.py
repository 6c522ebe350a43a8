"""Bit-for-bit checks against something that is not our kernel.

Small arrays and everything on a CPU: numpy on the host. Larger arrays on an accelerator stay there
and are compared with XLA's transpose of the same bits; bringing them back, or computing every
address anew, would take longer than all timed calls together.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from .cases import element_bits

HOST_BYTES = 64 << 20


def wrong_elements(x: jax.Array, y: jax.Array, axes: tuple[int, ...], on_host: bool = False) -> int:
    """How many elements of `y` differ in any bit from `x` transposed by `axes`; 0 is right.

    A wrong shape or dtype counts every element.
    """
    expected_shape = tuple(x.shape[a] for a in axes)
    if y.shape != expected_shape or y.dtype != x.dtype:
        return max(1, math.prod(expected_shape))
    if x.size == 0:
        return 0
    if on_host or jax.default_backend() == "cpu" or x.nbytes <= HOST_BYTES:
        return host_wrong(np.asarray(x), np.asarray(y), axes)
    return int(_device_wrong(x, y, tuple(axes)))


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


@functools.partial(jax.jit, static_argnums=2)
def _device_wrong(x, y, axes: tuple[int, ...]):
    def words_of(a):
        if not jnp.issubdtype(a.dtype, jnp.complexfloating):
            return [_bits(a)]
        return [_bits(a.real), _bits(a.imag)]

    pairs = zip(words_of(x), words_of(y), strict=True)
    differs = [jnp.transpose(want, axes) != have for want, have in pairs]
    return jnp.count_nonzero(functools.reduce(jnp.logical_or, differs))
