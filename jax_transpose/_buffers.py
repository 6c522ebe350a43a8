"""Which buffers can be given away: checks of arrays that hold data, as those of eager calls do."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from jax_transpose import _compat


def check_no_constant(out: Any) -> None:
    """Raises ValueError where `out` holds data that the program being traced would hold too."""
    if not isinstance(out, jax.core.Tracer) and _compat.is_traced_into_program():
        raise ValueError(
            f"out of shape {np.shape(out)} is a constant of the program being traced, which would "
            "copy it at every call: pass it as an argument, and donate that (checkify makes "
            "constants of arguments: give it a function that jax.jit has wrapped)"
        )


def check_array(out: Any) -> None:
    """Raises TypeError where `out` is no JAX array."""
    if not isinstance(out, jax.Array):
        raise TypeError(
            f"out of type {type(out).__name__}: allowed are None and JAX arrays, whose buffer can "
            "be donated"
        )


def follow(x: jax.Array, out: jax.Array, permutation: tuple[int, ...]) -> jax.Array:
    """`x` where `out` lies, if JAX is free to move it there: made of NumPy's, or by default."""
    if x is out or x.committed or not out.committed or x.sharding == out.sharding:
        return x
    inverse = tuple(int(axis) for axis in np.argsort(permutation))
    return jax.device_put(x, _permuted(out.sharding, inverse))


def check_placement(x: jax.Array, out: jax.Array, permutation: tuple[int, ...]) -> None:
    """Raises ValueError where `out` does not lie where the transpose of `x` will lie.

    XLA donates a buffer only to a result in the same memory of the same devices whose shards have
    the same size.
    """
    if out.devices() != x.devices():
        raise ValueError(
            f"out of shape {out.shape} lies on {out.devices()}, the operand on {x.devices()}: a "
            "buffer can only be donated on its own device"
        )
    check_memory(_memory_kind(out), _memory_kind(x), out.shape)
    if len(x.devices()) == 1:
        return
    expected = _permuted(x.sharding, permutation)
    if not out.sharding.is_equivalent_to(expected, out.ndim):
        raise ValueError(
            f"out of shape {out.shape} has sharding {out.sharding}, the result {expected}: outside "
            "jit they must be the same"
        )


def check_memory(out_memory: Any, memory: Any, shape: tuple[int, ...]) -> None:
    """Raises ValueError where `out` and the result lie in two memories, such as host and device."""
    if out_memory != memory:
        raise ValueError(
            f"out of shape {shape} lies in memory {out_memory}, the result in that of the operand, "
            f"{memory}: a buffer can only be donated in its own memory; allowed: an `out` there"
        )


def check_distinct(x: Any, out: jax.Array) -> None:
    """Raises ValueError where the result would be written over the operand."""
    shared = x is out or not _addresses(x).isdisjoint(_addresses(out))
    if shared and out.size:
        raise ValueError(
            f"out of shape {out.shape} has the buffer of the operand: pass the operand itself as "
            "out, or an array of its own"
        )


def _memory_kind(x: jax.Array) -> str:
    """Such as "device" or "pinned_host"."""
    return x.sharding.memory_kind or next(iter(x.devices())).default_memory().kind


def _permuted(sharding: Any, permutation: tuple[int, ...]) -> Any:
    """The sharding of a transposed array, in the words of `sharding` where it has a spec."""
    if not isinstance(sharding, NamedSharding):
        try:
            return _compat.permute_sharding(sharding, permutation)
        except NotImplementedError:  # a sharding of pmap in older JAX
            raise ValueError(
                f"x has sharding {sharding}: out= over several devices needs a NamedSharding"
            ) from None
    moved = _compat.permute_spec(sharding.spec, permutation)
    return NamedSharding(sharding.mesh, moved, memory_kind=sharding.memory_kind)


def _addresses(x: Any) -> set[tuple[Any, int]]:
    """Where the parts of an array lie; empty where its backend does not tell."""
    try:
        return {(part.device, part.data.unsafe_buffer_pointer()) for part in x.addressable_shards}
    except (AttributeError, NotImplementedError, RuntimeError):
        return set()
