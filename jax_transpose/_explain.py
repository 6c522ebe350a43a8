"""`explain`: which kernel would run, and why."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jax_transpose._api import check_options, normalize_axes
from jax_transpose._decide import Place, decide, decide_in_place, decide_into
from jax_transpose._dtypes import check_dtype, dtype_name, element_bits, stored
from jax_transpose._ffi import platform_name
from jax_transpose._lowering import array_obstacle
from jax_transpose._out import check_in_place


@dataclass(frozen=True)
class Plan:
    """What a call does on one device. `str` prints it as a small table.

    Attributes:
      platform: "cpu", "cuda", or another JAX platform.
      shape, axes, dtype: the request; of a sharded array the shape of one shard, of keys and other
        extended dtypes what they are stored as.
      canonical_shape, canonical_axes: the same move with size-1 axes dropped, neighbors merged and
        the kept minor run widened into the element.
      element_bytes: bytes of one canonical element; 0.5 or 0.25 where they stay packed.
      implementation: "native" (our custom call), "xla" (`lax.transpose`) or "identity".
      kernel: the kernel kind; "transpose" where XLA runs.
      tile: side of the tile in elements, 0 where there is none.
      vector_width: bytes of one memory access.
      grid, block: blocks of the launch and threads a block; on CPU tiles and 0.
      bytes_moved: bytes read plus bytes written.
      predicted_us: microseconds that a model of `predicted_on` expects of our CUDA kernel on large
        arrays (docs/tuning.md says how far off it is); None elsewhere.
      predicted_on: the card that the model was fitted on; None where there is no prediction.
      reason: why this kernel.
      out: where the result goes: None (a fresh array), "buffer" or "in_place".
      array_shape: the whole array's shape where `shape` is that of a shard; None elsewhere.
    """

    platform: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str
    canonical_shape: tuple[int, ...]
    canonical_axes: tuple[int, ...]
    element_bytes: int | float
    implementation: str
    kernel: str
    tile: int
    vector_width: int
    grid: int
    block: int
    bytes_moved: int
    reason: str
    out: str | None = None
    predicted_us: float | None = None
    predicted_on: str | None = None
    array_shape: tuple[int, ...] | None = None

    def __str__(self) -> str:
        rows = [
            ("transpose", f"{self.dtype}{list(self.shape)} axes {self.axes} on {self.platform}"),
            *self._sharded(),
            (
                "canonical",
                f"{list(self.canonical_shape)} axes {self.canonical_axes}, "
                f"{self.element_bytes}-byte elements",
            ),
            ("runs", f"{self.implementation}: {self.kernel}"),
            ("because", self.reason),
        ]
        if self.implementation == "native":
            tile = f"tile {self.tile}, " if self.tile else ""
            block = f" of {self.block} threads" if self.block else ""
            rows.append(
                (
                    "launch",
                    f"{tile}{self.vector_width}-byte accesses, {self.grid} blocks{block}",
                )
            )
        if self.out is not None:
            rows.append(("result", f"takes {self._buffer()}"))
        rows.append(("moves", f"{self.bytes_moved:,} bytes (read + written)"))
        if self.predicted_us is not None:
            rows.append(("predicted", f"{self.predicted_us:.3g} µs on one {self.predicted_on}"))
        return "\n".join(f"{name:>10}  {value}" for name, value in rows)

    def _sharded(self) -> list[tuple[str, str]]:
        if self.array_shape is None:
            return []
        return [("shard of", f"{self.dtype}{list(self.array_shape)}: one device's part")]

    def _buffer(self) -> str:
        if self.out == "buffer":
            return "the donated buffer of `out`"
        return "a second buffer" if self.implementation == "xla" else "the donated buffer of `x`"


def _shard_shape(array) -> tuple[int, ...]:
    """The shape of what one device holds of an array; the array's own where it is not split."""
    if isinstance(array, jax.core.Tracer):
        array = jax.typeof(array)
    sharding = getattr(array, "sharding", None)
    if not isinstance(sharding, jax.sharding.Sharding):
        return tuple(array.shape)
    return tuple(sharding.shard_shape(tuple(array.shape)))


def _request(shape_or_array, dtype):
    if hasattr(shape_or_array, "shape") and hasattr(shape_or_array, "dtype"):
        return _shard_shape(shape_or_array), shape_or_array.dtype if dtype is None else dtype
    try:
        shape = tuple(operator.index(extent) for extent in shape_or_array)
    except TypeError:
        raise TypeError(
            f"shape_or_array={shape_or_array!r}: allowed are an array or a sequence of integers"
        ) from None
    if any(extent < 0 for extent in shape):
        raise ValueError(f"shape_or_array={shape}: extents must not be negative")
    return shape, jnp.float32 if dtype is None else dtype


def explain(
    shape_or_array,
    axes=None,
    dtype=None,
    platform: str | None = None,
    *,
    out: str | None = None,
    kernel: str = "auto",
    tile: int | None = None,
) -> Plan:
    """Tells what `transpose` would do, without doing it.

    The answer is that of one device for buffers on 16-byte boundaries, which is where JAX puts them
    unless a program slices. Of a sharded array it is about one shard; where an array's memory or
    its partial sums leave no place for our call, it says so.

    Args:
      shape_or_array: a shape, or anything with ``shape`` and ``dtype``.
      axes: as for `transpose`.
      dtype: of the elements; float32 where neither this nor an array is given.
      platform: "cpu" or "cuda" (which need not be there; "gpu" means "cuda"), or another JAX
        platform; None means the default backend.
      out: None for a fresh result, "buffer" for ``transpose(x, out=buffer)``, "in_place" for
        ``transpose(a, out=a)``; with donated buffers.
      kernel, tile: as for `transpose`.

    Returns:
      A `Plan`; ``print(explain(...))`` shows it.

    Raises:
      TypeError: as `transpose` does; `shape_or_array` is neither; `dtype` is none of JAX's.
      ValueError: as `transpose` does; `platform` is the name of no platform; `out` is none of the
        three; with "in_place", the result has another shape, the permutation needs two buffers,
        elements are narrower than a byte, or `kernel` or `tile` is not possible in place.

    >>> explain((8, 8), platform="cuda").implementation
    'xla'
    """
    shape, dtype = _request(shape_or_array, dtype)
    permutation = normalize_axes(axes, shape)
    platform = platform_name(jax.default_backend() if platform is None else platform)
    whole, _, _ = stored(tuple(getattr(shape_or_array, "shape", shape)), permutation, dtype)
    shape, permutation, dtype = stored(shape, permutation, dtype)
    place = Place(array_obstacle(platform, shape_or_array))
    dtype = check_dtype(dtype)
    tile = check_options(kernel, tile, shape, permutation, dtype)
    if out == "in_place":
        check_in_place(shape, permutation, dtype, kernel, tile)
        choice = decide_in_place(platform, shape, permutation, dtype, kernel, place)
    elif out is None or out == "buffer":
        rule = decide if out is None else decide_into
        choice = rule(platform, shape, permutation, dtype, kernel, tile, place)
    else:
        raise ValueError(f"out={out!r}: allowed are None, 'buffer' and 'in_place'")
    implementation, plan = choice.implementation, choice.plan
    bits = element_bits(dtype)
    request = dict(
        array_shape=None if whole == shape else whole,
        platform=platform,
        shape=shape,
        axes=permutation,
        dtype=dtype_name(dtype),
        implementation=implementation,
        reason=choice.reason,
        out=out,
    )
    fields = dict(
        canonical_shape=shape,
        canonical_axes=permutation,
        element_bytes=bits / 8 if bits % 8 else bits // 8,
        tile=0,
        vector_width=0,
        grid=0,
        block=0,
        bytes_moved=2 * -(-int(np.prod(shape, dtype=object)) * bits // 8),
    )
    if plan is not None:
        fields.update({name: plan[name] for name in fields})
    if implementation == "native":
        predicted = {name: plan.get(name) for name in ("predicted_us", "predicted_on")}
        return Plan(**request, **fields, **predicted, kernel=plan["kernel"])
    fields.update(tile=0, vector_width=0, grid=0, block=0)
    if implementation == "identity":
        fields["bytes_moved"] = 0
        return Plan(**request, **fields, kernel="none")
    return Plan(**request, **fields, kernel="transpose")
