"""A run against an older one, and several runs as one."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from .report import geomean, summary

THRESHOLD = 0.03


def speeds(document: dict) -> dict[tuple, float]:
    """Our speed by case: GB/s of a suite's or a ladder's document, of small arrays that over XLA's.

    Small arrays: only ratios within a run say something, for the host's clocks and load change.
    """
    out = {}
    if document.get("kind") == "small":
        return _small_speeds(document)
    for r in document.get("records", []):
        if "ours" in r.get("gbs", {}):
            key = (r["name"], tuple(r["shape"]), tuple(r["axes"]), r["dtype"])
            out[key] = r["gbs"]["ours"]
    for table in document.get("tables", []):
        for name, row in table["rows"].items():
            if "gbs" in row and name not in ("copy", "jnp.transpose"):
                out[(name, table["size"], table["dtype"])] = row["gbs"]
    return out


def _small_speeds(document: dict) -> dict[tuple, float]:
    out = {}
    for r in document["records"]:
        for clock, ratios in r["auto_over_xla"].items():
            for program, ratio in ratios.items():
                out[(f"{r['n']}² {program}, {r['mode']}, {clock}", r["dtype"])] = 1 / ratio
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
    mean = f", {found['geomean']:.3f} x its speed (geomean)" if found["compared"] else ""
    console.print(
        f"\n[bold]Against {escape(path)}[/]: {found['compared']} cases in both runs{mean}"
    )
    if not found["same_device"]:
        console.print("  [yellow]the older run is from another device: not comparable[/]")
    if not found["compared"]:
        console.print("  [yellow]no case is in both: another suite, dtype or seed?[/]")
    for name, ratio in found["slower"]:
        console.print(f"  [bold red]REGRESSION {escape(name)}: {ratio:.3f} of the older speed[/]")
    for name, ratio in found["faster"]:
        console.print(f"  [green]faster {escape(name)}: {ratio:.3f} x[/]")
    if found["compared"] and not found["slower"]:
        console.print(f"  [green]no case slower by more than {threshold:.0%}[/]")


# What the parts of one run have in common.
_SAME = ("kind", "suite", "kernel", "dtype", "width", "seed", "max_bytes")


def join(documents: list[dict]) -> dict:
    """The parts of a suite's run (`--shard`, `--start`) as one document.

    Of a case that several parts have, the last record counts. Raises ValueError where the parts
    are not of one suite, device and version.
    """
    first = documents[0]
    if any(document["kind"] != "suite" for document in documents):
        raise ValueError("FILES: only runs of suites can be joined")
    for document in documents[1:]:
        differs = [name for name in _SAME if document.get(name) != first.get(name)]
        for name in ("device", "versions"):
            if document["environment"][name] != first["environment"][name]:
                differs.append(name)
        if differs:
            raise ValueError(f"FILES: not parts of one run, they differ in {', '.join(differs)}")
    records = {}
    for document in documents:
        for r in document["records"]:
            records[(r["name"], tuple(r["shape"]), tuple(r["axes"]), r["dtype"])] = r
    joined = list(records.values())
    return {
        **first,
        "part": [document.get("part") for document in documents],
        "complete": len(joined) >= first.get("suite_cases", 0),
        "summary": summary(joined),
        "records": joined,
    }
