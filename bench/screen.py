"""What a run shows while it runs."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import jax_transpose

from . import peers, report, suite


class Steps:
    """A progress bar; where the output is no terminal, a line every tenth of the way.

    >>> with Steps(Console(), 3) as steps:
    ...     steps.done("first")
    1 of 3, 0 s: first
    """

    def __init__(self, console: Console, total: int):
        self._console = console
        self._total = total
        self._count = 0
        self._start = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Steps:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def done(self, text: str) -> None:
        """One step is over."""
        self._count += 1
        self._bar.update(self._task, advance=1, description=text)
        if not self._console.is_terminal and self._count % max(1, self._total // 10) == 0:
            seconds = time.monotonic() - self._start
            line = f"{self._count} of {self._total}, {seconds:.0f} s: {escape(text)}"
            self._console.print(line, highlight=False)


def header(console: Console, platform: str, found: list[peers.Peer], missing: dict) -> None:
    """The device, the versions, and what is not there."""
    env = report.environment(platform, {p.name: p.version for p in found})
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items())
    console.print(f"[bold]{escape(env['device'])}[/] ({platform}, {env['cores']} cores)")
    console.print(escape(versions))
    own = jax_transpose.status(suite.plan_platform(platform))
    if not own.available:
        console.print(f"[yellow]our kernels are off here: {escape(own.reason)}[/]")
    for name, reason in missing.items():
        console.print(f"[yellow]peer {name} left out: {escape(reason)}[/]")


def sources(records: list[dict]) -> str:
    """Where the times of a suite come from."""
    names = {
        "cupti": "the device's own (CUPTI), median",
        "events": "the library's events, median",
        "wall": "wall clock, median",
    }
    used = sorted({source for r in records for source in r.get("source", [])})
    return "; ".join(names[source] for source in used) or "none"


def worst(console: Console, total: dict) -> None:
    """The five lowest ratios to `jnp.transpose`, the copy and the best peer."""
    for against in report.AGAINST:
        found = total[f"worst_five_over_{against}"]
        if found:
            text = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found)
            console.print(f"worst five, ours / {against}: {text}")
