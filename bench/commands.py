"""The commands that run no plain suite: each prints its tables and gives its document.

Each function of COMMANDS takes the options, the console, the platform ("cpu" or "gpu") and the
timed calls per case; it returns the document with its "last_line", and the exit status.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape

from jax_transpose import _cpu

from . import cases, cpu, in_place, ladder, report, screen, sharded, small, tables

# --- small arrays -------------------------------------------------------------------------------


def run_small(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    dtypes = _dtypes(options) or list(small.DTYPES)
    sizes = _numbers(options.sizes, "--sizes") or list(small.SIZES[platform])
    modes = options.modes.split(",") if options.modes else small.MODES[: 1 + (platform == "gpu")]
    if not set(modes) <= set(small.MODES):
        raise ValueError(f"--modes {options.modes}: allowed are {', '.join(small.MODES)}")
    screen.header(console, platform, [], {})
    records: list[dict] = []
    status = 0

    def document() -> dict:
        return {
            "schema": report.SCHEMA,
            "kind": "small",
            "complete": len(records) == len(dtypes) * len(sizes) * len(modes),
            "environment": report.environment(platform, {}),
            "worst": small.worst(records),
            "records": records,
        }

    if "default" in modes:
        left = options.deadline - time.monotonic()
        deadline = options.deadline - (left / 2 if "graphs" in modes else 0)
        with screen.Steps(console, len(dtypes) * len(sizes)) as steps:
            for dtype in dtypes:
                for record in small.measure(dtype, sizes, platform, deadline):
                    records.append(record)
                    steps.done(f"{record['n']}² {dtype}")
                    if options.json:
                        report.write_json(options.json, document())
    if "graphs" in modes:
        console.print(f"with {small.GRAPH_FLAG}, in a process of its own", highlight=False)
        left = options.deadline - time.monotonic() if options.time_limit else None
        try:
            records += small.with_graphs(dtypes, sizes, left)
        except RuntimeError as error:
            console.print(f"[bold red]the process failed: {escape(str(error))}[/]")
            status = 1
    console.print(tables.small_table(records))
    result = document()
    console.print(small.retimed(records), highlight=False)
    for name, ratio in result["worst"]:
        console.print(f"auto / XLA {ratio:.3f}: {name}", highlight=False)
    worst = f"{result['worst'][0][1]:.2f} x" if records else "not compared with"
    line = f"every program byte-exact · auto at worst {worst} XLA's transpose"
    return result | {"last_line": line}, status


# --- the ladder ---------------------------------------------------------------------------------


def run_ladder(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    dtypes = _dtypes(options) or ["float32"]
    screen.header(console, platform, [], {})
    total = len(dtypes) * len(ladder.SIZES[platform]) + 1 + len(ladder.CROSSOVER[platform])
    with screen.Steps(console, total) as steps:
        runner = ladder.Ladder(platform, repeat, steps.done)
        result = runner.run(dtypes)
    for table in tables.ladder_tables(result):
        console.print(table)
    console.print(ladder.retimed(result["tables"]), highlight=False)
    found = ladder.claims(result)
    checks = [ladder.auto_check(table) for table in result["tables"] if ladder.ours(table["rows"])]
    environment = report.environment(platform, {})
    tables.print_claims(console, found, checks, environment["device"])
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


# --- several devices ----------------------------------------------------------------------------


def run_sharded(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    runner = sharded.Runner(platform, options.kernel, repeat)
    screen.header(console, platform, [], {})
    runner.settle()
    work = [(runner.sharded, case) for case in sharded.SHARDED[platform]]
    work += [(runner.distributed, side) for side in sharded.DISTRIBUTED[platform]]
    records = []
    with screen.Steps(console, len(work)) as steps:
        for measure, case in work:
            records.append(measure(case))
            steps.done(records[-1]["name"])
    for table in sharded.tables(records, len(runner.devices)):
        console.print(table)
    console.print(f"times: {screen.sources(records)}")
    return {
        "schema": report.SCHEMA,
        "kind": "sharded",
        "kernel": options.kernel,
        "devices": len(runner.devices),
        "environment": report.environment(platform, {}),
        "repeat": repeat,
        "records": records,
        "last_line": sharded.last_line(records),
    }, int(any(record["status"] != "ok" for record in records))


# --- CPU kernels --------------------------------------------------------------------------------


def run_cpu(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    # Plain memory and other libraries have no packed elements.
    chosen = [c for c in selected(options, platform) if cases.element_bits(c.dtype) >= 8]
    if not chosen:
        raise ValueError("cpu: elements of at least a byte, and no case has them")
    screen.header(console, platform, [], {})
    console.print(f"{options.threads} thread(s), kernels: {_cpu.isa()}", highlight=False)
    records = []
    with screen.Steps(console, len(chosen)) as steps:
        for record in cpu.measure(chosen, options.threads, repeat, options.hptt):
            records.append(record)
            steps.done(record["name"])
            _print_wrong(console, record["name"], record["wrong"])
    console.print(cpu.table(records, options.threads))
    return {
        "schema": report.SCHEMA,
        "kind": "cpu",
        "suite": options.suite,
        "environment": report.environment(platform, {}),
        "threads": options.threads,
        "isa": _cpu.isa(),
        "repeat": repeat,
        "records": records,
        "last_line": cpu.last_line(records),
    }, int(any(record["wrong"] for record in records))


# --- one buffer ---------------------------------------------------------------------------------


def run_in_place(options, console: Console, platform: str, repeat: int) -> tuple[dict, int]:
    dtypes = _dtypes(options) or list(in_place.DTYPES)
    sides = _numbers(options.sizes, "--sizes") or list(in_place.SIDES[platform])
    screen.header(console, platform, [], {})
    records = []
    with screen.Steps(console, len(sides) * len(dtypes)) as steps:
        for side in sides:
            for dtype in dtypes:
                records.append(in_place.measure(side, dtype, platform, repeat))
                steps.done(f"{side}² {dtype}")
                _print_wrong(console, f"{side}² {dtype}", records[-1]["wrong"])
    console.print(in_place.table(records))
    return {
        "schema": report.SCHEMA,
        "kind": "in_place",
        "environment": report.environment(platform, {}),
        "repeat": repeat,
        "records": records,
        "last_line": in_place.last_line(records),
    }, int(any(record["wrong"] for record in records))


def _print_wrong(console: Console, name: str, columns: list[str]) -> None:
    if columns:
        console.print(f"[bold red]WRONG BYTES: {escape(name)}: {', '.join(columns)}[/]")


# --- options ------------------------------------------------------------------------------------


def selected(options, platform: str) -> list[cases.Case]:
    """The cases of the suite that the options name, as they change them."""
    return cases.select(
        options.suite,
        platform,
        dtype=options.dtype,
        width=options.width,
        max_bytes=options.max_bytes,
        seed=options.seed,
        count=options.count,
    )


def _dtypes(options) -> list[str]:
    """The full names of `--dtype`'s list, or `--width`'s dtype."""
    if options.width:
        return [cases.WIDTH_DTYPES[options.width]]
    return [cases.dtype_name(d) for d in options.dtype.split(",")] if options.dtype else []


def _numbers(text: str | None, name: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise ValueError(f"{name} {text}: a list of whole numbers, e.g. 64,512") from None


COMMANDS = {
    "small": run_small,
    "ladder": run_ladder,
    "sharded": run_sharded,
    "cpu": run_cpu,
    "in_place": run_in_place,
}
