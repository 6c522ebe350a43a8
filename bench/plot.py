"""PNG plots of a run; matplotlib is imported only here."""

from __future__ import annotations

from pathlib import Path

_COLOURS = {"ours": "#1b7f5c", "jnp": "#4c72b0", "copy": "#999999"}
_OTHERS = ("#dd8452", "#8172b3", "#937860", "#da8bc3")


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def suite(path: str, document: dict) -> None:
    """One bar per case and implementation, grouped by case."""
    records = [r for r in document["records"] if "gbs" in r]
    names = list(dict.fromkeys(name for r in records for name in r["gbs"]))
    labels = [f"{r['name']} {r['dtype']}" for r in records]
    groups = [(name, [r["gbs"].get(name, 0) for r in records]) for name in names]
    _bars(path, labels, groups, _title(document, f"suite {document['suite']}"))


def ladder(path: str, document: dict) -> None:
    """One group of bars per rung, one bar per size and dtype."""
    tables = document["tables"]
    rungs = list(dict.fromkeys(name for table in tables for name in table["rows"]))
    groups = [
        (
            f"{table['size']}² {table['dtype']}",
            [table["rows"].get(rung, {}).get("gbs", 0) for rung in rungs],
        )
        for table in tables
    ]
    _bars(path, rungs, groups, _title(document, "from naive to copy speed"))


def _title(document: dict, what: str) -> str:
    env = document["environment"]
    return f"jax_transpose {env['versions']['jax_transpose']}, {what}\n{env['device']}"


def _bars(path: str, labels: list[str], groups: list[tuple[str, list[float]]], title: str) -> None:
    """Horizontal bars: `groups` is [(legend, one value per label)]."""
    plt = _pyplot()
    thickness = 0.8 / max(1, len(groups))
    height = max(3.0, 0.16 * len(labels) * (len(groups) + 1) + 1.2)
    figure, axes = plt.subplots(figsize=(9, min(height, 40)))
    spare = iter(_OTHERS * 8)
    for i, (name, values) in enumerate(groups):
        where = [row + (i - (len(groups) - 1) / 2) * thickness for row in range(len(labels))]
        colour = _COLOURS.get(name) or next(spare)
        axes.barh(where, values, height=thickness, label=name, color=colour)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("GB/s, bytes read + written")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)
