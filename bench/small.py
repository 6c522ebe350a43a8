"""Small arrays: what a transpose costs inside a program, where launches and host work dominate.

Three programs a size and dtype, each for `auto`, `native` and XLA: one transpose; a chain of ten of
ten arrays (XLA cancels transposes of transposes, also across optimization barriers); a loop of 400.
So all move the same bytes as often. Every time is that of one transpose:

- `wall_us`: the wall clock around one blocking call of the program over its number of transposes,
  interleaved in a random order, median. Where the device waits for the host, it is the host's cost.
- `device_us` (on a GPU): what the device itself was busy, from CUPTI.

Where `auto` lowers to the text of `native` or of XLA, it is the same program: timed once. A program
whose `auto` and XLA are in doubt (see `retime`) is timed again, all kernels of it, over more calls.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jax_transpose

from . import operands, report, retime, timing
from .cases import Case

SIZES = {"cpu": (8, 16, 32, 64, 128, 256), "gpu": (64, 128, 256, 512, 1024, 2048)}
DTYPES = ("float32", "bfloat16", "uint8")
MODES = ("default", "graphs")
KERNELS = ("xla", "native", "auto")
PROGRAMS = {"one": 1, "chain": 10, "loop": 400}  # transposes of a program

# A loop is 400 kernels in the trace already.
_TRACED_CALLS = {"one": 60, "chain": 15, "loop": 3}
_SECONDS = 0.12  # of timed calls, per program
_MIN_SAMPLES, _MAX_SAMPLES = 15, 200
GRAPH_FLAG = "--xla_gpu_graph_min_graph_size=1"


def function(program: str, kernel: str) -> Callable:
    """One transpose, the chain or the loop; the chain takes ten arrays and returns ten."""

    def once(x):
        y = jax_transpose.transpose(x, kernel=kernel)
        return jax.lax.optimization_barrier(y)

    def chain(*xs):
        return tuple(map(once, xs))

    def loop(x):
        return jax.lax.fori_loop(0, PROGRAMS["loop"], lambda _, x: once(x), x)

    return {"one": once, "chain": chain, "loop": loop}[program]


def measure(
    dtype: str, sizes: list[int], platform: str, deadline: float = float("inf")
) -> Iterator[dict]:
    """A record a size, without those that would begin after `deadline` (of `time.monotonic`)."""
    longest = 0.0
    for n in sizes:
        start = time.monotonic()
        if start + longest > deadline:
            return
        yield _measure_size(n, dtype, platform)
        longest = max(longest, time.monotonic() - start)


def _measure_size(n: int, dtype: str, platform: str) -> dict:
    case = Case(f"{n}", (n, n), (1, 0), dtype)
    xs = [operands.make(case, seed=1 + i) for i in range(PROGRAMS["chain"])]
    arguments = {name: xs if name == "chain" else xs[:1] for name in PROGRAMS}
    compiled, twin = _compile(n, dtype, arguments)
    wall, first, why = {}, {}, {}
    for name, fs in compiled.items():
        found = interleaved(fs, arguments[name])
        auto = twin.get(name, "auto")
        if auto != "xla" and (reason := retime.reason(found[auto], found["xla"])):
            why[name], first[name] = reason, _per_transpose(name, found)
            found = interleaved(fs, arguments[name], more=retime.MORE)
        wall[name] = _per_transpose(name, found)
    device, source = _device_times(compiled, arguments) if platform == "gpu" else ({}, [])
    for name, kernel in twin.items():
        for us in (wall, first, device):
            if name in us:
                us[name]["auto"] = us[name][kernel]
    return {
        "n": n,
        "dtype": dtype,
        "mode": "default",
        "auto": jax_transpose.explain(
            (n, n), (1, 0), jnp.dtype(dtype), "cuda" if platform == "gpu" else platform
        ).implementation,
        "same_program": twin,
        "wall_us": wall,
        "retimed": why,
        "first_wall_us": first,
        "device_us": device,
        "source": source,
        "auto_over_xla": {"wall": _over_xla(wall), "device": _over_xla(device)},
        "native_minus_xla_us": {
            name: round(us["native"] - us["xla"], 3) for name, us in wall.items()
        },
    }


def _compile(
    n: int, dtype: str, arguments: dict[str, list]
) -> tuple[dict[str, dict[str, Callable]], dict[str, str]]:
    """The distinct jitted functions by program and kernel, checked, and whose `auto` repeats."""
    jitted: dict[str, dict[str, Callable]] = {name: {} for name in PROGRAMS}
    twin = {}
    for name in PROGRAMS:
        text = {}
        for kernel in KERNELS:
            f = function(name, kernel)
            f.__name__ = f.__qualname__ = f"small_{n}_{dtype}_{name}_{kernel}"
            jitted[name][kernel] = jax.jit(f)
            lowered = jitted[name][kernel].lower(*arguments[name])
            text[kernel] = lowered.as_text().replace(f.__name__, "f")
        same = [kernel for kernel in ("xla", "native") if text[kernel] == text["auto"]]
        if same:
            twin[name] = same[0]
            del jitted[name]["auto"]

    def check(name: str, kernel: str) -> None:
        outs = jitted[name][kernel](*arguments[name])
        outs = outs if name == "chain" else (outs,)
        for x, out in zip(arguments[name], outs, strict=True):
            # The loop transposes an even number of times.
            want = np.asarray(x) if name == "loop" else np.asarray(x).T
            if np.asarray(out).tobytes() != np.ascontiguousarray(want).tobytes():
                raise AssertionError(f"wrong bytes: {name} of {n}x{n} {dtype}, kernel {kernel}")

    # First alone, for XLA's autotuner measures; the rest finds its choices in XLA's cache.
    for kernel in jitted["one"]:
        check("one", kernel)
    rest = [(name, kernel) for name in ("chain", "loop") for kernel in jitted[name]]
    with ThreadPoolExecutor(min(len(rest), os.cpu_count() or 1)) as pool:
        list(pool.map(lambda job: check(*job), rest))
    return jitted, twin


def interleaved(
    compiled: dict[str, Callable], arguments: list, more: int = 1
) -> dict[str, timing.Timing]:
    """Timings of a blocking call of each (medians), taking turns in a random order."""
    times: dict[str, list[float]] = {name: [] for name in compiled}
    order, shuffle = list(compiled.items()), random.Random(0).shuffle

    def turn():
        shuffle(order)
        for name, f in order:
            start = time.perf_counter()
            jax.block_until_ready(f(*arguments))
            times[name].append(time.perf_counter() - start)

    for _ in range(3):
        turn()
    slowest = max(min(found) for found in times.values())
    samples = more * max(_MIN_SAMPLES, min(_MAX_SAMPLES, int(_SECONDS / slowest)))
    gc.collect()
    gc.disable()
    try:
        for found in times.values():
            found.clear()
        for _ in range(samples):
            turn()
    finally:
        gc.enable()
    return {
        name: timing.Timing(statistics.median(found), "wall", spread=timing.spread(found))
        for name, found in times.items()
    }


def _device_times(compiled: dict, arguments: dict[str, list]) -> tuple[dict, list[str]]:
    """The device's µs of one transpose by program and kernel, and their sources, in one trace."""
    timed = {
        (name, kernel): timing.Program(
            f.__name__,
            lambda _, f=f, xs=arguments[name]: f(*xs),
            repeat=_TRACED_CALLS[name],
        )
        for name, functions in compiled.items()
        for kernel, f in functions.items()
    }
    found = timing.measure_device(list(timed.values()), repeat=30)
    out: dict[str, dict[str, float]] = {name: {} for name in compiled}
    for (name, kernel), program in timed.items():
        out[name] |= _per_transpose(name, {kernel: found[program.key]})
    return out, sorted({timing_.source for timing_ in found.values()})


def _per_transpose(program: str, found: dict[str, timing.Timing]) -> dict[str, float]:
    return {k: round(t.seconds * 1e6 / PROGRAMS[program], 4) for k, t in found.items()}


def _over_xla(us: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: round(found["auto"] / found["xla"], 4) for name, found in us.items()}


def retimed(records: list[dict]) -> str:
    """How many programs were timed twice, by which rule, and what it changed.

    >>> row = {"wall_us": {"one": {"auto": 2.0, "xla": 2.0}}, "retimed": {"one": "close"}}
    >>> retimed([row | {"first_wall_us": {"one": {"auto": 2.06, "xla": 2.0}}}])
    'timed twice (auto and XLA within 5% of each other, or quartiles more than 10% apart): 1 of 1 \
programs; their auto/XLA by the first timing: 1.030 (geomean), by the second: 1.000'
    """
    twice = [(r, name) for r in records for name in r["retimed"]]
    total = sum(len(r["wall_us"]) for r in records)
    text = f"timed twice (auto and XLA {retime.RULE}): {len(twice)} of {total} programs"
    if not twice:
        return text
    first, second = (
        report.geomean(r[key][name]["auto"] / r[key][name]["xla"] for r, name in twice)
        for key in ("first_wall_us", "wall_us")
    )
    means = f"by the first timing: {first:.3f} (geomean), by the second: {second:.3f}"
    return f"{text}; their auto/XLA {means}"


def worst(records: list[dict], count: int = 5) -> list[tuple[str, float]]:
    """The largest ratios of `auto` to XLA over all sizes, dtypes, programs, modes and clocks."""
    found = [
        (f"{r['n']}² {r['dtype']} {program} ({r['mode']}, {clock})", ratio)
        for r in records
        for clock, ratios in r["auto_over_xla"].items()
        for program, ratio in ratios.items()
    ]
    return sorted(found, key=lambda item: -item[1])[:count]


def with_graphs(dtypes: list[str], sizes: list[int], time_limit: float | None) -> list[dict]:
    """The records of a process in which XLA puts every command into a CUDA graph.

    Raises RuntimeError with the end of its output where it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "graphs.json")
        command = [sys.executable, "-m", "bench", "small", "--modes", "default", "--json", str(out)]
        command += ["--dtype", ",".join(dtypes), "--sizes", ",".join(map(str, sizes))]
        if time_limit is not None:
            command += ["--time-limit", str(time_limit)]
        done = subprocess.run(
            command,
            cwd=Path(__file__).resolve().parent.parent,
            env={
                **os.environ,
                "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {GRAPH_FLAG}".strip(),
                # The parent holds most of the device's memory.
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            },
            capture_output=True,
            text=True,
        )
        if done.returncode or not out.is_file():
            raise RuntimeError((done.stdout + done.stderr)[-800:])
        records = json.loads(out.read_text())["records"]
    return [record | {"mode": "graphs"} for record in records]
