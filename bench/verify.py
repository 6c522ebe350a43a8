"""Bit-for-bit checks against something that is neither our kernel nor XLA's transpose.

Small arrays and everything on a CPU: numpy on the host. Larger arrays on an accelerator stay
there: every output element is compared with the input element that index arithmetic says it must
be, fetched by a gather.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from .cases import element_bits

# Above this the transfer and numpy's own transpose take longer than all timed calls together.
HOST_BYTES = 64 << 20
CHUNK = 1 << 22


def wrong_elements(x: jax.Array, y: jax.Array, axes: tuple[int, ...]) -> int:
    """How many elements of `y` differ in any bit from `x` transposed by `axes`; 0 is right.

    A wrong shape or dtype counts every element.
    """
    expected_shape = tuple(x.shape[a] for a in axes)
    if y.shape != expected_shape or y.dtype != x.dtype:
        return max(1, math.prod(expected_shape))
    if x.size == 0:
        return 0
    if jax.default_backend() == "cpu" or x.nbytes <= HOST_BYTES:
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
    size = x.size
    strides = [math.prod(x.shape[a + 1 :]) for a in axes]
    is_complex = jnp.issubdtype(x.dtype, jnp.complexfloating)
    flat_x, flat_y = (a.reshape(-1) if is_complex else _bits(a).reshape(-1) for a in (x, y))

    def source(index):
        offset = jnp.zeros_like(index)
        for extent, stride in zip(reversed(y.shape), reversed(strides), strict=True):
            offset = offset + index % extent * stride
            index = index // extent
        return offset

    def check(step, wrong):
        index = step * CHUNK + jax.lax.iota(jnp.int64, CHUNK)
        inside = index < size
        index = jnp.minimum(index, size - 1)
        want = flat_x.at[source(index)].get(mode="promise_in_bounds")
        have = flat_y.at[index].get(mode="promise_in_bounds")
        if is_complex:
            differs = (_bits(want.real) != _bits(have.real)) | (
                _bits(want.imag) != _bits(have.imag)
            )
        else:
            differs = want != have
        return wrong + jnp.count_nonzero(differs & inside)

    steps = -(-size // CHUNK)
    return jax.lax.fori_loop(jnp.int64(0), jnp.int64(steps), check, jnp.int64(0))
