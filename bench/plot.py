"""PNG plots of a run; matplotlib is imported only here."""

from __future__ import annotations

from pathlib import Path

_COLORS = {"ours": "#1b7f5c", "jnp": "#4c72b0", "copy": "#999999"}
_OTHERS = ("#dd8452", "#8172b3", "#937860", "#da8bc3")


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def suite(path: str, document: dict) -> None:
    """One bar per case and implementation, grouped by case; random cases as dots."""
    if document["suite"] == "random":
        return _dots(path, document)
    records = [r for r in document["records"] if "gbs" in r]
    names = list(dict.fromkeys(name for r in records for name in r["gbs"]))
    labels = [f"{r['name']} {r['dtype']}" for r in records]
    groups = [(name, [r["gbs"].get(name, 0) for r in records]) for name in names]
    width = f", {document['width']} bytes an element" if document.get("width") else ""
    _bars(path, labels, groups, _title(document, f"suite {document['suite']}{width}"))


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


KINDS = {"suite": suite, "ladder": ladder}


def _title(document: dict, what: str) -> str:
    env = document["environment"]
    return f"jax_transpose {env['versions']['jax_transpose']}, {what}\n{env['device']}"


def _dots(path: str, document: dict) -> None:
    """Our speed over `jnp.transpose`'s by array size, one color per dtype."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(9, 5))
    records = [r for r in document["records"] if "jnp" in r.get("ratio", {})]
    for dtype in sorted({r["dtype"] for r in records}):
        chosen = [r for r in records if r["dtype"] == dtype]
        sizes = [r["bytes"] / 2**20 for r in chosen]
        axes.scatter(sizes, [r["ratio"]["jnp"] for r in chosen], s=14, label=dtype)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("MiB")
    axes.set_ylabel("speed over jnp.transpose")
    axes.set_title(_title(document, f"random cases, seed {document['seed']}"), fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, path)


def _bars(path: str, labels: list[str], groups: list[tuple[str, list[float]]], title: str) -> None:
    """Horizontal bars: `groups` is [(legend, one value per label)]."""
    plt = _pyplot()
    thickness = 0.8 / max(1, len(groups))
    height = max(3.0, 0.16 * len(labels) * (len(groups) + 1) + 1.2)
    figure, axes = plt.subplots(figsize=(9, min(height, 40)))
    spare = iter(_OTHERS * 8)
    for i, (name, values) in enumerate(groups):
        where = [row + (i - (len(groups) - 1) / 2) * thickness for row in range(len(labels))]
        color = _COLORS.get(name) or next(spare)
        axes.barh(where, values, height=thickness, label=name, color=color)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("GB/s, bytes read + written")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, path)


def _save(figure, path: str) -> None:
    figure.tight_layout()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    _pyplot().close(figure)
