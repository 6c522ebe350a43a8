"""The commands: run, print, write, compare."""

from __future__ import annotations

import argparse

import jax
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import jax_transpose

from . import cases, ladder, peers, photo, plot, report, small, suite, timing

REPEAT = {"cpu": 15, "gpu": 30}


def run(options: argparse.Namespace) -> int:
    """The exit status of `python -m bench` with these options."""
    # 64-bit dtypes are benchmarked under their own names, not silently narrowed.
    jax.config.update("jax_enable_x64", True)
    console = Console(width=None if Console().is_terminal else 150)
    old = report.read_json(options.compare) if options.compare else None
    platform = jax.default_backend()
    if platform != "cpu":
        platform = "gpu"
    repeat = options.repeat or REPEAT[platform]
    timing.settle(platform)
    command = {"ladder": _ladder, "small": _small, "suite": _suite}[options.command]
    document, status = command(options, console, platform, repeat)
    last_line = document.pop("last_line")
    if options.json:
        report.write_json(options.json, document)
        console.print(f"results: {escape(options.json)}")
    if options.plot and options.command != "small":
        (plot.ladder if options.command == "ladder" else plot.suite)(options.plot, document)
        console.print(f"plot: {escape(options.plot)}")
    if old is not None:
        threshold = options.threshold / 100
        found = report.compare(old, document, threshold)
        report.print_compare(console, found, options.compare, threshold)
        if found["slower"] and found["same_device"] and not status:
            status = 3
    console.print(f"\n{last_line}", soft_wrap=True)
    return status


def _small(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    _header(console, platform, [], {})
    records = []
    with _progress(console) as progress:
        task = progress.add_task("", total=len(small.SIZES[platform]) * len(small.DTYPES))
        for dtype in small.DTYPES:
            for n in small.SIZES[platform]:
                records.append(small.measure(n, dtype, platform))
                progress.update(task, advance=1, description=f"{n}² {dtype}")
    console.print(small.table(records))
    return {
        "schema": report.SCHEMA,
        "kind": "small",
        "environment": report.environment(platform, {}),
        "records": records,
        "last_line": f"every program byte-exact · auto at worst {small.worst_auto(records):.2f} x "
        "XLA's transpose",
    }, 0


def _suite(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    chosen = cases.select(
        options.suite,
        platform,
        dtype=options.dtype,
        width=options.width,
        max_bytes=options.max_bytes,
    )
    names = options.peers.split(",") if options.peers else peers.DEFAULT[platform]
    found, missing = peers.load([n for n in names if n != "none"], platform)
    _header(console, platform, found, missing if options.peers else {})

    photo_line = None
    status = 0
    if any(case.data == "photo" for case in chosen):
        try:
            photo_line = photo.round_trip(jax_transpose.transpose, kernel=options.kernel)
            console.print(f"[green]{escape(photo_line)}[/]")
        except AssertionError as error:
            photo_line = f"WRONG: {error}"
            console.print(f"[bold red]{escape(photo_line)}[/]")
            status = 1

    runner = suite.Runner(platform, options.kernel, found, repeat)

    def document(records: list[dict]) -> dict:
        return {
            "schema": report.SCHEMA,
            "kind": "suite",
            "suite": options.suite,
            "kernel": options.kernel,
            "environment": report.environment(platform, {p.name: p.version for p in found}),
            "missing_peers": missing,
            "copy": runner.copy_kind,
            "repeat": repeat,
            "photo": photo_line,
            "summary": report.summary(records),
            "records": records,
        }

    with _progress(console) as progress:
        task = progress.add_task("", total=len(chosen))
        finished = []

        def done(record):
            progress.update(task, advance=1, description=record["name"])
            finished.append(record)
            if options.json:  # a run that is interrupted keeps what it has
                report.write_json(options.json, document(finished))
            if record["status"] == "wrong":
                progress.console.print(
                    f"[bold red]WRONG BYTES: {record['name']}: "
                    f"{record['wrong_elements']} elements differ[/]"
                )
            elif record["status"] != "ok":
                progress.console.print(f"[red]{record['name']}: {escape(record['error'])}[/]")

        result = document(runner.run(chosen, done))
    total = result["summary"]
    title = f"suite {options.suite}, kernel {options.kernel}: GB/s, bytes read + written"
    console.print(report.suite_table(result["records"], title))
    console.print(f"copy = {runner.copy_kind}; times: {_sources(result['records'])}")
    _worst(console, total)
    if total["wrong"] or total["failed"]:
        status = 1
    return result | {"last_line": report.last_line(total)}, status


def _ladder(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    dtypes = options.dtype.split(",") if options.dtype else ["float32"]
    if options.width:
        dtypes = [cases.WIDTH_DTYPES[options.width]]
    dtypes = [cases.dtype_name(d) for d in dtypes]
    _header(console, platform, [], {})
    with _progress(console) as progress:
        total = len(dtypes) * len(ladder.SIZES[platform]) + 1 + len(ladder.CROSSOVER[platform])
        task = progress.add_task("", total=total)

        def step(text):
            progress.update(task, advance=1, description=text)

        runner = ladder.Ladder(platform, repeat, step)
        result = runner.run(dtypes)
    for table in report.ladder_tables(result):
        console.print(table)
    found = ladder.claims(result)
    checks = [ladder.auto_check(table) for table in result["tables"] if ladder.ours(table["rows"])]
    environment = report.environment(platform, {})
    report.print_claims(console, found, checks, environment["device"])
    for line in runner.wrong:
        console.print(f"[bold red]WRONG BYTES: {escape(line)}[/]")
    verdict = (
        f"[bold red]WRONG BYTES in {len(runner.wrong)} measurements[/]"
        if runner.wrong
        else "[bold green]every rung byte-exact[/]"
    )
    return {
        "schema": report.SCHEMA,
        "kind": "ladder",
        "environment": environment,
        "repeat": repeat,
        "claims": found,
        "auto": checks,
        **result,
        "last_line": f"{verdict} · {ladder.describe(dtypes)} · {_auto_text(checks)}",
    }, 1 if runner.wrong else 0


def _auto_text(checks: list[dict]) -> str:
    slow = [f"{c['size']}² {c['dtype']} ({c['ratio']:.2f} of {c['best']})" for c in checks]
    slow = [text for text, check in zip(slow, checks, strict=True) if not check["holds"]]
    return f"auto slower than a rung at {', '.join(slow)}" if slow else "auto is the best rung"


def _header(console: Console, platform: str, found: list[peers.Peer], missing: dict) -> None:
    env = report.environment(platform, {p.name: p.version for p in found})
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items())
    console.print(f"[bold]{escape(env['device'])}[/] ({platform}, {env['cores']} cores)")
    console.print(escape(versions))
    own = jax_transpose.status(suite.plan_platform(platform))
    if not own.available:
        console.print(f"[yellow]our kernels are off here: {escape(own.reason)}[/]")
    for name, reason in missing.items():
        console.print(f"[yellow]peer {name} left out: {escape(reason)}[/]")


def _sources(records: list[dict]) -> str:
    names = {
        "cupti": "the device's own (CUPTI), median",
        "wall": "wall clock, median",
    }
    used = sorted({source for r in records for source in r.get("source", [])})
    return "; ".join(names[source] for source in used) or "none"


def _worst(console: Console, total: dict) -> None:
    for against in ("jnp", "copy"):
        worst = total[f"worst_five_over_{against}"]
        if worst:
            text = ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst)
            console.print(f"worst five, ours / {against}: {text}")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
