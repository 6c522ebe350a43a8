"""`python -m bench in_place`: transposes within one buffer, beside a copy and two buffers.

GB/s, read plus written, of square matrices: `transpose(x, out=x)` and `transpose(x, out=buffer)`
with donated arguments, and `jit(jnp.copy)`. On a GPU the device's own time.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jax_transpose

from . import cases, operands, report, timing
from .timing import Program

SIDES = {"gpu": (8192, 8191), "cpu": (4096, 4095)}
DTYPES = ("uint8", "bfloat16", "float32", "complex64", "complex128")
COLUMNS = ("in place", "out=", "copy")
REPEAT = {"cpu": 11, "gpu": 30}


def _donated(key: str, step, state: list) -> Program:
    """Calls `step(*state)` again and again; the result takes the last array's place."""

    def named(*arrays):
        return step(*arrays)

    named.__name__ = named.__qualname__ = key
    compiled = jax.jit(named, donate_argnums=len(state) - 1)

    def call(_):
        state[-1] = compiled(*state)
        return state[-1]

    return Program(key, call)


def measure(side: int, dtype: str, platform: str, repeat: int) -> dict:
    """GB/s by column; raises AssertionError where a byte is wrong."""
    case = cases.Case(f"{side}² {dtype}", (side, side), (1, 0), dtype)
    x = operands.make(case, seed=1)
    host = np.asarray(x)
    fresh = jax.jit(jnp.copy)
    swap = jax.jit(lambda x: jax_transpose.transpose(x, out=x), donate_argnums=0)
    if np.asarray(swap(fresh(x))).tobytes() != np.ascontiguousarray(host.T).tobytes():
        raise AssertionError(f"wrong bytes: {case.name} in place")
    into = jax.jit(lambda x, out: jax_transpose.transpose(x, out=out), donate_argnums=1)
    if np.asarray(into(x, fresh(x))).tobytes() != np.ascontiguousarray(host.T).tobytes():
        raise AssertionError(f"wrong bytes: {case.name} into a buffer")
    name = f"{side}_{dtype}"
    programs = {
        "in place": _donated(
            f"in_place_{name}", lambda x: jax_transpose.transpose(x, out=x), [fresh(x)]
        ),
        "out=": _donated(
            f"into_{name}", lambda x, out: jax_transpose.transpose(x, out=out), [x, fresh(x)]
        ),
        "copy": timing.jitted(f"copy_{name}", jnp.copy, [x]),
    }
    timings = timing.measure(list(programs.values()), platform, repeat)
    found = {c: timings[p.key] for c, p in programs.items()}
    return {
        "side": side,
        "dtype": dtype,
        "gbs": {c: round(case.moved / t.seconds / 1e9, 1) for c, t in found.items()},
        "source": {c: t.source for c, t in found.items()},
    }


def main(argv: list[str] | None = None) -> int:
    """The exit status."""
    title = __doc__.split("\n")[0]
    command = argparse.ArgumentParser(prog="python -m bench in_place", description=title)
    command.add_argument("--side", type=int, action="append", help="default: 8192 and 8191")
    command.add_argument("--dtype", action="append", help="default: one of each width")
    command.add_argument("--json", metavar="OUT", help="write the results")
    options = command.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    timing.settle(platform)
    dtypes = [cases.dtype_name(d) for d in options.dtype or DTYPES]
    records = [
        measure(side, dtype, platform, REPEAT[platform])
        for side in options.side or SIDES[platform]
        for dtype in dtypes
    ]
    table = Table(title="square matrices: GB/s, read + written")
    for name in ("side", "dtype", *COLUMNS, "in place/copy"):
        table.add_column(name, justify="right")
    for record in records:
        gbs = record["gbs"]
        cells = [str(record["side"]), record["dtype"], *(f"{gbs[c]:.1f}" for c in COLUMNS)]
        table.add_row(*cells, f"{gbs['in place'] / gbs['copy']:.3f}")
    Console(width=120).print(table)
    if options.json:
        document = {
            "schema": report.SCHEMA,
            "kind": "in_place",
            "environment": report.environment(platform, {}),
            "records": records,
        }
        report.write_json(options.json, document)
    return 0
