"""What the lowering rules of our primitives share, first of all the custom call's attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from jax_transpose import _compat
from jax_transpose._decide import PLATFORMS
from jax_transpose._dtypes import element_bits


def platform_of(ctx: Any, platform: str | None) -> str:
    """The platform that is lowered for.

    `platform` is None in the rule for every platform that has no rule of its own.
    """
    if platform is not None:
        return platform
    return next((p for p in ctx.module_context.platforms if p not in PLATFORMS), "other")


def obstacle(ctx: Any) -> str:
    """Why our call cannot stand at this place of a program; empty where it can."""
    if _compat.scope(ctx) == "opaque":
        return (
            "XLA cannot be told here how to split our call over devices (a mesh that shard_map "
            "leaves partly automatic, or jax.export for several devices)"
        )
    if _compat.partial_sums(ctx) == "mixed":
        return "XLA cannot be told how to split our call over partial sums (a partly explicit mesh)"
    return _compat.off_device(ctx)


def measured_here(ctx: Any, kernel: str) -> str:
    """`kernel`, but "native" for "autotune" where no measurement may enter the program.

    A saved program is for other machines, and the processes of one job must compile one program.
    """
    if kernel != "autotune":
        return kernel
    shared = _compat.scope(ctx) == "mesh" and jax.process_count() > 1
    return "native" if shared or _compat.for_export(ctx) else kernel


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
