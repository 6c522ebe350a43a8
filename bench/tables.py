"""What a run prints."""

from __future__ import annotations

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from . import report
from .cases import element_bits


def shape_text(shape, axes) -> str:
    """A short form of a case; long ranks are cut.

    >>> shape_text([4, 5], [1, 0]), shape_text([2] * 26, list(range(26)))
    ('4x5 (1 0)', '2x2x2x2x… rank 26')
    """
    if len(shape) > 7:
        return "x".join(map(str, shape[:4])) + f"x… rank {len(shape)}"
    return "x".join(map(str, shape)) + f" ({' '.join(map(str, axes))})"


def suite_table(records: list[dict], title: str) -> Table:
    """GB/s per case and implementation, with our ratios."""
    columns = list(dict.fromkeys(name for r in records for name in r.get("gbs", {})))
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("case", no_wrap=True)
    table.add_column("shape (axes)")
    table.add_column("dtype")
    table.add_column("kernel")
    for name in columns:
        table.add_column(f"{name}\nGB/s", justify="right")
    table.add_column("ours/\ncopy", justify="right")
    table.add_column("ours/\njnp", justify="right")
    peers = any("peer" in r.get("ratio", {}) for r in records)
    if peers:
        table.add_column("ours/\npeer", justify="right")
    table.add_column("bytes")
    for r in records:
        speeds, ratio = r.get("gbs", {}), r.get("ratio", {})
        mark = {"ok": "[green]exact[/]", "wrong": "[bold red]WRONG[/]"}.get(
            r["status"], f"[red]{r['status']}[/]"
        )
        table.add_row(
            r["name"],
            shape_text(r["shape"], r["axes"]),
            r["dtype"],
            _kernel(r),
            *(_number(speeds.get(name)) for name in columns),
            _ratio(ratio.get("copy")),
            _ratio(ratio.get("jnp")),
            *([_ratio(ratio.get("peer"))] if peers else []),
            mark,
        )
    return table


def worst_table(records: list[dict], count: int = 10) -> Table:
    """The `count` cases that are slowest relative to `jnp.transpose`, with their kernels."""
    table = Table(title=f"the {count} lowest ours/jnp", title_justify="left", header_style="bold")
    for name in ("case", "shape (axes)", "dtype", "kernel"):
        table.add_column(name, no_wrap=name == "case")
    for name in ("MiB", "ours µs", "jnp µs", "ours/jnp", "ours/copy"):
        table.add_column(name, justify="right")
    for r in report.worst(records, "jnp", count):
        table.add_row(
            r["name"],
            f"{'x'.join(map(str, r['shape']))} ({' '.join(map(str, r['axes']))})",
            r["dtype"],
            _kernel(r),
            f"{r['bytes'] / 2**20:.1f}",
            f"{r['us']['ours']:.1f}",
            f"{r['us']['jnp']:.1f}",
            _ratio(r["ratio"]["jnp"], 3),
            _ratio(r["ratio"].get("copy"), 3),
        )
    return table


def group_table(records: list[dict]) -> Table:
    """Geometric means and lowest ratios by rank and by element width."""
    table = Table(title="by rank and width", title_justify="left", header_style="bold")
    for name in ("", "cases", "ours/jnp", "lowest", "ours/copy", "lowest"):
        table.add_column(name, justify="right" if name else "left")
    groups: dict[str, list[dict]] = {}
    for r in sorted(report.timed(records), key=lambda r: len(r["shape"])):
        groups.setdefault(f"rank {len(r['shape'])}", []).append(r)
    for r in sorted(report.timed(records), key=lambda r: element_bits(r["dtype"])):
        groups.setdefault(f"{element_bits(r['dtype']) / 8:g} bytes", []).append(r)
    for name, members in groups.items():
        row = [name, str(len(members))]
        for against in ("jnp", "copy"):
            found = [r["ratio"][against] for r in members if against in r["ratio"]]
            row += [_ratio(report.geomean(found), 3), _ratio(min(found, default=None), 3)]
        table.add_row(*row)
    return table


def _kernel(record: dict) -> str:
    plan = record.get("plan", {})
    tile = f"/{plan['tile']}" if plan.get("tile") else ""
    return plan.get("kernel", "?") + tile


def small_table(records: list[dict]) -> Table:
    """A row a size, dtype and mode: XLA's µs a transpose, and `auto` | `native` as multiples."""
    table = Table(
        title="small arrays: XLA's µs a transpose, and auto | native over XLA; Δ: native - XLA, µs",
        title_justify="left",
    )
    columns = [(clock, name) for clock in ("wall", "device") for name in ("one", "chain", "loop")]
    for name in ("size", "dtype", "mode", "auto is"):
        table.add_column(name)
    for clock, name in columns:
        table.add_column(f"{clock}\n{name}", justify="right")
    table.add_column("Δ chain", justify="right")
    table.add_column("Δ loop", justify="right")
    for r in records:
        delta = r["native_minus_xla_us"]
        table.add_row(
            f"{r['n']}²",
            r["dtype"],
            r["mode"],
            r["auto"],
            *(_over_xla(r[f"{clock}_us"].get(name)) for clock, name in columns),
            f"{delta['chain']:+.2f}",
            f"{delta['loop']:+.2f}",
        )
    return table


def _over_xla(us: dict[str, float] | None) -> str:
    if us is None:
        return "-"
    return f"{us['xla']:.3g} {us['auto'] / us['xla']:.2f}|{us['native'] / us['xla']:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "-"
    color = "green" if value >= 1.02 else "red" if value < 0.9 else "default"
    return f"[{color}]{value:.{digits}f}[/]"


def ladder_tables(result: dict) -> list[Group]:
    """One table per dtype and size, then the tile sweep and the crossover."""
    tables = [_rung_table(table) for table in result["tables"]]
    sweep = result["sweep"]
    if sweep["rows"]:
        tables.append(_sweep_table(sweep))
    tables.append(_crossover_table(result["crossover"]))
    return tables


def _titled(title: str, table: Table) -> Group:
    """The table under a title that may be wider than the table."""
    return Group(f"\n[italic]{title}[/]", table)


def _rung_table(data: dict) -> Group:
    rows = data["rows"]
    table = Table()
    for column in ("rung", "µs", "GB/s", "x naive", "/ copy", "/ jnp", "bytes"):
        table.add_column(column, justify="left" if column in ("rung", "bytes") else "right")
    for name, row in rows.items():
        if "skipped" in row:
            table.add_row(name, *["-"] * 5, escape(row["skipped"][:60]))
            continue
        wrong = row.get("wrong_elements")
        mark = "" if wrong is None else "[bold red]WRONG[/]" if wrong else "[green]exact[/]"
        over = [
            f"{row['gbs'] / rows[base]['gbs']:.2f}" if "gbs" in rows.get(base, {}) else "-"
            for base in ("naive", "copy", "jnp.transpose")
        ]
        table.add_row(name, f"{row['us']:.1f}", _number(row["gbs"]), *over, mark)
    return _titled(f"{data['size']}x{data['size']} {data['dtype']}", table)


def _sweep_table(data: dict) -> Group:
    tiles = sorted({int(name.split("/")[1]) for name in data["rows"]})
    kinds = list(dict.fromkeys(name.split("/")[0] for name in data["rows"]))
    table = Table()
    table.add_column("kernel")
    for tile in tiles:
        table.add_column(str(tile), justify="right")
    for kind in kinds:
        table.add_row(
            kind, *(_number(data["rows"].get(f"{kind}/{tile}", {}).get("gbs")) for tile in tiles)
        )
    return _titled(f"tile sweep, {data['size']}x{data['size']} {data['dtype']}, GB/s", table)


def _crossover_table(data: dict) -> Group:
    table = Table()
    columns = [name for name in data["rows"][0] if name != "size"]
    table.add_column("size")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for row in data["rows"]:
        table.add_row(f"{row['size']}²", *(f"{row[name]:.0f}" for name in columns))
    return _titled(f"one blocking call by size, {data['dtype']}, µs wall clock", table)


def print_claims(console: Console, found: list[dict], checks: list[dict], device: str) -> None:
    """The textbook's claims and the check of `auto`, one line each."""
    console.print(f"\n[bold]Textbook claims on this device ({escape(device)})[/]")
    for item in found:
        verdict = {
            True: "[green]holds[/]",
            False: "[yellow]does not hold[/]",
            None: "[dim]not judged[/]",
        }[item["holds"]]
        console.print(f"  {item['claim']}: {escape(item['measured'])} → {verdict}")
    slow = [c for c in checks if not c["holds"]]
    for check in slow:
        console.print(
            f"  [red]auto is slower than {check['best']} at {check['size']}² {check['dtype']}: "
            f"{check['ratio']:.2f} of its speed[/]"
        )
    if not slow and checks:
        worst = min(check["ratio"] for check in checks)
        console.print(
            f"  [green]auto is within 5 % of the best rung in every table[/] (worst: {worst:.2f})"
        )
