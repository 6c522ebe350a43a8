"""From a profiler trace to the device time of each timed program.

Each timed program has a unique key. Its calls run inside host annotations `bench:<key>`, and its
jitted function is called `<key>`, so that XLA stamps `hlo_module=jit_<key>` on its kernels. An
event belongs to the program that its module names; kernels of other libraries carry no module and
belong to the annotation they ran in.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable

MARK = "bench:"
GAP_S = 1e-3  # idle time on both sides of an annotation, so that its events cannot be confused

# Lines that repeat the kernels of the stream lines in a summarized form.
_DERIVED_LINES = ("XLA", "Steps", "Framework", "Source", "Launch", "TensorFlow", "Async XLA")


@dataclasses.dataclass(frozen=True)
class Event:
    """One kernel or memcpy on the device; times in ns."""

    name: str
    start: float
    duration: float
    module: str = ""
    device: str = ""


@dataclasses.dataclass(frozen=True)
class Window:
    """One annotation on the host: `key` was called between `start` and `end` (ns)."""

    key: str
    start: float
    end: float


def device_events(profile) -> list[Event]:
    """The device's events from a `jax.profiler.ProfileData` (or anything of that form)."""
    events = []
    for plane in profile.planes:
        if not plane.name.startswith("/device:"):
            continue
        lines = list(plane.lines)
        streams = [line for line in lines if line.name.startswith("Stream")]
        lines = streams or [line for line in lines if not line.name.startswith(_DERIVED_LINES)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            events += [_event(event, plane.name) for line in lines for event in line.events]
    return events


def _event(event, device: str) -> Event:
    stats = {name: value for name, value in event.stats if name is not None}
    module = str(stats.get("hlo_module", ""))
    return Event(event.name, event.start_ns, event.duration_ns, module, device)


def windows(profile) -> list[Window]:
    """The host annotations of a trace."""
    return [
        Window(event.name[len(MARK) :], event.start_ns, event.start_ns + event.duration_ns)
        for plane in profile.planes
        if plane.name.startswith("/host:")
        for line in plane.lines
        for event in line.events
        if event.name.startswith(MARK)
    ]


def attribute(events: Iterable[Event], spans: Iterable[Window]) -> dict[str, list[Event]]:
    """Events per key, in time order.

    >>> events = [Event("k", 5, 1, "jit_a"), Event("memcpy", 25e6, 2)]
    >>> out = attribute(events, [Window("a", 0, 9e6), Window("b", 20e6, 30e6)])
    >>> [(key, [e.name for e in out[key]]) for key in out]
    [('a', ['k']), ('b', ['memcpy'])]
    """
    spans = list(spans)
    owners: dict[str, list[Event]] = {span.key: [] for span in spans}
    slack = GAP_S * 1e9 / 2
    for event in sorted(events, key=lambda e: e.start):
        if event.module:
            # "jit_<key>", sometimes followed by "(<program id>)".
            key = event.module.split("(")[0].removeprefix("jit_")
            if key in owners:
                owners[key].append(event)
            continue
        for span in spans:
            if span.start - slack <= event.start <= span.end + slack:
                owners[span.key].append(event)
                break
    return owners


def calls_by_device(events: Iterable[Event], calls: int) -> tuple[list[float], ...]:
    """`seconds_of_calls` of each device that has events; () when some are missing.

    >>> one, other = Event("a", 0, 10, device="0"), Event("a", 0, 40, device="1")
    >>> calls_by_device([one, other], calls=1)
    ([1e-08], [4e-08])
    """
    devices: dict[str, list[Event]] = {}
    for event in events:
        devices.setdefault(event.device, []).append(event)
    found = [seconds_of_calls(devices[name], calls) for name in sorted(devices)]
    return tuple(found) if all(found) else ()


def seconds_of_calls(events: list[Event], calls: int) -> list[float]:
    """The summed device time of each call; [] when events are missing.

    >>> seconds_of_calls([Event("a", 0, 10), Event("b", 20, 30)], calls=1)
    [4e-08]
    """
    if len(events) < calls:
        return []
    if len(events) % calls:
        # Some call launched more than the others: only the mean is certain.
        return [sum(e.duration for e in events) / calls * 1e-9]
    each = len(events) // calls
    return [sum(e.duration for e in events[i * each : (i + 1) * each]) * 1e-9 for i in range(calls)]
