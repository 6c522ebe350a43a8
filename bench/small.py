"""Small arrays: what a transpose costs inside a program, where launches and host work dominate.

Three programs a size and dtype, each for `auto`, `native` and XLA: one transpose; ten in a row,
unrolled; a loop of 400. An optimization barrier after each keeps XLA from cancelling or fusing
them, so that all move the same bytes as often. Times are the wall clock around one blocking call of
the program, interleaved, median; on a GPU also the device's own time of one transpose.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import jax_transpose

from . import operands, timing
from .cases import Case

SIZES = {"cpu": (8, 16, 32, 64, 128, 256), "gpu": (64, 128, 256, 512, 1024, 2048)}
DTYPES = ("float32", "bfloat16", "uint8")
KERNELS = ("auto", "native", "xla")
CHAIN, LOOP = 10, 400
SAMPLES = {"cpu": 15, "gpu": 25}


def programs(kernel: str) -> dict[str, Callable]:
    """One transpose, a chain and a loop of square matrices, by name."""

    def once(x):
        y = jax_transpose.transpose(x, kernel=kernel)
        return jax.lax.optimization_barrier(y)

    def chain(x):
        for _ in range(CHAIN):
            x = once(x)
        return x

    def loop(x):
        return jax.lax.fori_loop(0, LOOP, lambda _, x: once(x), x)

    return {"one": once, "chain": chain, "loop": loop}


def measure(n: int, dtype: str, platform: str) -> dict:
    """Microseconds a program, by program and kernel, of one size and dtype."""
    x = operands.make(Case(f"{n}", (n, n), (1, 0), dtype), seed=1)
    # Every program transposes an odd or an even number of times; the bits say that it did.
    expected = {"one": np.asarray(x).T, "chain": np.asarray(x), "loop": np.asarray(x)}
    found: dict[str, dict[str, float]] = {}
    for name in expected:
        compiled = {k: jax.jit(programs(k)[name]) for k in KERNELS}
        for kernel, f in compiled.items():
            if np.asarray(f(x)).tobytes() != np.ascontiguousarray(expected[name]).tobytes():
                raise AssertionError(f"wrong bytes: {name} of {n}x{n} {dtype}, kernel {kernel}")
        found[name] = interleaved(compiled, x, SAMPLES[platform])
    record = {"n": n, "dtype": dtype, "us": found, "device_us": {}}
    if platform == "gpu":
        timed = [
            timing.jitted(f"small_{n}_{dtype}_{kernel}", programs(kernel)["one"], [x])
            for kernel in KERNELS
        ]
        for kernel, result in zip(
            KERNELS, timing.measure(timed, platform, 30).values(), strict=True
        ):
            record["device_us"][kernel] = round(result.seconds * 1e6, 3)
    record["auto"] = jax_transpose.explain(
        (n, n), (1, 0), jnp.dtype(dtype), "cuda" if platform == "gpu" else platform
    ).implementation
    return record


def interleaved(compiled: dict[str, Callable], x, samples: int) -> dict[str, float]:
    """Median microseconds of a blocking call of each, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in range(samples):
        for name, f in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(f(x))
            times[name].append(time.perf_counter() - start)
    return {name: round(statistics.median(t) * 1e6, 2) for name, t in times.items()}


def table(records: list[dict]) -> Table:
    """One row a size and dtype: XLA's microseconds, then `auto` and `native` as multiples of it."""
    out = Table(title="small arrays: XLA's µs a program, and auto | native over XLA")
    for name in ("size", "dtype", "auto is", "device", "", "one", "", "chain", "", "loop", ""):
        out.add_column(name, justify="left" if name in ("size", "dtype") else "right")
    for record in records:
        cells = [f"{record['n']}²", record["dtype"], record["auto"]]
        for us in (record["device_us"], *(record["us"][name] for name in ("one", "chain", "loop"))):
            cells += [f"{us['xla']:.1f}" if us else "-", ratio_text(us)]
        out.add_row(*cells)
    return out


def ratio_text(us: dict[str, float]) -> str:
    """`auto` and `native` over XLA.

    >>> ratio_text({"auto": 10.0, "native": 15.0, "xla": 10.0})
    '1.00 | 1.50'
    """
    if not us:
        return ""
    return " | ".join(f"{us[kernel] / us['xla']:.2f}" for kernel in ("auto", "native"))


def worst_auto(records: list[dict]) -> float:
    """The largest ratio of `auto` to XLA over all sizes, dtypes and programs."""
    return max(us["auto"] / us["xla"] for record in records for us in record["us"].values())
