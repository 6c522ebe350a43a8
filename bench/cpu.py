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

import itertools
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from rich.markup import escape
from rich.table import Table

import jax_transpose
from jax_transpose import _cpu

from . import cases, hptt, operands, report, suite, timing
from .timing import Program

REPEAT = {"cpu": 11}
OURS = ("resident", "call", "out=", "in place")
COLUMNS = (
    *("memcpy", "stream", "resident", "call", "jnp", "out=", "in place"),
    *("numpy", "torch", "hptt"),
)
RATIOS = (("resident", "stream"), ("call", "jnp"), ("out=", "jnp"))


def confine(threads: int | None) -> int:
    """Keeps this process to the CPU and `threads` of its cores (None: all); returns how many.

    To be called before JAX starts, whose own pool has a thread a core.
    """
    cores = sorted(os.sched_getaffinity(0))
    threads = len(cores) if threads is None else threads
    if not 1 <= threads <= len(cores):
        raise ValueError(f"--threads {threads}: 1 to {len(cores)} (the cores of this process)")
    os.sched_setaffinity(0, cores[:threads])
    jax.config.update("jax_platforms", "cpu")
    return threads


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


def measure(
    chosen: list[cases.Case], threads: int, repeat: int, libhptt: str | None
) -> Iterator[dict]:
    """A record a case: GB/s by column, and the columns whose bytes were wrong."""
    library = hptt.Library(libhptt) if libhptt else None
    with ThreadPoolExecutor(threads) as pool:
        for case in chosen:
            yield _measure_case(case, threads, repeat, library, pool)


def _measure_case(case: cases.Case, threads: int, repeat: int, library, pool) -> dict:
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
        "gbs": {name: suite.gbs(case.moved, timings[name].seconds) for name in programs},
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


def last_line(records: list[dict]) -> str:
    """The line that a run ends with, in rich markup: geometric means and the worst cases."""
    parts = [report.byte_exact(records)]
    for a, b in RATIOS:
        ratios = {r["name"]: r["gbs"][a] / r["gbs"][b] for r in records}
        worst = min(ratios, key=ratios.get)
        mean = report.geomean(ratios.values())
        parts.append(f"{a} {mean:.2f} x {b} (worst: {escape(worst)}, {ratios[worst]:.2f} x)")
    return " · ".join(parts)
