"""What the lowering rules of our primitives share, first of all the custom call's attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from jax_transpose import _compat
from jax_transpose._decide import PLATFORMS, Place
from jax_transpose._dtypes import element_bits, stored


def platform_of(ctx: Any, platform: str | None) -> str:
    """The platform that is lowered for.

    `platform` is None in the rule for every platform that has no rule of its own.
    """
    if platform is not None:
        return platform
    return next((p for p in ctx.module_context.platforms if p not in PLATFORMS), "other")


def place_of(ctx: Any) -> Place:
    """Where the code being lowered stands, as far as our call is concerned."""
    elsewhere = _compat.for_export(ctx)
    if _compat.scope(ctx) == "opaque":
        return Place(
            "XLA cannot be told here how to split our call over devices (a mesh that shard_map "
            "leaves partly automatic, or jax.export for several devices)",
            elsewhere,
        )
    on_cpu = tuple(ctx.module_context.platforms) == ("cpu",)
    if not on_cpu and _compat.runs_on_host(ctx):
        return Place("compute_on('device_host') runs it on the host of the device", elsewhere)
    return Place(array_obstacle("cpu" if on_cpu else "", ctx.avals_in[0]), elsewhere)


def array_obstacle(platform: str, array: Any) -> str:
    """Why our call cannot move an array, abstract or not, by where it lies; empty where it can."""
    if _compat.partial_sums(array) == "mixed":
        return "XLA cannot be told how to split our call over partial sums (a partly explicit mesh)"
    # A CPU has one memory, whatever it is called.
    in_host = platform != "cpu" and _compat.in_host_memory(array)
    return "the operand lies in host memory" if in_host else ""


def measured_here(ctx: Any, kernel: str, place: Place) -> str:
    """`kernel`, but "native" for "autotune" where no measurement may enter the program.

    A saved program is for other machines, and the processes of one job must compile one program.
    """
    if kernel != "autotune" or place.obstacle:
        return kernel
    shared = _compat.device_count(ctx) > 1 and jax.process_count() > 1
    return "native" if shared or place.elsewhere else kernel


def on_stored(lower: Callable) -> Callable:
    """`lower`, a rule for arrays of plain dtypes, as one for those of extended dtypes too."""

    def rule(ctx, *operands, permutation, **params):
        aval = ctx.avals_in[0]
        _, permutation, _ = stored(aval.shape, permutation, aval.dtype)
        return lower(_compat.as_stored(ctx), *operands, permutation=permutation, **params)

    return rule


def lower_to(fun: Callable, ctx: Any, *operands: Any) -> Any:
    """The program of ``fun(*operands)``, a function of arrays with one result."""
    return mlir.lower_fun(fun, multiple_results=False)(ctx, *operands)


def ffi_call(
    ctx: Any,
    target: str,
    *operands: Any,
    aliases: Mapping[int, int] | None = None,
    permutation: tuple[int, ...],
    kernel: str,
    tile: int,
) -> Any:
    """The custom call that permutes the first operand; `aliases`: results by operand."""
    call = jax.ffi.ffi_lowering(target, operand_output_aliases=aliases)
    return call(
        ctx,
        *operands,
        permutation=np.array(permutation, np.int64),
        element_bits=np.int64(element_bits(ctx.avals_in[0].dtype)),
        kernel=kernel,
        tile=np.int64(tile),
    )
