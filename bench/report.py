"""Tables, JSON, comparison with an older run, and the last line."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform as host
from pathlib import Path

import jax
import jaxlib
import numpy as np
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

import jax_transpose

SCHEMA = 1
THRESHOLD = 0.03


# --- facts about the run ------------------------------------------------------------------------


def environment(platform: str, peer_versions: dict[str, str]) -> dict:
    """What must be known to judge the figures: device, versions, flags, date."""
    device = jax.devices()[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "platform": platform,
        "device": cpu_name() if platform == "cpu" else device.device_kind,
        "cores": os.cpu_count(),
        "runtime": str(device.client.platform_version).replace("\n", " "),
        "python": host.python_version(),
        "versions": {
            "jax_transpose": jax_transpose.__version__,
            "jax": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
            **peer_versions,
        },
        "flags": {name: os.environ.get(name, "") for name in ("XLA_FLAGS", "JAX_PLATFORMS")},
    }


def cpu_name() -> str:
    """The processor's name, as Linux gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return host.processor() or host.machine()


# --- summary ------------------------------------------------------------------------------------


def geomean(values) -> float | None:
    """The geometric mean; None of nothing.

    >>> geomean([1.0, 4.0])
    2.0
    """
    values = list(values)
    if not values:
        return None
    return round(math.exp(sum(map(math.log, values)) / len(values)), 4)


def summary(records: list[dict]) -> dict:
    """Counts, geomeans of the ratios and the slowest cases relative to `jnp.transpose`."""
    timed = [r for r in records if r["status"] == "ok" and "ratio" in r]
    slowest = sorted((r for r in timed if "jnp" in r["ratio"]), key=lambda r: r["ratio"]["jnp"])
    return {
        "cases": len(records),
        "ok": sum(r["status"] == "ok" for r in records),
        "wrong": [r["name"] for r in records if r["status"] == "wrong"],
        "failed": [r["name"] for r in records if r["status"] == "failed"],
        "skipped": [r["name"] for r in records if r["status"] == "skipped"],
        "geomean": {
            against: geomean(r["ratio"][against] for r in timed if against in r["ratio"])
            for against in ("jnp", "copy", "peer")
        },
        "worst_five_over_jnp": [[r["name"], r["ratio"]["jnp"]] for r in slowest[:5]],
        "worst_five_over_copy": [
            [r["name"], r["ratio"]["copy"]]
            for r in sorted(
                (r for r in timed if "copy" in r["ratio"]), key=lambda r: r["ratio"]["copy"]
            )[:5]
        ],
    }


def last_line(total: dict) -> str:
    """The line that a run ends with, in rich markup.

    >>> last_line({"cases": 2, "ok": 2, "wrong": [], "failed": [], "skipped": [],
    ...     "geomean": {"jnp": 1.2, "copy": 0.9, "peer": None},
    ...     "worst_five_over_jnp": [["b", 0.97]]})
    '[bold green]2 of 2 cases byte-exact[/] · 1.20 x jnp.transpose, 0.90 x copy (geomean) · \
slowest against jnp.transpose: b, 0.97 x'
    """
    bad = total["wrong"] + total["failed"]
    colour = "bold red" if bad else "bold green"
    parts = [f"[{colour}]{total['ok']} of {total['cases']} cases byte-exact[/]"]
    if total["wrong"]:
        parts.append(f"[bold red]WRONG BYTES in {', '.join(total['wrong'])}[/]")
    if total["failed"]:
        parts.append(f"[bold red]FAILED: {', '.join(total['failed'])}[/]")
    if total["skipped"]:
        parts.append(f"skipped: {', '.join(total['skipped'])}")
    names = {"jnp": "jnp.transpose", "copy": "copy", "peer": "best peer"}
    means = [f"{v:.2f} x {names[k]}" for k, v in total["geomean"].items() if v is not None]
    if means:
        parts.append(f"{', '.join(means)} (geomean)")
    if total["worst_five_over_jnp"]:
        name, ratio = total["worst_five_over_jnp"][0]
        parts.append(f"slowest against jnp.transpose: {name}, {ratio:.2f} x")
    return " · ".join(parts)


# --- tables -------------------------------------------------------------------------------------


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
    table.add_column("bytes")
    for r in records:
        speeds, ratio, plan = r.get("gbs", {}), r.get("ratio", {}), r.get("plan", {})
        mark = {"ok": "[green]exact[/]", "wrong": "[bold red]WRONG[/]"}.get(
            r["status"], f"[red]{r['status']}[/]"
        )
        kernel = plan.get("kernel", "?")
        if plan.get("tile"):
            kernel += f"/{plan['tile']}"
        table.add_row(
            r["name"],
            shape_text(r["shape"], r["axes"]),
            r["dtype"],
            kernel,
            *(_number(speeds.get(name)) for name in columns),
            _ratio(ratio.get("copy")),
            _ratio(ratio.get("jnp")),
            mark,
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    colour = "green" if value >= 1.02 else "red" if value < 0.9 else "default"
    return f"[{colour}]{value:.2f}[/]"


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


# --- files --------------------------------------------------------------------------------------


def write_json(path: str, document: dict) -> None:
    """Writes a run: one line per record, so that diffs are readable and files stay small."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list):
            body = ",\n".join(json.dumps(item, ensure_ascii=False) for item in value)
            lines.append(f"{json.dumps(key)}: [\n{body}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read_json(path: str) -> dict:
    """A document written by `write_json`; ValueError names the file where it is none."""
    try:
        document = json.loads(Path(path).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {document.get('schema')!r}, this bench reads {SCHEMA}")
    return document


# --- comparison ---------------------------------------------------------------------------------


def speeds(document: dict) -> dict[tuple, float]:
    """Our GB/s by case, from a suite's or a ladder's document."""
    out = {}
    for r in document.get("records", []):
        if "gbs" in r:
            key = (r["name"], tuple(r["shape"]), tuple(r["axes"]), r["dtype"])
            out[key] = r["gbs"]["ours"]
    for table in document.get("tables", []):
        for name, row in table["rows"].items():
            if "gbs" in row and name not in ("copy", "jnp.transpose"):
                out[(name, table["size"], table["dtype"])] = row["gbs"]
    return out


def compare(old: dict, new: dict, threshold: float = THRESHOLD) -> dict:
    """Cases of both runs whose speed fell, and rose, by more than `threshold`.

    >>> row = {"name": "a", "shape": [2], "axes": [0], "dtype": "uint8"}
    >>> old = {"records": [row | {"gbs": {"ours": 100.0}}], "environment": {"device": "x"}}
    >>> new = {"records": [row | {"gbs": {"ours": 90.0}}], "environment": {"device": "x"}}
    >>> compare(old, new)["slower"]
    [('a uint8', 0.9)]
    """
    before, after = speeds(old), speeds(new)
    common = [key for key in after if key in before]
    changes = [(f"{key[0]} {key[-1]}", round(after[key] / before[key], 4)) for key in common]
    return {
        "same_device": old["environment"]["device"] == new["environment"]["device"],
        "compared": len(common),
        "slower": sorted((c for c in changes if c[1] < 1 - threshold), key=lambda c: c[1]),
        "faster": sorted((c for c in changes if c[1] > 1 + threshold), key=lambda c: -c[1]),
        "geomean": geomean(ratio for _, ratio in changes),
    }


def print_compare(console: Console, found: dict, path: str, threshold: float) -> None:
    """What changed since the older run."""
    console.print(f"\n[bold]Against {escape(path)}[/]: {found['compared']} cases in both runs")
    if not found["same_device"]:
        console.print("  [yellow]the older run is from another device: not comparable[/]")
    for name, ratio in found["slower"]:
        console.print(f"  [bold red]REGRESSION {escape(name)}: {ratio:.3f} of the older speed[/]")
    for name, ratio in found["faster"]:
        console.print(f"  [green]faster {escape(name)}: {ratio:.3f} x[/]")
    if found["compared"] and not found["slower"]:
        console.print(f"  [green]no case slower by more than {threshold:.0%}[/]")
