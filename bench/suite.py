"""Runs a suite: make operands, compile, time, verify, one record per case."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jax_transpose

from . import operands, peers, retime, timing, verify
from .cases import Case

GROUP_CASES = 8  # at most so many cases share one profiler trace


@dataclasses.dataclass
class Prepared:
    """A case with its arrays and programs, ready to be timed."""

    case: Case
    inputs: list
    programs: dict[str, timing.Program]
    record: dict


class Runner:
    """Times cases with one kernel choice against `jnp.transpose`, a copy and peers.

    A record is a flat JSON object: `us` (microseconds per call) and `gbs` (GB/s, bytes read plus
    written) by implementation, where "ours" is `jax_transpose` and the rest carry their own names.
    `same_program` names the one that our choice is, timed once. `retimed` says why the case was
    timed again (see `retime`); `us` and what follows from it are then the second timing's, which
    has more calls, and `first_us` the first one's.
    """

    def __init__(self, platform: str, kernel: str, peer_list: list[peers.Peer], repeat: int):
        self.platform = platform
        self.kernel = kernel
        self.peers = peer_list
        self.repeat = repeat
        self.copy_kind = "not run"
        self._serial = 0

    def run(
        self, cases: list[Case], done: Callable[[dict], None], deadline: float = float("inf")
    ) -> list[dict]:
        """Records of `cases`, in order; `done(record)` is called after each.

        Cases that would probably end after `deadline` (of `time.monotonic`) are left out.
        """
        at_once = 1 if self.platform == "cpu" else GROUP_CASES
        records = []
        longest = 0.0
        for group in groups(cases, memory_budget(), at_once):
            start = time.monotonic()
            if records and start + longest > deadline:
                break
            records += self._run_group(group, done)
            longest = max(longest, time.monotonic() - start)
        return records

    def _run_group(self, cases: list[Case], done: Callable[[dict], None]) -> list[dict]:
        prepared = [self._prepare(case) for case in cases]
        programs = [program for item in prepared for program in item.programs.values()]
        timings = timing.measure(programs, self.platform, self.repeat) if programs else {}
        second = self._second_look(prepared, timings)
        for item in prepared:
            self._finish(item, timings, second)
            done(item.record)
        for peer in self.peers:
            peer.release()
        return [item.record for item in prepared]

    def _second_look(self, prepared: list[Prepared], timings: dict) -> dict:
        """New timings, over more calls, of the cases whose comparison with jnp is in doubt."""
        programs = []
        for item in prepared:
            if not {"ours", "jnp"} <= set(item.programs):
                continue
            pair = (timings[item.programs[name].key] for name in ("ours", "jnp"))
            if why := retime.reason(*pair):
                item.record["retimed"] = why
                # All of them, so that every figure of a record is from one measurement.
                programs += item.programs.values()
        more = retime.MORE * self.repeat
        return timing.measure(programs, self.platform, more) if programs else {}

    def _prepare(self, case: Case) -> Prepared:
        record = {
            "name": case.name,
            "shape": list(case.shape),
            "axes": list(case.axes),
            "dtype": case.dtype,
            "bytes": case.nbytes,
            "data": case.data,
        }
        self._serial += 1
        prefix = f"b{self._serial:04d}_"
        count = timing.rotation(case.nbytes, self.platform)
        inputs = [operands.make(case, seed + 1) for seed in range(count)]
        jax.block_until_ready(inputs)
        record["rotated_inputs"] = count
        item = Prepared(case, inputs, {}, record)
        ours = timing.jitted(
            prefix + "ours",
            lambda x: jax_transpose.transpose(x, case.axes, kernel=self.kernel),
            inputs,
        )
        try:
            record["plan"] = plan_of(case, self.platform, self.kernel)
            ours.wait(ours.run(0))
        except (TypeError, ValueError, RuntimeError) as error:
            # `auto` must move everything; a kind asked for by name may refuse a dtype.
            record["error"] = str(error).splitlines()[0]
            refused = self.kernel not in ("auto", "xla") and not isinstance(error, RuntimeError)
            record["status"] = "skipped" if refused else "failed"
            return item
        item.programs["ours"] = ours
        if record["plan"]["implementation"] == "xla":
            # The same program: two timings of it would differ by noise and cache state alone.
            record["same_program"] = "jnp"
        elif case.xla:
            item.programs["jnp"] = timing.jitted(
                prefix + "jnp", lambda x: jnp.transpose(x, case.axes), inputs
            )
        item.programs["copy"], self.copy_kind = peers.copy_program(
            prefix + "copy", inputs, self.platform
        )
        for peer in self.peers:
            try:
                program = peer.program(prefix + peer.name, inputs, case.axes)
                if program is not None:
                    program.wait(program.run(0))
                    item.programs[peer.name] = program
            except Exception as error:  # a peer's limits are its own; say so and go on
                record.setdefault("peer_errors", {})[peer.name] = str(error)[:120]
        return item

    def _finish(self, item: Prepared, first: dict, second: dict) -> None:
        record, case = item.record, item.case
        if "status" in record:
            return
        ours = item.programs["ours"]
        source = item.inputs[ours.last_index % len(item.inputs)]
        by_xla = None
        if "jnp" in item.programs:
            by_xla = functools.partial(item.programs["jnp"].call, ours.last_index)
        wrong = verify.wrong_elements(
            source, ours.last, case.axes, on_host=not case.xla, by_xla=by_xla
        )
        record["wrong_elements"] = wrong
        record["status"] = "wrong" if wrong else "ok"
        if not wrong:
            self._drop_wrong_peers(item)
        if "retimed" in record:
            record["first_us"] = {n: us(first[p.key]) for n, p in item.programs.items()}
        timings = first | second
        found = {name: timings[program.key] for name, program in item.programs.items()}
        if "same_program" in record:
            found[record["same_program"]] = found["ours"]
        record["us"] = {name: us(t) for name, t in found.items()}
        record["spread"] = {name: t.spread for name, t in found.items()}
        record["gbs"] = {name: gbs(case.moved, t.seconds) for name, t in found.items()}
        record["source"] = sorted({t.source for t in found.values()})
        record["ran"] = {
            name: [event[:60] for event in found[name].events]
            for name in ("ours", "copy")
            if name in found and found[name].events
        }
        if found["copy"].events:
            self.copy_kind = f"jit(jnp.copy), run as {', '.join(record['ran']['copy'])}"
        record["ratio"] = ratios(record["gbs"])
        item.programs.clear()
        item.inputs.clear()

    def _drop_wrong_peers(self, item: Prepared) -> None:
        for peer in self.peers:
            program = item.programs.get(peer.name)
            if program is None or peer.to_host is None or item.case.nbytes > verify.HOST_BYTES:
                continue
            same_input = program.last_index % program.rotation == 0
            out = program.last if same_input else program.call(0)
            program.wait(out)
            ours = np.asarray(item.programs["ours"].call(0))
            if peers.wrong_bytes(peer, out, ours):
                item.record.setdefault("peer_errors", {})[peer.name] = "wrong bytes"
                del item.programs[peer.name]


def plan_of(case: Case, platform: str, kernel: str) -> dict:
    """What `jax_transpose` says it will do with the case, as a small JSON object."""
    plan = jax_transpose.explain(
        case.shape, case.axes, jnp.dtype(case.dtype), plan_platform(platform), kernel=kernel
    )
    return {
        "implementation": plan.implementation,
        "kernel": plan.kernel or plan.implementation,
        "tile": plan.tile,
    }


def plan_platform(platform: str) -> str:
    """`jax_transpose`'s name of a JAX backend."""
    return "cuda" if platform == "gpu" else platform


def memory_budget() -> int:
    """Bytes of device memory that the arrays of one group may take: a third of JAX's share."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", 12 << 30) // 3


def groups(cases: list[Case], max_bytes: int, max_cases: int) -> list[list[Case]]:
    """Consecutive cases that are prepared together and share one trace.

    A case needs its inputs, our output, XLA's, the copy's and each peer's.

    >>> small = Case("a", (4,), (0,), "uint8")
    >>> [len(group) for group in groups([small] * 5, 1 << 40, 2)]
    [2, 2, 1]
    """
    result, used = [], 0
    for case in cases:
        need = 8 * max(case.nbytes, timing.FOOTPRINT // 2)
        if not result or used + need > max_bytes or len(result[-1]) == max_cases:
            result.append([])
            used = 0
        result[-1].append(case)
        used += need
    return result


def us(found: timing.Timing) -> float:
    """Microseconds per call."""
    return round(found.seconds * 1e6, 3)


def gbs(moved: int, seconds: float) -> float:
    """GB/s of `moved` bytes in `seconds`.

    >>> gbs(2_000_000_000, 0.5)
    4.0
    """
    return float(f"{moved / seconds / 1e9:.4g}")


def ratios(speed: dict[str, float]) -> dict[str, float]:
    """Our speed over the copy's, over `jnp.transpose`'s and over the fastest peer's.

    >>> ratios({"ours": 3.0, "jnp": 2.0, "copy": 4.0, "torch": 1.5})
    {'copy': 0.75, 'jnp': 1.5, 'peer': 2.0}
    """
    out = {}
    if "ours" not in speed:
        return out
    for name in ("copy", "jnp"):
        if speed.get(name):
            out[name] = round(speed["ours"] / speed[name], 4)
    rest = [value for name, value in speed.items() if name not in ("ours", "copy", "jnp")]
    if rest:
        out["peer"] = round(speed["ours"] / max(rest), 4)
    return out
