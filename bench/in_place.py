"""`python -m bench in_place`: transposes within one buffer, beside a copy and two buffers.

GB/s, read plus written, of square matrices: `transpose(x, out=x)` and `transpose(x, out=buffer)`
with donated arguments, and `jit(jnp.copy)`. On a GPU the device's own time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from rich.table import Table

import jax_transpose

from . import cases, operands, report, suite, timing, verify
from .timing import Program

SIDES = {"gpu": (8192, 8191), "cpu": (4096, 4095)}
DTYPES = ("uint8", "bfloat16", "float32", "complex64", "complex128")
OURS = ("in place", "out=")
COLUMNS = (*OURS, "copy")
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
    """GB/s by column of one matrix, and the columns whose bytes were wrong."""
    case = cases.Case(f"{side}² {dtype}", (side, side), (1, 0), dtype)
    x = operands.make(case, seed=1)
    fresh = jax.jit(jnp.copy)
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
    # Before the timing, of whose calls in place every other one gives the operand back.
    wrong = [c for c in OURS if verify.wrong_elements(x, programs[c].run(0), case.axes)]
    timings = timing.measure(list(programs.values()), platform, repeat)
    found = {c: timings[p.key] for c, p in programs.items()}
    return {
        "side": side,
        "dtype": dtype,
        "gbs": {c: suite.gbs(case.moved, t.seconds) for c, t in found.items()},
        "source": {c: t.source for c, t in found.items()},
        "wrong": wrong,
    }


def table(records: list[dict]) -> Table:
    """One row a matrix."""
    out = Table(title="square matrices: GB/s, read + written")
    for name in ("side", "dtype", *COLUMNS, "in place/copy"):
        out.add_column(name, justify="right")
    for record in records:
        gbs = record["gbs"]
        dtype = record["dtype"] + (" WRONG" if record["wrong"] else "")
        cells = (f"{gbs[c]:.1f}" for c in COLUMNS)
        out.add_row(str(record["side"]), dtype, *cells, f"{_over_copy(record):.3f}")
    return out


def last_line(records: list[dict]) -> str:
    """The line that a run ends with, in rich markup."""
    mean = report.geomean(map(_over_copy, records))
    slowest = min(records, key=_over_copy)
    worst = f"{slowest['side']}² {slowest['dtype']}, {_over_copy(slowest):.2f} x"
    return f"{report.byte_exact(records)} · in place {mean:.2f} x copy (worst: {worst})"


def _over_copy(record: dict) -> float:
    return record["gbs"]["in place"] / record["gbs"]["copy"]
