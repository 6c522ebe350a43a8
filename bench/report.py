"""The document of a run: facts about it, its summary, JSON."""

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

import jax_transpose

from . import retime

SCHEMA = 1
NOISE = 0.02
AGAINST = ("jnp", "copy", "peer")


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


def timed(records: list[dict]) -> list[dict]:
    """The records of cases that were right and have ratios."""
    return [r for r in records if r["status"] == "ok" and "ratio" in r]


def worst(records: list[dict], against: str, count: int | None = None) -> list[dict]:
    """The records with the lowest ratios to "jnp", "copy" or "peer", lowest first."""
    have = [r for r in timed(records) if against in r["ratio"]]
    return sorted(have, key=lambda r: r["ratio"][against])[:count]


def summary(records: list[dict]) -> dict:
    """Counts, geomeans of the ratios, the lowest ratios, and every case below `jnp.transpose`."""

    def pairs(found, against):
        return [[r["name"], r["ratio"][against]] for r in found]

    good = timed(records)
    by_jnp = worst(records, "jnp")
    return {
        "cases": len(records),
        "ok": sum(r["status"] == "ok" for r in records),
        "wrong": [r["name"] for r in records if r["status"] == "wrong"],
        "failed": [r["name"] for r in records if r["status"] == "failed"],
        "skipped": [r["name"] for r in records if r["status"] == "skipped"],
        "retimed": [r["name"] for r in records if "retimed" in r],
        "geomean": {
            against: geomean(r["ratio"][against] for r in good if against in r["ratio"])
            for against in AGAINST
        },
        "slower_than_jnp": pairs([r for r in by_jnp if r["ratio"]["jnp"] < 1 - NOISE], "jnp"),
        **{
            f"worst_five_over_{against}": pairs(worst(records, against, 5), against)
            for against in AGAINST
        },
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
    color = "bold red" if bad else "bold green"
    parts = [f"[{color}]{total['ok']} of {total['cases']} cases byte-exact[/]"]
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


def retimed(records: list[dict]) -> str:
    """How many cases were timed twice, by which rule, and what it changed.

    >>> row = {"retimed": "close", "us": {"ours": 2.0, "jnp": 2.0}}
    >>> retimed([row | {"first_us": {"ours": 2.0, "jnp": 2.06}}, {"us": {"ours": 1.0}}])
    'timed twice (ours and jnp.transpose within 5% of each other, or quartiles more than 10% \
apart): 1 of 2 cases; their ours/jnp by the first timing: 1.030 (geomean), by the second: 1.000'
    """
    if old := sum("remeasured" in r for r in records):
        return f"timed twice for looking slower, by the rule of older runs: {old} cases"
    twice = [r for r in records if "retimed" in r and "us" in r]
    rule = f"ours and jnp.transpose {retime.RULE}"
    text = f"timed twice ({rule}): {len(twice)} of {len(records)} cases"
    if not twice:
        return text
    first, second = (
        geomean(r[key]["jnp"] / r[key]["ours"] for r in twice) for key in ("first_us", "us")
    )
    means = f"by the first timing: {first:.3f} (geomean), by the second: {second:.3f}"
    return f"{text}; their ours/jnp {means}"


def byte_exact(records: list[dict]) -> str:
    """How many records have nothing in "wrong", in rich markup.

    >>> byte_exact([{"wrong": []}, {"wrong": ["out="]}])
    '[bold red]1 of 2 cases byte-exact[/]'
    """
    right = sum(not r["wrong"] for r in records)
    color = "bold green" if right == len(records) else "bold red"
    return f"[{color}]{right} of {len(records)} cases byte-exact[/]"


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
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # A run may be killed at any time: the older file stays whole until the new one is.
    draft = target.with_name(target.name + ".part")
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    draft.replace(target)


def read_json(path: str) -> dict:
    """A document written by `write_json`; ValueError names the file where it is none."""
    try:
        document = json.loads(Path(path).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {document.get('schema')!r}, this bench reads {SCHEMA}")
    return document
