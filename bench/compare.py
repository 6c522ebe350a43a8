"""A run against an older one, and several runs as one."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from . import cpu, in_place
from .report import geomean, summary

THRESHOLD = 0.03
#: Columns of "gbs" that are ours, by kind of document; in other kinds it is "ours".
OURS = {"cpu": cpu.OURS, "in_place": in_place.OURS}


def speeds(document: dict) -> dict[tuple, float]:
    """Our speed by case: GB/s, but of small arrays that over XLA's.

    Small arrays: only ratios within a run say something, for the host's clocks and load change.

    >>> row = {"side": 64, "dtype": "uint8", "gbs": {"in place": 2.0, "out=": 3.0, "copy": 4.0}}
    >>> speeds({"kind": "in_place", "records": [row]})
    {('64², in place', 'uint8'): 2.0, ('64², out=', 'uint8'): 3.0}
    """
    out = {}
    kind = document.get("kind")
    if kind == "small":
        return _small_speeds(document)
    for r in document.get("records", []):
        for column in OURS.get(kind, ("ours",)):
            if column in r.get("gbs", {}):
                out[_key(kind, r, column)] = r["gbs"][column]
    for table in document.get("tables", []):
        for name, row in table["rows"].items():
            if "gbs" in row and name not in ("copy", "jnp.transpose"):
                out[(name, table["size"], table["dtype"])] = row["gbs"]
    return out


def _key(kind: str | None, r: dict, column: str) -> tuple:
    """What a speed belongs to; the first and the last entry name it to the reader."""
    if kind == "in_place":
        return (f"{r['side']}², {column}", r["dtype"])
    name = r["name"]
    if kind == "cpu":
        name = f"{name}, {column}"
    elif kind == "sharded":  # one name for several shapes
        name = f"{name} {'x'.join(map(str, r['shape']))}"
    return (name, tuple(r["shape"]), tuple(r["axes"]), r["dtype"])


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
        "same_device": _device(old) == _device(new),
        "compared": len(common),
        "slower": sorted((c for c in changes if c[1] < 1 - threshold), key=lambda c: c[1]),
        "faster": sorted((c for c in changes if c[1] > 1 + threshold), key=lambda c: -c[1]),
        "geomean": geomean(ratio for _, ratio in changes),
    }


def _device(document: dict) -> tuple:
    """The device, and how many of it or of its cores a run used, where it says so."""
    return (document["environment"]["device"], document.get("devices"), document.get("threads"))


def print_compare(console: Console, found: dict, path: str, threshold: float) -> None:
    """What changed since the older run."""
    mean = f", {found['geomean']:.3f} x its speed (geomean)" if found["compared"] else ""
    console.print(
        f"\n[bold]Against {escape(path)}[/]: {found['compared']} cases in both runs{mean}"
    )
    if not found["same_device"]:
        console.print(
            "  [yellow]the older run is from another device, or another number of devices or "
            "threads: not comparable[/]"
        )
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
