"""Who moves a permutation: our kernel or XLA's op. The one place, for lowering and `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jax_transpose import _cpu
from jax_transpose._autotune import tuned
from jax_transpose._dtypes import dtype_name, element_bits, has_kernels
from jax_transpose._ffi import Status, can_run, has_module, platform_name

PLATFORMS = ("cpu", "cuda")
MODES = ("auto", "native", "autotune", "xla")


def kernels(platform: str) -> tuple[str, ...]:
    """Kernel kinds that `kernel=` accepts on `platform`, besides "auto", "native" and the like.

    Args:
      platform: "cpu", "cuda" (or "gpu", which means the same), or another JAX platform, which has
        none.

    Returns:
      The names, simplest kernel first; empty where there are none.

    Raises:
      ValueError: `platform` is the name of no platform.

    >>> kernels("tpu")
    ()
    """
    platform = platform_name(platform)
    return _cpu.kernels(platform) if platform in PLATFORMS else ()


def all_kernels() -> tuple[str, ...]:
    """Every value of `kernel=` that some platform accepts."""
    return (*MODES, *dict.fromkeys(name for p in PLATFORMS for name in kernels(p)))


class Place(NamedTuple):
    """Where in a program a transpose stands.

    `obstacle`: why our call cannot stand there; empty where it can. `elsewhere`: whether the
    program is for other machines, so that the devices that are here say nothing.
    """

    obstacle: str = ""
    elsewhere: bool = False

    def but(self, obstacle: str) -> Place:
        """The same place with one more reason against our call; an empty one is none."""
        return self._replace(obstacle=self.obstacle or obstacle)


ANYWHERE = Place()


class Decision(NamedTuple):
    """Who moves the bytes.

    `implementation`: "identity", "native" or "xla". `plan`: the C++ plan where there is one.
    `kernel`, `tile`: what the custom call is asked for, where it runs.
    """

    implementation: str
    reason: str
    plan: Mapping[str, Any] | None
    kernel: str = "auto"
    tile: int = 0


def decide(
    platform: str,
    shape: tuple[int, ...],
    permutation: tuple[int, ...],
    dtype: np.dtype,
    kernel: str,
    tile: int,
    place: Place = ANYWHERE,
) -> Decision:
    """Raises ValueError where `kernel` or `tile` is not possible on `platform` or at `place`."""
    bits = element_bits(dtype)
    plan, too_much = None, refusal(shape, permutation, dtype)
    if platform in PLATFORMS and has_kernels(dtype) and kernel != "xla" and not too_much:
        plan = _cpu.plan(platform, shape, permutation, bits / 8, kernel, tile)
    if _keeps_order(shape, permutation):
        return Decision("identity", "only axes of length 1 move, or none: no bytes do", plan)
    if kernel == "xla":
        return Decision("xla", "asked for by name", None)

    place = place.but(too_much)
    usable = usable_at(platform, place)
    if kernel == "auto" or (kernel == "autotune" and place.obstacle):
        if not usable:
            return Decision("xla", usable.reason, plan)
        if plan is None:
            reason = f"{dtype_name(dtype)} has elements of {bits} bits: left to XLA"
            return Decision("xla", reason, None)
        if plan["prefer_xla"]:
            return Decision("xla", plan["auto_reason"], plan)
    _require_kernels(usable, platform, shape, kernel, dtype)
    if kernel == "autotune" and tile == 0 and bits % 8 == 0:
        choice = tuned(platform, plan)
        if choice is not None:
            kernel, tile = choice.kernel, choice.tile
            plan = _cpu.plan(platform, shape, permutation, bits // 8, kernel, tile)
            reason = f"measured fastest on this device: {choice.microseconds:.1f} µs"
            return Decision("native", reason, plan, kernel, tile)
    if kernel in ("auto", "autotune"):
        kernel = "auto"
    return Decision("native", plan["reason"], plan, kernel, tile)


def decide_into(
    platform: str,
    shape: tuple[int, ...],
    permutation: tuple[int, ...],
    dtype: np.dtype,
    kernel: str,
    tile: int,
    place: Place = ANYWHERE,
) -> Decision:
    """`decide` where the result's buffer is given: `auto` takes our kernel at any size."""
    place = place.but(refusal(shape, permutation, dtype))
    if kernel == "auto" and usable_at(platform, place) and has_kernels(dtype):
        kernel = "native"
    choice = decide(platform, shape, permutation, dtype, kernel, tile, place)
    if choice.implementation == "identity":
        return Decision("xla", "only axes of length 1 move, or none: a copy", choice.plan)
    return choice


def refusal(shape: tuple[int, ...], permutation: tuple[int, ...], dtype: np.dtype) -> str:
    """Why no kernel moves so large an array; empty where some do, or the dtype has none."""
    if not has_kernels(dtype):
        return ""
    return _cpu.refusal(tuple(shape), permutation, element_bits(dtype) / 8)


def plan_in_place(
    platform: str, shape: tuple[int, ...], permutation: tuple[int, ...], dtype: np.dtype
) -> Mapping[str, Any]:
    """The C++ plan for one buffer; ValueError where the permutation needs two."""
    return _cpu.plan(platform, shape, permutation, element_bits(dtype) / 8, "native", 0, True)


def takes_one_buffer(shape: tuple[int, ...], permutation: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether the permutation can be done in place; False where an extent is not known."""
    if not all(isinstance(extent, int) for extent in shape):
        return False
    try:
        plan_in_place("cpu", shape, permutation, dtype)  # the rule is the same on every platform
    except ValueError:
        return False
    return True


def decide_in_place(
    platform: str,
    shape: tuple[int, ...],
    permutation: tuple[int, ...],
    dtype: np.dtype,
    kernel: str,
    place: Place = ANYWHERE,
) -> Decision:
    """Raises ValueError where the permutation needs two buffers or `kernel` is not possible.

    There is one kernel in place and nothing to measure: "autotune" means "auto".
    """
    if kernel == "autotune":
        kernel = "auto"
    if kernel not in ("auto", "native", "xla"):
        raise ValueError(
            f"kernel={kernel!r} does not work in place; allowed: 'auto', 'native', "
            "'autotune', 'xla'"
        )
    plan, too_much = None, refusal(shape, permutation, dtype)
    if not too_much:
        planned = platform if platform in PLATFORMS else "cpu"
        plan = plan_in_place(planned, shape, permutation, dtype)
    if _keeps_order(shape, permutation):
        return Decision("identity", "only axes of length 1 move, or none: no bytes do", plan)
    if kernel == "xla":
        return Decision("xla", "asked for by name; it needs a second buffer", None)
    usable = usable_at(platform, place.but(too_much))
    if not usable and kernel == "auto":
        return Decision("xla", f"XLA needs a second buffer, but {usable.reason}", None)
    _require_kernels(usable, platform, shape, kernel, dtype)
    return Decision("native", plan["reason"], plan)


def takes_symbolic_shapes(
    platform: str, shape: tuple, kernel: str, dtype: np.dtype, place: Place
) -> bool:
    """Whether our call lowers where extents are only known at run time; there is no plan to ask.

    False where `auto` leaves it to XLA. Raises ValueError or TypeError where `kernel` cannot run.
    """
    usable = usable_at(platform, place)
    if kernel == "auto" or (kernel == "autotune" and place.obstacle):
        return bool(usable) and has_kernels(dtype)
    _require_kernels(usable, platform, shape, kernel, dtype)
    if kernel not in MODES and kernel not in kernels(platform):
        raise ValueError(
            f"kernel={kernel!r} does not exist on platform {platform!r}; allowed: "
            f"{', '.join(map(repr, (*MODES, *kernels(platform))))}"
        )
    return True


def usable_at(platform: str, place: Place) -> Status:
    """Whether our call can run at a place in a program for `platform`."""
    if place.obstacle:
        return Status(False, place.obstacle)
    return has_module(platform) if place.elsewhere else can_run(platform)


def _require_kernels(
    usable: Status, platform: str, shape: tuple, kernel: str, dtype: np.dtype
) -> None:
    """Raises where our call cannot run: for the place ValueError, for the dtype TypeError."""
    if not usable:
        raise ValueError(
            f"kernel={kernel!r} for shape {shape} cannot run on platform {platform!r}: "
            f"{usable.reason}; allowed here: 'auto', 'xla'"
        )
    if not has_kernels(dtype):
        raise TypeError(sub_byte_message(kernel, dtype))


def _keeps_order(shape: tuple[int, ...], permutation: tuple[int, ...]) -> bool:
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)


def sub_byte_message(kernel: str, dtype: np.dtype) -> str:
    allowed = '"auto", "native", "autotune" or "xla"' if has_kernels(dtype) else '"auto" or "xla"'
    width = "narrower than a byte" if element_bits(dtype) else "empty"
    return (
        f"kernel={kernel!r} does not move dtype {dtype_name(dtype)}, whose elements are {width}; "
        f"allowed: kernel={allowed}"
    )
