"""Runs a command: measure, print, write, compare. Suites and reports are here."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import jax
from rich.console import Console
from rich.markup import escape

import jax_transpose

from . import (
    cases,
    commands,
    compare,
    cpu,
    in_place,
    peers,
    photo,
    plot,
    report,
    screen,
    suite,
    tables,
)
from . import timing as clocks

REPEAT = {"cpu": 15, "gpu": 30}
REPEAT_OF = {"cpu": cpu.REPEAT, "in_place": in_place.REPEAT}


def run(options: argparse.Namespace) -> int:
    """The exit status of `python -m bench` with these options."""
    console = Console(width=None if Console().is_terminal else 160)
    old = report.read_json(options.compare) if options.compare else None
    if options.command == "report":
        document, status = _report(options, console)
    else:
        document, status = _measure(options, console)
    last_line = document.pop("last_line")
    if options.json:
        report.write_json(options.json, document)
        console.print(f"results: {escape(options.json)}")
    if options.plot and document["kind"] in plot.KINDS:
        plot.KINDS[document["kind"]](options.plot, document)
        console.print(f"plot: {escape(options.plot)}")
    if old is not None:
        threshold = options.threshold / 100
        found = compare.compare(old, document, threshold)
        compare.print_compare(console, found, options.compare, threshold)
        if found["slower"] and found["same_device"] and not status:
            status = 3
    console.print(f"\n{last_line}", soft_wrap=True)
    return status


def _measure(options, console: Console) -> tuple[dict, int]:
    if options.command == "cpu":
        options.threads = cpu.confine(options.threads)
    # 64-bit dtypes are benchmarked under their own names, not silently narrowed.
    jax.config.update("jax_enable_x64", True)
    if options.command == "random":
        options.suite = "random"
    options.suite = options.suite or ("cpu" if options.command == "cpu" else "curated")
    options.deadline = time.monotonic() + (options.time_limit or float("inf"))
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    repeat = options.repeat or REPEAT_OF.get(options.command, REPEAT)[platform]
    clocks.settle(platform)
    command = commands.COMMANDS.get(options.command, _suite)
    return command(options, console, platform, repeat)


# --- suites -------------------------------------------------------------------------------------


def _suite(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    whole = commands.selected(options, platform)
    chosen = cases.part(whole, options.shard, options.start)
    default = () if options.suite == "random" else peers.DEFAULT[platform]
    names = options.peers.split(",") if options.peers else default
    found, missing = peers.load([n for n in names if n != "none"], platform)
    screen.header(console, platform, found, missing if options.peers else {})
    photo_line, photo_is_right = _photo(chosen, options.kernel, console)
    runner = suite.Runner(platform, options.kernel, found, repeat)

    def document(records: list[dict]) -> dict:
        drawn = {"seed": options.seed, "count": options.count} if options.suite == "random" else {}
        return {
            "schema": report.SCHEMA,
            "kind": "suite",
            "suite": options.suite,
            **drawn,
            "kernel": options.kernel,
            "dtype": options.dtype,
            "width": options.width,
            "max_bytes": options.max_bytes,
            "part": {"shard": "{}/{}".format(*options.shard), "start": options.start},
            "suite_cases": len(whole),
            "complete": len(records) == len(whole),
            "environment": report.environment(platform, {p.name: p.version for p in found}),
            "missing_peers": missing,
            "copy": runner.copy_kind,
            "repeat": repeat,
            "photo": photo_line,
            "summary": report.summary(records),
            "records": records,
        }

    finished = []
    with screen.Steps(console, len(chosen)) as steps:

        def done(record):
            steps.done(record["name"])
            finished.append(record)
            if options.json:  # a run that is interrupted keeps what it has
                report.write_json(options.json, document(finished))
            if record["status"] == "wrong":
                console.print(
                    f"[bold red]WRONG BYTES: {record['name']}: "
                    f"{record['wrong_elements']} elements differ[/]"
                )
            elif record["status"] != "ok":
                console.print(f"[red]{record['name']}: {escape(record['error'])}[/]")

        runner.run(chosen, done, options.deadline)
    result, status = _show_suite(console, document(finished))
    if len(finished) < len(chosen):
        console.print(
            f"[yellow]stopped by --time-limit after {len(finished)} of {len(chosen)} cases; the "
            f"rest: --start {options.start + len(finished)}[/]"
        )
    return result, status if photo_is_right else 1


def _photo(chosen: list[cases.Case], kernel: str, console: Console) -> tuple[str | None, bool]:
    """What became of photographs that went there and back, and whether they are the same."""
    if not any(case.data == "photo" for case in chosen):
        return None, True
    try:
        line = photo.round_trip(jax_transpose.transpose, kernel=kernel)
        console.print(f"[green]{escape(line)}[/]")
        return line, True
    except AssertionError as error:
        line = f"WRONG: {error}"
        console.print(f"[bold red]{escape(line)}[/]")
        return line, False


def _show_suite(console: Console, document: dict) -> tuple[dict, int]:
    """Prints a suite's document; returns it with its last line, and the exit status."""
    records, total = document["records"], document["summary"]
    which = [Path(document["suite"]).stem]
    if document.get("width") or document.get("dtype"):
        which.append(f"{document['width']} bytes" if document["width"] else document["dtype"])
    if document["suite"] == "random":
        which.append(f"seed {document['seed']}")
        console.print(tables.group_table(records))
        console.print(tables.worst_table(records))
        slower = sum(ratio < 0.97 for _, ratio in total["slower_than_jnp"])
        console.print(f"slower than jnp.transpose by more than 3 %: {slower} of {len(records)}")
    else:
        title = f"suite {', '.join(which)}, kernel {document['kernel']}: GB/s, read + written"
        console.print(tables.suite_table(records, title))
    console.print(f"copy = {document['copy']}; times: {screen.sources(records)}")
    console.print(report.retimed(records), highlight=False)
    screen.worst(console, total)
    line = f"{', '.join(which)}: {report.last_line(total)}"
    return document | {"last_line": line}, 1 if total["wrong"] or total["failed"] else 0


def _report(options, console: Console) -> tuple[dict, int]:
    document = compare.join([report.read_json(path) for path in options.files])
    console.print(
        f"[bold]{escape(document['environment']['device'])}[/], {len(options.files)} runs"
    )
    if not document["complete"]:
        missing = document["suite_cases"] - len(document["records"])
        console.print(
            f"[yellow]{missing} of {document['suite_cases']} cases are in none of them[/]"
        )
    return _show_suite(console, document)
