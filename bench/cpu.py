"""`python -m bench cpu`: the CPU kernels between their ceilings and other libraries.

Columns are GB/s, read plus written, medians of interleaved calls:

  memcpy     a copy of the same bytes with plain stores, on all threads
  stream     the same with stores that bypass the cache: what memory can do
  resident   our kernel into an output whose pages exist, on threads of its own
  call       `jit(jax_transpose.transpose)` with a fresh output, as users call it
  jnp        `jit(jnp.transpose)`, likewise
  out=       `jit(transpose(x, out=buffer))` with the buffer donated
  in place   `jit(transpose(x, out=x))` donated, where one buffer is enough
  numpy, torch, hptt   into an output whose pages exist

Every output is compared with numpy's. HPTT is used where `--hptt` or HPTT_LIBRARY names its
libhptt.so; its C interface plans anew at each call, which the figure includes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import math
import mmap
import os
import statistics

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jax_transpose
from jax_transpose import _cpu

from . import cases, hptt, operands, report, timing
from .options import size
from .timing import Program

REPEAT = 11
COLUMNS = (
    *("memcpy", "stream", "resident", "call", "jnp", "out=", "in place"),
    *("numpy", "torch", "hptt"),
)


def resident(nbytes: int) -> np.ndarray:
    """`nbytes` of memory whose pages exist, huge ones where the system has them."""
    memory = mmap.mmap(-1, max(nbytes, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8, nbytes)
    array[:] = 0xA5
    return array


class Arrays:
    """A case's operand: a JAX array, and resident bytes for what works on plain memory."""

    def __init__(self, case: cases.Case):
        self.case = case
        self.x = operands.make(case, seed=1)
        host = np.ascontiguousarray(np.asarray(self.x))
        self.width = host.dtype.itemsize
        self.source, self.target = resident(host.nbytes), resident(host.nbytes)
        self.source[:] = host.reshape(-1).view(np.uint8)
        record = np.dtype(f"V{self.width}") if self.width == 16 else np.dtype(f"u{self.width}")
        self.typed = self.source.view(record).reshape(case.shape)
        shape = tuple(case.shape[axis] for axis in case.axes)
        self.typed_target = self.target.view(record).reshape(shape)
        self.want = self.typed.transpose(case.axes).tobytes()


def _copies(arrays: Arrays, threads: int, pool) -> dict[str, Program]:
    source, target, nbytes = arrays.source, arrays.target, arrays.source.nbytes
    cuts = [nbytes * i // threads for i in range(threads + 1)]
    parts = [(target[a:b], source[a:b]) for a, b in itertools.pairwise(cuts)]

    def memcpy(_):
        if threads == 1:
            np.copyto(target, source)
        else:
            list(pool.map(lambda part: np.copyto(*part), parts))
        return target

    def stream(_):
        _cpu._run(source, target, [nbytes], [0], 1, "native", threads)
        return target

    return {"memcpy": _plain("memcpy", memcpy), "stream": _plain("stream", stream)}


def _plain(key: str, call) -> Program:
    return Program(key, call, wait=lambda out: out)


def _ours(arrays: Arrays, threads: int) -> dict[str, Program]:
    case, x = arrays.case, arrays.x
    shape, axes = list(case.shape), list(case.axes)

    def run(_):
        _cpu._run(arrays.source, arrays.target, shape, axes, arrays.width, "native", threads)
        return arrays.target

    def call(x):
        return jax_transpose.transpose(x, case.axes)

    def jnp_call(x):
        return jnp.transpose(x, case.axes)

    programs = {
        "resident": _plain("resident", run),
        "call": timing.jitted("call", call, [x]),
        "jnp": timing.jitted("jnp", jnp_call, [x]),
        "out=": _with_buffer(arrays),
    }
    try:
        jax_transpose.explain(x, case.axes, platform="cpu", out="in_place")
    except ValueError:
        return programs
    return programs | {"in place": _in_place(arrays)}


def _with_buffer(arrays: Arrays) -> Program:
    case = arrays.case
    into = jax.jit(lambda x, out: jax_transpose.transpose(x, case.axes, out=out), donate_argnums=1)
    shape = tuple(case.shape[axis] for axis in case.axes)
    buffer = [jax.block_until_ready(jax.jit(lambda: jnp.zeros(shape, arrays.x.dtype))())]

    def call(_):
        buffer[0] = into(arrays.x, buffer[0])
        return buffer[0]

    return Program("out=", call)


def _in_place(arrays: Arrays) -> Program:
    case = arrays.case
    swap = jax.jit(lambda x: jax_transpose.transpose(x, case.axes, out=x), donate_argnums=0)
    holder = [jax.block_until_ready(jax.jit(jnp.copy)(arrays.x))]

    def call(_):
        holder[0] = swap(holder[0])
        return holder[0]

    return Program("in place", call)


def _peers(arrays: Arrays, threads: int, library) -> dict[str, Program]:
    axes = arrays.case.axes

    def numpy_copy(_):
        np.copyto(arrays.typed_target, arrays.typed.transpose(axes))
        return arrays.target

    programs = {"numpy": _plain("numpy", numpy_copy)}
    if (torch_copy := _torch(arrays, threads)) is not None:
        programs["torch"] = _plain("torch", torch_copy)
    if library is not None and arrays.width in hptt.WIDTHS:
        programs["hptt"] = _plain("hptt", library.call(arrays, threads))
    return programs


def _torch(arrays: Arrays, threads: int):
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    kind = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.complex128}[arrays.width]
    source = torch.from_numpy(arrays.typed.view(kind)).permute(arrays.case.axes)
    target = torch.from_numpy(arrays.typed_target.view(kind))

    def copy(_):
        target.copy_(source)
        return arrays.target

    return copy


def wrong(name: str, program: Program, arrays: Arrays) -> bool:
    """Whether a program's output, computed once more, has other bytes than it should have."""
    want = arrays.source.tobytes() if name in ("memcpy", "stream") else arrays.want
    if name == "in place":
        # It exchanges what the last call left, which is the operand or its transpose.
        before = np.asarray(program.last).tobytes()
        after = np.asarray(program.wait(program.run(0))).tobytes()
        return {before, after} != {want, arrays.source.tobytes()}
    arrays.target[:] = 0
    return np.asarray(program.wait(program.run(0))).tobytes() != want


def measure(case: cases.Case, threads: int, repeat: int, library, pool) -> dict:
    """GB/s by column of one case, and the columns whose bytes were wrong."""
    arrays = Arrays(case)
    programs = {
        **_copies(arrays, threads, pool),
        **_ours(arrays, threads),
        **_peers(arrays, threads, library),
    }
    timings = timing.measure_cpu(list(programs.values()), repeat)
    return {
        "name": case.name,
        "shape": list(case.shape),
        "axes": list(case.axes),
        "dtype": case.dtype,
        "bytes": case.nbytes,
        "gbs": {name: round(case.moved / timings[name].seconds / 1e9, 2) for name in programs},
        # HPTT moves numbers of its own: see bench.hptt.
        "wrong": [n for n, p in programs.items() if n != "hptt" and wrong(n, p, arrays)],
    }


def table(records: list[dict], threads: int) -> Table:
    """One row a case."""
    out = Table(title=f"CPU, {threads} thread(s): GB/s, read + written")
    present = [c for c in COLUMNS if any(c in record["gbs"] for record in records)]
    for name in ("case", "MiB", *present, "resident/stream", "call/jnp", "out=/jnp"):
        out.add_column(name, justify="left" if name == "case" else "right")
    for record in records:
        gbs = record["gbs"]
        cells = [f"{gbs[name]:.1f}" if name in gbs else "-" for name in present]
        ratios = (gbs[a] / gbs[b] for a, b in RATIOS)
        out.add_row(
            record["name"] + (" WRONG" if record["wrong"] else ""),
            f"{record['bytes'] / 2**20:.1f}",
            *cells,
            *(f"{ratio:.2f}" for ratio in ratios),
        )
    return out


RATIOS = (("resident", "stream"), ("call", "jnp"), ("out=", "jnp"))


def summary(records: list[dict]) -> str:
    """The last line: geometric means and the worst cases."""
    parts = []
    for a, b in RATIOS:
        ratios = {r["name"]: r["gbs"][a] / r["gbs"][b] for r in records}
        worst = min(ratios, key=ratios.get)
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
        parts.append(f"{a} {mean:.2f} x {b} (worst: {worst}, {ratios[worst]:.2f} x)")
    bad = [r["name"] for r in records if r["wrong"]]
    right = f"{len(records) - len(bad)} of {len(records)} cases byte-exact"
    return " · ".join([right, *parts])


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where a byte was wrong."""
    command = argparse.ArgumentParser(
        prog="python -m bench cpu", description=__doc__.split("\n")[0]
    )
    command.add_argument("--suite", default="cpu", help="cpu (default), ttc57, or a .json file")
    command.add_argument("--dtype", help="run every case in this dtype")
    command.add_argument("--max-bytes", type=size, help="halve dimensions until a case fits")
    command.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores"
    )
    command.add_argument("--repeat", type=int, default=REPEAT, help="samples of each program")
    command.add_argument("--hptt", default=os.environ.get("HPTT_LIBRARY"), help="libhptt.so")
    command.add_argument("--json", metavar="OUT", help="write the results")
    options = command.parse_args(argv)
    # JAX's own pool has a thread a core; fewer would need another process affinity.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    library = hptt.Library(options.hptt) if options.hptt else None
    chosen = cases.select(options.suite, "cpu", dtype=options.dtype, max_bytes=options.max_bytes)
    console = Console(width=None if Console().is_terminal else 190)
    console.print(f"{report.cpu_name()} · {options.threads} thread(s) · kernels: {_cpu.isa()}")
    timing.settle("cpu")
    records = []
    with concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
        for case in chosen:
            if cases.element_bits(case.dtype) < 8:
                continue  # peers and plain memory have no packed elements
            records.append(measure(case, options.threads, options.repeat, library, pool))
            if records[-1]["wrong"]:
                console.print(f"WRONG BYTES: {case.name}: {', '.join(records[-1]['wrong'])}")
    console.print(table(records, options.threads))
    if options.json:
        document = {
            "schema": report.SCHEMA,
            "kind": "cpu",
            "environment": report.environment("cpu", {}),
            "threads": options.threads,
            "isa": _cpu.isa(),
            "records": records,
        }
        report.write_json(options.json, document)
    console.print(summary(records), soft_wrap=True)
    return 1 if any(record["wrong"] for record in records) else 0
