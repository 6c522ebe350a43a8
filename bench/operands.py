"""Input arrays: random bits (never zeros, any NaN included) or photographs."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from .cases import Case, element_bits
from .photo import batch


def make(case: Case, seed: int) -> jax.Array:
    """The operand of `case` on the default device."""
    if case.data == "photo":
        return jnp.roll(jnp.asarray(batch(case.shape)), seed, axis=0)
    if jax.default_backend() == "cpu":
        return jnp.asarray(host_bits(case, seed))
    return _device_bits(seed, case.shape, case.dtype)


def host_bits(case: Case, seed: int) -> np.ndarray:
    """Random bits in the case's dtype, made by numpy."""
    dtype = jnp.dtype(case.dtype)
    raw = np.frombuffer(np.random.default_rng(seed).bytes(case.elements * dtype.itemsize), np.uint8)
    if case.dtype == "bool":
        raw = raw & 1
    if element_bits(case.dtype) < 8:
        # One byte per element on the host: go through the values so that spare bits are valid.
        bits = element_bits(case.dtype)
        table = np.arange(1 << bits, dtype=np.uint8)
        if case.dtype.startswith("int"):
            table = table.astype(np.int8) - (1 << (bits - 1))
        values = table.astype(dtype) if "int" in case.dtype else table.view(dtype)
        return values[raw & ((1 << bits) - 1)].reshape(case.shape)
    return raw.view(dtype).reshape(case.shape)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _device_bits(seed, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """splitmix64 of the element's index, in one fused kernel without temporaries."""

    def bits(salt: int, unsigned):
        index = jax.lax.iota(jnp.uint64, math.prod(shape)).reshape(shape)
        z = (index + jnp.uint64(salt)) * jnp.uint64(0x9E3779B97F4A7C15)
        z = z + jnp.asarray(seed).astype(jnp.uint64) * jnp.uint64(0xD1342543DE82EF95)
        z = (z ^ (z >> 30)) * jnp.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> 27)) * jnp.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> 31)) >> (64 - 8 * jnp.dtype(unsigned).itemsize)).astype(unsigned)

    if dtype == "bool":
        return bits(0, jnp.uint8) % 2 == 1
    if jnp.issubdtype(dtype, jnp.complexfloating):
        part = jnp.float32 if dtype == "complex64" else jnp.float64
        unsigned = jnp.uint32 if dtype == "complex64" else jnp.uint64
        real, imag = (
            jax.lax.bitcast_convert_type(bits(salt, unsigned), part) for salt in (0, 1 << 40)
        )
        return jax.lax.complex(real, imag)
    if element_bits(dtype) < 8:
        small = bits(0, jnp.uint8)
        if "int" in dtype:
            return small.astype(dtype)
        return jax.lax.bitcast_convert_type(small.astype(jnp.uint4), dtype)
    return jax.lax.bitcast_convert_type(bits(0, f"uint{element_bits(dtype)}"), dtype)
