"""The functions users call. Names and arguments follow `jax.numpy`; arguments are checked here."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_transpose import _cpu
from jax_transpose._decide import (
    MODES,
    PLATFORMS,
    all_kernels,
    kernels,
    refusal,
    sub_byte_message,
)
from jax_transpose._dtypes import element_bits, has_kernels, is_float0, is_key, stored
from jax_transpose._out import check_out, write_in_place, write_into
from jax_transpose._primitive import transpose_p


def normalize_axes(axes, shape: Sequence[int]) -> tuple[int, ...]:
    """`axes` as a tuple of non-negative Python ints; None reverses.

    Equal permutations become equal tuples, so that they share one compilation.
    """
    rank = len(shape)
    if axes is None:
        return tuple(reversed(range(rank)))
    try:
        permutation = tuple(operator.index(axis) for axis in axes)
    except TypeError:
        raise TypeError(
            f"axes={axes!r} for shape {tuple(shape)}: allowed are None or a sequence of integers"
        ) from None
    wrapped = tuple(axis + rank if axis < 0 else axis for axis in permutation)
    if sorted(wrapped) != list(range(rank)):
        raise ValueError(
            f"axes={permutation} for shape {tuple(shape)}: allowed is a permutation of the "
            f"{rank} axes, each from {-rank} to {rank - 1} and named once"
        )
    return wrapped


def check_options(kernel, tile, shape: Sequence[int], permutation, dtype) -> int:
    """Raises for a `kernel` or `tile` that no platform accepts; returns the tile, 0 for None."""
    if kernel not in all_kernels():
        raise ValueError(f"kernel={kernel!r}: allowed are {', '.join(map(repr, all_kernels()))}")
    if tile is not None:
        try:
            tile = operator.index(tile)
        except TypeError:
            raise TypeError(f"tile={tile!r}: allowed are None or an integer") from None
        if tile not in _cpu.tile_sides:
            sides = ", ".join(map(str, _cpu.tile_sides))
            raise ValueError(f"tile={tile} for shape {tuple(shape)}: allowed are None, {sides}")
    # Packed elements have kernels of their own, which the plan picks.
    allowed = MODES if has_kernels(dtype) else ("auto", "xla")
    if kernel not in allowed and (element_bits(dtype) % 8 or not has_kernels(dtype)):
        raise TypeError(sub_byte_message(kernel, dtype))
    if tile is None:
        return 0
    if kernel == "xla":
        raise ValueError(f"tile={tile}: kernel='xla' has no tile; allowed: None")
    if not has_kernels(dtype):
        return tile
    static = tuple(extent if isinstance(extent, int) else 2 for extent in shape)
    if refusal(static, permutation, dtype):
        return tile
    candidates = [p for p in PLATFORMS if kernel in MODES or kernel in kernels(p)]
    errors = []
    for platform in candidates:
        try:
            _cpu.plan(platform, static, permutation, element_bits(dtype) / 8, kernel, tile)
        except ValueError as error:
            errors.append(str(error))
    if len(errors) == len(candidates):
        raise ValueError(f"{errors[-1]} (shape {tuple(shape)}, dtype {dtype})")
    return tile


def _as_array(x, name: str) -> jax.Array:
    if isinstance(x, jax.Array):
        return x
    if isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)) or hasattr(
        x, "__jax_array__"
    ):
        return jnp.asarray(x)
    raise TypeError(f"{name}={x!r} of type {type(x).__name__}: allowed are arrays and scalars")


def _measuring_on(array, kernel: str):
    """The context of an eager call: what "autotune" measures on is the array's device."""
    if kernel != "autotune" or isinstance(array, jax.core.Tracer) or is_float0(array.dtype):
        return contextlib.nullcontext()
    return jax.default_device(array.addressable_shards[0].device)


def _permute(x, permutation: tuple[int, ...], kernel: str, tile: int | None, out) -> jax.Array:
    if out is not None:
        check_out(out, x, permutation)
    if is_key(x.dtype) and out is not None:  # their buffers can only be given away as data
        data = jax.random.key_data(x)
        trailing = tuple(range(x.ndim, data.ndim))
        buffer = data if out is x else jax.random.key_data(out)
        moved = _permute(data, permutation + trailing, kernel, tile, buffer)
        return jax.random.wrap_key_data(moved, impl=jax.random.key_impl(x))
    tile = check_options(kernel, tile, *stored(x.shape, permutation, x.dtype))
    if out is x:
        return write_in_place(x, permutation, kernel, tile)
    if out is not None:
        with _measuring_on(out, kernel):  # where a NumPy operand goes too
            return write_into(x, out, permutation, kernel, tile)
    if permutation == tuple(range(x.ndim)):
        return x
    if kernel == "xla":
        return lax.transpose(x, permutation)
    with _measuring_on(x, kernel):
        return transpose_p.bind(x, permutation=permutation, kernel=kernel, tile=tile)


def transpose(
    a, axes=None, *, out=None, kernel: str = "auto", tile: int | None = None
) -> jax.Array:
    """Permutes the axes of an array, as `jax.numpy.transpose` does.

    Args:
      a: array of any shape and any JAX dtype. Elements are moved as bits.
      axes: permutation of ``range(a.ndim)``, negative axes allowed; None reverses the axes.
      out: an array of the result's shape and dtype whose buffer the result takes; its content is
        lost. None allocates. With ``out=a`` the axes are exchanged in place, where these are two of
        equal length (neighbors that move together count as one).
        Outside ``jit`` the array is consumed: using it afterwards is an error. It must lie where
        the result will: on the same device and in the same memory, or over several devices in the
        result's sharding, which is that of `a` with its axes permuted. (NumPy's arrays, and others
        that are bound to no device, go where `out` is.) Where an eager call is differentiated,
        checkpointed or debugged (``disable_jit``, ``debug_nans``, ``debug_infs``), JAX may read the
        arrays again: there `out` is left alone and the result is a new array.
        Under ``jit`` donate the argument (``donate_argnums``), or XLA first copies what must be
        kept, which costs what a fresh result costs. In a program over several devices a result gets
        memory of its own; only one that the program returns, in the sharding of a donated `out`,
        takes that buffer. Inside ``shard_map`` over the whole mesh the result takes the buffer.
        Under ``vmap`` both a and `out` must have a batch for the result to take the buffer; where
        one has none, the result is a new array. So it is with ``out=a`` where the batch axis lies
        between axes that move together.
      kernel: who moves the bytes. "auto": our kernel where it wins, XLA's transpose elsewhere
        (`explain` tells which and why). "native": our kernel, whichever the plan picks; an error
        where our call cannot stand. "xla": XLA's transpose. "autotune": on a GPU, the kind and tile
        that measure fastest for this permutation, measured when a program is first compiled, on
        JAX's default device (of an eager call, the array's), and remembered; in saved programs, in
        programs of several processes, and with ``out=a``, where there is one kernel, nothing is
        measured. Or a kind from `kernels`, for measuring and teaching.
      tile: side of the tile in elements: 8, 16, 32, 64 or 128, for kinds that are compiled for it;
        with "auto" and "native" a wish that other kinds ignore. None lets the plan choose, and is
        all that ``out=a`` allows.

    Returns:
      An array of shape ``tuple(a.shape[i] for i in axes)`` and dtype ``a.dtype``. Without `out` an
      identity permutation returns `a`.

    Raises:
      TypeError: `a` is no array, `out` none or of another dtype, `axes` holds a non-integer, or
        `kernel` names a kind for a dtype narrower than a byte.
      ValueError: `axes` is no permutation of a's axes; `kernel` or `tile` is not possible, or not
        at this place (code that runs on the host of a device, operands in host memory, a mesh that
        ``shard_map`` leaves partly automatic, ``jax.export`` for several devices); `out` is
        of another shape, was deleted, is a constant of a program being traced, lies on other
        devices, in another memory or in another sharding than the result, shares the buffer of `a`
        without being `a`, or is `a` where one buffer is not enough.

    >>> transpose(jnp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    >>> buffer = jnp.zeros((3, 2))
    >>> transpose(jnp.ones((2, 3)), out=buffer).shape, buffer.is_deleted()
    ((3, 2), True)
    >>> square = jnp.arange(4).reshape(2, 2)
    >>> transpose(square, out=square).tolist(), square.is_deleted()
    ([[0, 2], [1, 3]], True)
    """
    a = _as_array(a, "a")
    return _permute(a, normalize_axes(axes, a.shape), kernel, tile, out)


def permute_dims(
    a, /, axes, *, out=None, kernel: str = "auto", tile: int | None = None
) -> jax.Array:
    """`transpose` under its array-API name; `axes` is required.

    Args:
      a: array of any shape and any JAX dtype.
      axes: permutation of ``range(a.ndim)``, negative axes allowed; None reverses the axes.
      out, kernel, tile: as for `transpose`, with its errors.

    Returns:
      An array of shape ``tuple(a.shape[i] for i in axes)`` and dtype ``a.dtype``.

    Raises:
      TypeError, ValueError: as `transpose` does.

    >>> permute_dims(jnp.zeros((2, 3, 4)), (1, 2, 0)).shape
    (3, 4, 2)
    """
    return transpose(a, axes, out=out, kernel=kernel, tile=tile)


def matrix_transpose(x, /, *, out=None, kernel: str = "auto", tile: int | None = None) -> jax.Array:
    """Exchanges the last two axes: shape ``(..., M, N)`` becomes ``(..., N, M)``.

    Args:
      x: array of at least two axes and any JAX dtype.
      out, kernel, tile: as for `transpose`, with its errors.

    Returns:
      An array of shape ``(*x.shape[:-2], x.shape[-1], x.shape[-2])`` and dtype ``x.dtype``.

    Raises:
      TypeError: `x` is no array; or as `transpose` does.
      ValueError: `x` has fewer than two axes; or as `transpose` does.

    >>> matrix_transpose(jnp.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = _as_array(x, "x")
    if x.ndim < 2:
        raise ValueError(f"x of shape {x.shape}: matrix_transpose needs at least two axes")
    return _permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2), kernel, tile, out)


def _one_axis(name: str, axis, shape: Sequence[int]) -> int:
    rank = len(shape)
    try:
        index = operator.index(axis)
    except TypeError:
        raise TypeError(f"{name}={axis!r} for shape {tuple(shape)}: allowed are integers") from None
    if not -rank <= index < rank:
        raise ValueError(
            f"{name}={index} for shape {tuple(shape)}: allowed are {-rank} to {rank - 1}"
        )
    return index % rank


def _as_axes(axes) -> tuple:
    """One axis, or any iterable of axes, as a tuple."""
    try:
        return (operator.index(axes),)
    except TypeError:
        return tuple(axes) if isinstance(axes, Iterable) else (axes,)


def swapaxes(
    a, axis1, axis2, *, out=None, kernel: str = "auto", tile: int | None = None
) -> jax.Array:
    """Exchanges two axes, as `jax.numpy.swapaxes` does.

    Args:
      a: array of any shape and any JAX dtype.
      axis1, axis2: integers from ``-a.ndim`` to ``a.ndim - 1``, which may be equal.
      out, kernel, tile: as for `transpose`, with its errors.

    Returns:
      An array whose axes `axis1` and `axis2` have changed places, of dtype ``a.dtype``.

    Raises:
      TypeError: `axis1` or `axis2` is no integer; or as `transpose` does.
      ValueError: `axis1` or `axis2` is out of range; or as `transpose` does.

    >>> swapaxes(jnp.zeros((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    a = _as_array(a, "a")
    first = _one_axis("axis1", axis1, a.shape)
    second = _one_axis("axis2", axis2, a.shape)
    permutation = list(range(a.ndim))
    permutation[first], permutation[second] = second, first
    return _permute(a, tuple(permutation), kernel, tile, out)


def moveaxis(
    a, source, destination, *, out=None, kernel: str = "auto", tile: int | None = None
) -> jax.Array:
    """Moves axes to new positions and keeps the order of the rest, as `jax.numpy.moveaxis` does.

    Args:
      a: array of any shape and any JAX dtype.
      source, destination: an integer each, or sequences of equal length; axis ``source[i]`` of `a`
        becomes axis ``destination[i]`` of the result. Negative axes are allowed.
      out, kernel, tile: as for `transpose`, with its errors.

    Returns:
      An array with the axes of `a` in their new order, of dtype ``a.dtype``.

    Raises:
      TypeError: `source` or `destination` holds a non-integer; or as `transpose` does.
      ValueError: the two differ in length, or one names an axis twice or out of range; or as
        `transpose` does.

    >>> moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = _as_array(a, "a")
    sources, targets = (
        tuple(_one_axis(name, axis, a.shape) for axis in _as_axes(axes))
        for name, axes in (("source", source), ("destination", destination))
    )
    for name, axes in (("source", sources), ("destination", targets)):
        if len(set(axes)) != len(axes):
            raise ValueError(f"{name}={axes} for shape {a.shape}: an axis is named twice")
    if len(sources) != len(targets):
        raise ValueError(
            f"source={sources} and destination={targets} for shape {a.shape}: lengths differ"
        )
    permutation = [axis for axis in range(a.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        permutation.insert(target, axis)
    return _permute(a, tuple(permutation), kernel, tile, out)
