"""The classic table: from the naive kernel to copy speed, with the textbook's claims checked.

`run` measures; `claims` and `auto_check` are plain functions over its records.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jax_transpose

from . import operands, peers, retime, suite, timing, verify
from .cases import Case, dtype_name, element_bits

SIZES = {"cpu": (1024, 2048), "gpu": (4096, 8192)}
SWEEP_SIZE = {"cpu": 1024, "gpu": 4096}
TILES = (8, 16, 32, 64, 128)
CROSSOVER = {"cpu": (128, 256, 512, 1024, 2048), "gpu": (128, 256, 512, 1024, 2048, 4096)}
NOISE = 0.05
_ORDER = ("naive", "tiled_unpadded", "tiled", "vectorized", "async_copy", "blocked")


def rungs(platform: str) -> list[str]:
    """The kernel kinds in the order of the story, kinds that it does not know at the end."""
    kinds = jax_transpose.kernels(suite.plan_platform(platform))
    return sorted(kinds, key=lambda k: _ORDER.index(k) if k in _ORDER else len(_ORDER))


def square(n: int, dtype: str) -> Case:
    """The nxn transpose."""
    return Case(f"{n}x{n}", (n, n), (1, 0), dtype)


class Ladder:
    """Runs the parts of the ladder on one device; `step(text)` is told what comes next."""

    def __init__(self, platform: str, repeat: int, step: Callable[[str], None]):
        self.platform = platform
        self.repeat = repeat
        self.step = step
        self.wrong: list[str] = []
        self._serial = 0

    def run(self, dtypes: list[str]) -> dict:
        """Everything: `tables` per dtype and size, `sweep`, `crossover`."""
        dtypes = [dtype_name(d) for d in dtypes]
        tables = [self.table(n, dtype) for dtype in dtypes for n in SIZES[self.platform]]
        sweep = self.sweep(SWEEP_SIZE[self.platform], dtypes[0])
        crossover = self.crossover(dtypes[0])
        return {"tables": tables, "sweep": sweep, "crossover": crossover}

    def table(self, n: int, dtype: str) -> dict:
        """One column of the classic table: every rung, `auto`, `jnp.transpose` and the copy."""
        self.step(f"{n}² {dtype}")
        case = square(n, dtype)
        xs = self._inputs(case)
        rows = {}
        for kind in rungs(self.platform):
            rows[kind] = self._ours(kind, xs, kernel=kind)
        rows["auto"] = self._ours("auto", xs, kernel="auto")
        rows["jnp.transpose"] = timing.jitted(self._key("jnp"), lambda x: jnp.transpose(x), xs)
        rows["copy"], _ = peers.copy_program(self._key("copy"), xs, self.platform)
        table = {"size": n, "dtype": dtype, "bytes": case.nbytes}
        table["rows"] = self._measure(case, xs, rows)
        # `auto` and every rung that it cannot be told from, whichever is ahead.
        why = _doubts(table["rows"])
        again = {name: rows[name] for name in why}
        second = self._measure(case, xs, again, more=retime.MORE) if again else {}
        for name, row in second.items():
            first = table["rows"][name]["us"]
            table["rows"][name] = {**row, "retimed": why[name], "first_us": first}
        return table

    def sweep(self, n: int, dtype: str) -> dict:
        """Every kind that takes a tile, at every tile it takes."""
        case = square(n, dtype)
        rows, xs = {}, None
        for kind in rungs(self.platform):
            for tile in TILES:
                if self._takes_tile(case, kind, tile):
                    xs = xs or self._inputs(case)
                    rows[f"{kind}/{tile}"] = self._ours(kind, xs, kernel=kind, tile=tile)
        self.step(f"tile sweep, {n}² {dtype}: {len(rows)} variants")
        results = self._measure(case, xs, rows) if rows else {}
        return {"size": n, "dtype": dtype, "rows": results}

    def crossover(self, dtype: str) -> dict:
        """Wall-clock µs of one blocking call by size: the CPU's, the GPU's, and with transfers.

        `gpu` has the array on the GPU already; `gpu_with_transfer` starts from and ends in host
        memory.
        """
        cpu = jax.local_devices(backend="cpu")[0]
        rows = []
        for n in CROSSOVER[self.platform]:
            self.step(f"crossover, {n}²")
            host = operands.host_bits(square(n, dtype), seed=1)
            move = jax.jit(lambda x: jax_transpose.transpose(x))
            row = {"size": n}
            x = jax.device_put(host, cpu)
            row["cpu"] = _wall_us(lambda x=x, move=move: move(x).block_until_ready())
            if self.platform != "cpu":
                y = jax.device_put(host)
                row["gpu"] = _wall_us(lambda y=y, move=move: move(y).block_until_ready())
                row["gpu_with_transfer"] = _wall_us(
                    lambda host=host, move=move: np.asarray(move(jax.device_put(host)))
                )
            rows.append(row)
        return {"dtype": dtype, "rows": rows}

    def _takes_tile(self, case: Case, kind: str, tile: int) -> bool:
        """Whether the kind accepts the tile and really uses it."""
        try:
            plan = jax_transpose.explain(
                case.shape,
                case.axes,
                jnp.dtype(case.dtype),
                suite.plan_platform(self.platform),
                kernel=kind,
                tile=tile,
            )
        except ValueError:
            return False
        return plan.tile == tile

    def _key(self, label: str) -> str:
        self._serial += 1
        return f"l{self._serial:04d}_{label}"

    def _inputs(self, case: Case) -> list:
        count = timing.rotation(case.nbytes, self.platform)
        return [operands.make(case, seed + 1) for seed in range(count)]

    def _ours(self, label: str, xs: list, **choice) -> timing.Program | str:
        """A program, or why this kind refuses the array (a dtype that it does not move)."""
        program = timing.jitted(
            self._key(label), lambda x: jax_transpose.transpose(x, (1, 0), **choice), xs
        )
        try:
            program.wait(program.run(0))
        except (TypeError, ValueError) as error:
            if choice["kernel"] == "auto":
                raise
            return str(error).splitlines()[0]
        return program

    def _measure(self, case: Case, xs: list, rows: dict, more: int = 1) -> dict:
        """Results by row, timed over `more` times the usual number of calls, bytes checked."""
        programs = {name: row for name, row in rows.items() if not isinstance(row, str)}
        timings = timing.measure(list(programs.values()), self.platform, self.repeat * more)
        results = {}
        for name, row in rows.items():
            if isinstance(row, str):
                results[name] = {"skipped": row}
                continue
            found = timings[row.key]
            results[name] = {
                "us": round(found.seconds * 1e6, 3),
                "gbs": suite.gbs(case.moved, found.seconds),
                "source": found.source,
                "spread": found.spread,
            }
            if found.events:
                results[name]["ran"] = [event[:60] for event in found.events]
            if name not in ("copy", "jnp.transpose"):
                source = xs[row.last_index % len(xs)]
                wrong = verify.wrong_elements(source, row.last, case.axes)
                results[name]["wrong_elements"] = wrong
                if wrong:
                    self.wrong.append(f"{name} {case.name} {case.dtype}: {wrong} elements")
        return results


def _doubts(rows: dict) -> dict[str, str]:
    """Why rows are timed once more: the rungs that are in doubt beside `auto`, and `auto`.

    >>> rows = {"naive": 9.0, "tiled": 2.08, "packed": 2.0, "auto": 2.02, "copy": 2.0}
    >>> row = {"source": "wall", "spread": 0.0}
    >>> _doubts({name: {**row, "us": us, "gbs": 1 / us} for name, us in rows.items()})
    {'tiled': 'close', 'packed': 'close', 'auto': 'close'}
    """

    def found(name: str) -> timing.Timing:
        row = rows[name]
        return timing.Timing(row["us"], row["source"], spread=row["spread"])

    why = {name: retime.reason(found("auto"), found(name)) for name in ours(rows)}
    why = {name: reason for name, reason in why.items() if reason}
    return why | ({"auto": next(iter(why.values()))} if why else {})


def _wall_us(call: Callable, samples: int = 9) -> float:
    """The median wall time of a blocking call in µs, warmed up."""
    call()
    call()
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return round(float(np.median(times)) * 1e6, 2)


# --- what the numbers say -----------------------------------------------------------------------


def speed(rows: dict, name: str) -> float | None:
    """GB/s of a row, None where it was not measured."""
    return rows.get(name, {}).get("gbs")


def ours(rows: dict) -> dict[str, float]:
    """GB/s of our kernel kinds in a table."""
    return {
        name: row["gbs"]
        for name, row in rows.items()
        if "gbs" in row and name not in ("auto", "jnp.transpose", "copy")
    }


def retimed(tables: list[dict]) -> str:
    """How many rows were timed twice, and by which rule.

    >>> retimed([{"rows": {"tiled": {"retimed": "close"}, "auto": {"retimed": "close"}}}])
    'timed twice (auto and rungs within 5% of each other, or quartiles more than 10% apart): 2 rows'
    """
    count = sum("retimed" in row for table in tables for row in table["rows"].values())
    return f"timed twice (auto and rungs {retime.RULE}): {count} rows"


def auto_check(table: dict) -> dict:
    """Whether `auto` is at most 5 % slower than the best rung of its table.

    >>> rows = {"naive": {"gbs": 1.0}, "tiled": {"gbs": 2.0}, "auto": {"gbs": 1.8}}
    >>> auto_check({"size": 9, "dtype": "uint8", "rows": rows})["holds"]
    False
    """
    kinds = ours(table["rows"])
    best = max(kinds, key=kinds.get)
    ratio = table["rows"]["auto"]["gbs"] / kinds[best]
    return {
        "size": table["size"],
        "dtype": table["dtype"],
        "best": best,
        "ratio": round(ratio, 3),
        "holds": ratio >= 1 - NOISE,
    }


def claims(result: dict) -> list[dict]:
    """The textbook's claims: `claim`, `measured` and `holds` (None where nothing was measured)."""
    return [
        _claim_speedup(result),
        _claim_conflicts(result),
        _claim_tile(result),
        _claim_crossover(result),
    ]


def _claim(text: str, measured: str, holds: bool | None) -> dict:
    return {"claim": text, "measured": measured, "holds": holds}


def _claim_speedup(result: dict) -> dict:
    text = "optimized is ≈4x naive at 4096²"
    for table in result["tables"]:
        kinds = ours(table["rows"])
        if table["size"] == 4096 and "naive" in kinds and len(kinds) > 1:
            best = max(kinds, key=kinds.get)
            ratio = kinds[best] / kinds["naive"]
            return _claim(text, f"{ratio:.2f}x ({best}, {table['dtype']})", 3 <= ratio <= 5)
    for table in result["tables"]:
        kinds = ours(table["rows"])
        if "naive" in kinds and len(kinds) > 1:
            best = max(kinds, key=kinds.get)
            size = table["size"]
            measured = f"{kinds[best] / kinds['naive']:.2f}x ({best}) at {size}²; 4096² not run"
            return _claim(text, measured, None)
    return _claim(text, "not measured", None)


def _claim_conflicts(result: dict) -> dict:
    text = "bank conflicts cost 20-30 %"
    seen, holds = [], []
    for table in result["tables"]:
        with_pad, without = (speed(table["rows"], k) for k in ("tiled", "tiled_unpadded"))
        if with_pad and without:
            cost = 1 - without / with_pad
            seen.append(f"{cost:.0%} at {table['size']}² {table['dtype']}")
            if table["dtype"] == result["tables"][0]["dtype"]:  # the others are shown, not judged
                holds.append(0.2 <= cost <= 0.3)
    if not seen:
        return _claim(text, "not measured (no shared memory on this device)", None)
    return _claim(text, ", ".join(seen), all(holds) if holds else None)


def _claim_tile(result: dict) -> dict:
    text = "a 32x32 tile is best"
    sweep = result["sweep"]["rows"]
    best_tiles = {}
    for name, row in sweep.items():
        kind, tile = name.split("/")
        if "gbs" in row and row["gbs"] > best_tiles.get(kind, (0, 0))[0]:
            best_tiles[kind] = (row["gbs"], int(tile))
    if not best_tiles:
        return _claim(text, "not measured (no kernel takes a tile)", None)
    measured = ", ".join(f"{kind}: {tile}" for kind, (_, tile) in best_tiles.items())
    # The claim is about the classic padded kernel; within 2 % of the best counts as best.
    at_32, holds = speed(sweep, "tiled/32"), None
    if "tiled" in best_tiles and at_32:
        holds = at_32 >= 0.98 * best_tiles["tiled"][0]
    return _claim(text, f"best tile by kernel: {measured}", holds)


def _claim_crossover(result: dict) -> dict:
    text = "the GPU pays off above 1024²"
    rows = [row for row in result["crossover"]["rows"] if "gpu" in row]
    if not rows:
        return _claim(text, "not measured (no GPU here)", None)

    def first(column):
        """The smallest size from which the GPU is faster at every larger size too."""
        start = None
        for row in reversed(rows):
            if row[column] >= row["cpu"]:
                break
            start = row["size"]
        return start

    resident, transfer = first("gpu"), first("gpu_with_transfer")
    measured = (
        f"call on resident data: from {_square(resident)}; with both transfers: "
        f"from {_square(transfer)}"
    )
    return _claim(text, measured, resident in (1024, 2048))


def _square(n: int | None) -> str:
    return "no size tried" if n is None else f"{n}²"


def describe(dtypes: list[str]) -> str:
    """One line for the title.

    >>> describe(["float32", "int4"])
    'float32 (4 bytes), int4 (0.5 bytes)'
    """
    return ", ".join(f"{d} ({element_bits(d) / 8:g} bytes)" for d in dtypes)
