"""How long one call takes.

CPU: the wall clock around one blocking call, programs interleaved in a random order, median.
GPU: the device's own time of the call's kernels and memcpys, as CUPTI reports it through the JAX
profiler, median, for other libraries' kernels too; where that is missing, the other library's
events around each call, or the wall clock around a batch of calls that run back to back. Every
result says which (`cupti`, `events` or `wall`).

A GPU keeps recently used bytes in its L2 cache (60 MB on an H200). Callers rotate over enough
inputs (`rotation`), and the last outputs are kept alive so that outputs rotate as well.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from . import trace

FOOTPRINT = 256 << 20  # bytes that one rotation over inputs and outputs touches on a GPU
MAX_ROTATION = 32
ROUNDS = 3
_MIN_SAMPLE_S = 1e-3


@dataclasses.dataclass(frozen=True)
class Clock:
    """A library's events: `mark()` records one on its stream, `seconds(a, b)` lies between two."""

    mark: Callable[[], Any]
    seconds: Callable[[Any, Any], float]


@dataclasses.dataclass
class Program:
    """Something to time. `call(i)` starts work on input i and returns the output.

    `key` must be unique within one measurement, and for jitted functions be the function's name.
    After timing, `last` is an output and `last_index` the i that gave it. On a GPU `repeat`
    overrides the number of timed calls, and `clock` is what times where CUPTI saw nothing.
    """

    key: str
    call: Callable[[int], Any]
    wait: Callable[[Any], Any] = jax.block_until_ready
    rotation: int = 1
    clock: Clock | None = None
    repeat: int | None = None
    last: Any = None
    last_index: int = 0

    def run(self, i: int) -> Any:
        self.last_index = i
        self.last = self.call(i)
        return self.last


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds per call, where the number comes from, and on GPUs the names of what ran.

    Of a program that spans several GPUs `seconds` are the slowest one's, `by_device` everyone's.
    `spread` is the interquartile range of the samples over their median, 0 where it is unknown.
    """

    seconds: float
    source: str
    events: tuple[str, ...] = ()
    by_device: tuple[float, ...] = ()
    spread: float = 0.0


def spread(samples: Sequence[float]) -> float:
    """The interquartile range over the median; 0 of fewer than two samples.

    >>> spread([2.0, 4.0, 4.0, 4.0, 6.0]), spread([1.0, 2.0, 3.0, 4.0, 5.0]), spread([7.0])
    (0.0, 0.6667, 0.0)
    """
    if len(samples) < 2 or not (median := statistics.median(samples)):
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return round((high - low) / median, 4)


def jitted(key: str, fn: Callable, inputs: list) -> Program:
    """A `Program` of `jax.jit(fn)` under the name `key`, rotating over `inputs`."""

    def named(x):
        return fn(x)

    named.__name__ = named.__qualname__ = key
    compiled = jax.jit(named)
    return Program(key, lambda i: compiled(inputs[i % len(inputs)]), rotation=len(inputs))


def rotation(nbytes: int, platform: str) -> int:
    """How many inputs of `nbytes` to rotate over: enough to leave the cache, at most 32.

    On a CPU one: the timed call allocates its output anew, and pages, not caches, bound it.
    """
    if platform == "cpu" or nbytes == 0:
        return 1
    return max(1, min(MAX_ROTATION, -(-FOOTPRINT // (2 * nbytes))))


def settle(platform: str) -> None:
    """Brings the device into the state that later measurements find it in.

    CPU: malloc keeps large blocks after it has freed one (glibc up to 32 MiB). GPU: clocks rise.
    """
    copy = jax.jit(jnp.copy)
    x = jnp.ones(30 << 20 if platform == "cpu" else 1 << 30, jnp.uint8)
    for _ in range(5 if platform == "cpu" else 200):
        jax.block_until_ready(copy(x))


def measure(programs: list[Program], platform: str, repeat: int) -> dict[str, Timing]:
    """Timings by key: `repeat` calls of each on a GPU, `repeat` samples of each on a CPU."""
    if platform == "cpu":
        return measure_cpu(programs, repeat)
    return measure_device(programs, repeat)


def measure_cpu(programs: list[Program], repeat: int) -> dict[str, Timing]:
    """Interleaved wall-clock medians; short calls are repeated until a sample lasts ≥ 1 ms."""
    inner = {}
    for program in programs:
        program.wait(program.run(0))  # compiles
        start = time.perf_counter()
        program.wait(program.run(0))
        once = time.perf_counter() - start
        inner[program.key] = max(1, min(50, round(_MIN_SAMPLE_S / max(once, 1e-7))))
        program.last = None
    samples = collections.defaultdict(list)
    order, shuffle = list(programs), random.Random(0).shuffle
    for turn in range(repeat):
        # What ran before decides which bytes are cached; a fixed order would favor whoever
        # follows a program that reads the same input.
        shuffle(order)
        for program in order:
            elapsed = 0.0
            for i in range(inner[program.key]):
                # Every call starts with no output alive: whether malloc hands out resident pages
                # or new ones depends on what is held, and new ones cost as much as the transpose.
                program.last = None
                start = time.perf_counter()
                program.wait(program.run(i))
                elapsed += time.perf_counter() - start
            samples[program.key].append(elapsed / inner[program.key])
            if turn < repeat - 1:
                program.last = None
    return {
        key: Timing(statistics.median(times), "wall", spread=spread(times))
        for key, times in samples.items()
    }


def measure_device(programs: list[Program], repeat: int) -> dict[str, Timing]:
    """All programs in one trace, in rounds, so that clock changes hit all of them alike."""
    for program in programs:
        for i in range(2):
            program.wait(program.run(i))
    per_round = {p.key: max(1, -(-(p.repeat or repeat) // ROUNDS)) for p in programs}
    options = _profiler_options()
    walls: dict[str, list[float]] = collections.defaultdict(list)
    profile = None
    with tempfile.TemporaryDirectory() as folder:
        if options is not None:
            jax.profiler.start_trace(folder, profiler_options=options)
        try:
            for turn in range(ROUNDS):
                for program in programs:
                    calls = per_round[program.key]
                    walls[program.key] += _batch(program, turn * calls, calls)
        finally:
            if options is not None:
                jax.profiler.stop_trace()
        if options is not None:
            files = sorted(Path(folder).rglob("*.xplane.pb"))
            if files:
                profile = jax.profiler.ProfileData.from_file(str(files[-1]))
        found = {}
        if profile is not None:
            found = trace.attribute(trace.device_events(profile), trace.windows(profile))
    results = {}
    for program in programs:
        events = found.get(program.key, [])
        calls = trace.calls_by_device(events, per_round[program.key] * ROUNDS)
        if calls:
            names = tuple(sorted({event.name for event in events}))
            seconds = tuple(map(statistics.median, calls))
            results[program.key] = Timing(
                max(seconds), "cupti", names, seconds, max(map(spread, calls))
            )
        else:
            source, samples = "events" if program.clock else "wall", walls[program.key]
            results[program.key] = Timing(
                statistics.median(samples), source, spread=spread(samples)
            )
    return results


def _batch(program: Program, first: int, calls: int) -> list[float]:
    """Runs `calls` asynchronous calls inside an annotation of their own.

    The seconds of each by the program's clock, or one mean by the wall clock.
    """
    keep = collections.deque(maxlen=program.rotation)
    mark = program.clock.mark if program.clock else lambda: None
    marks = []
    time.sleep(trace.GAP_S)
    with jax.profiler.TraceAnnotation(trace.MARK + program.key):
        start = time.perf_counter()
        for i in range(first, first + calls):
            begin = mark()
            keep.append(program.run(i))
            marks.append((begin, mark()))
        program.wait(program.last)
        elapsed = time.perf_counter() - start
    time.sleep(trace.GAP_S)
    if program.clock:
        return [program.clock.seconds(begin, end) for begin, end in marks]
    return [elapsed / calls]


def _profiler_options():
    """Options for a light trace, or None where this JAX cannot read traces back."""
    # Older releases have the names, set to None where the reader was not built in.
    needed = (getattr(jax.profiler, name, None) for name in ("ProfileData", "ProfileOptions"))
    if not all(needed):
        return None
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    return options
