"""`python -m bench`: verify and time `jax_transpose` on the device that is there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

WRONG, SLOWER = 1, 3


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="Verifies every byte and times jax_transpose against jnp.transpose, a copy of "
        "the same bytes and other libraries, on the device that is there.",
        epilog="Exit status: 1 when a byte was wrong or a case failed, 3 when --compare found a "
        "regression.",
    )
    top.add_argument(
        "command",
        nargs="?",
        choices=("suite", "ladder", "small"),
        default="suite",
        help="suite (default): real shapes; ladder: the classic table from naive to copy speed; "
        "small: what a transpose costs inside a program",
    )
    top.add_argument(
        "--suite",
        default="curated",
        help="curated (default), ttc57, hard, or the path of a .json file",
    )
    kind = top.add_mutually_exclusive_group()
    kind.add_argument(
        "--dtype",
        help="run every case in this dtype (f32, bf16, u8, ...); ladder: a list, f32,u8,bf16",
    )
    kind.add_argument(
        "--width", type=int, choices=(1, 2, 4, 8, 16), help="the same by element bytes"
    )
    top.add_argument(
        "--kernel", default="auto", help="auto (default), native, xla or one kernel kind"
    )
    top.add_argument(
        "--peers",
        help="list of numpy, torch, cupy, cutensor, or none; default: those that are there",
    )
    top.add_argument("--repeat", type=int, help="timed calls per case (default: CPU 15, GPU 30)")
    top.add_argument(
        "--max-bytes", type=_size, help="halve dimensions until a case fits, e.g. 16M, 1G"
    )
    top.add_argument("--json", metavar="OUT", help="write the results")
    top.add_argument("--plot", metavar="OUT.png", help="draw the results")
    top.add_argument(
        "--compare", metavar="OLD.json", help="flag cases that got slower than in that run"
    )
    top.add_argument(
        "--threshold",
        type=float,
        default=3.0,
        help="per cent that --compare tolerates (default: 3)",
    )
    return top


def _size(text: str) -> int:
    """Bytes from "4096", "16M" or "1G"."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; e.g. 4096, 16M, 1G") from None


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    command = parser()
    options = command.parse_args(argv)
    _prefer_installed()
    try:
        import rich  # noqa: F401

        import jax_transpose  # noqa: F401
    except ImportError as error:
        print(f"bench: {error}. Install the package and the bench's needs first (README.md).")
        return WRONG
    from . import app

    try:
        return app.run(options)
    except ValueError as error:
        command.error(str(error))


def _prefer_installed() -> None:
    """Lets an installed jax_transpose win over the clone's sources, which hold no built modules."""
    clone = Path(__file__).resolve().parent.parent
    if any((clone / "jax_transpose").glob("_cpu*.so")):
        return
    here = [entry for entry in sys.path if Path(entry or ".").resolve() == clone]
    sys.path[:] = [entry for entry in sys.path if entry not in here] + here


if __name__ == "__main__":
    sys.exit(main())
