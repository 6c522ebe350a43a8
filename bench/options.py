"""The command line's options; imports neither JAX nor the package."""

from __future__ import annotations

import argparse
import os

COMMANDS = {
    "suite": "(default) real shapes, or a suite by name",
    "random": "shapes and permutations drawn from a seed, against jnp.transpose",
    "ladder": "the classic table from naive to copy speed",
    "small": "what a transpose of a small array costs inside a program",
    "sharded": "over all devices, at least two",
    "cpu": "the CPU kernels between their ceilings and other libraries",
    "in_place": "within one buffer, beside two buffers and a copy",
    "report": "tables of the runs in FILES, joined; measures nothing",
}


def parser() -> argparse.ArgumentParser:
    """The command line; parse it with `parse_intermixed_args`."""
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="Verifies every byte and times jax_transpose against jnp.transpose, a copy of "
        "the same bytes and other libraries, on the device that is there.",
        epilog="Exit status: 1 when a byte was wrong or a case failed, 3 when --compare found a "
        "regression.",
    )
    text = "; ".join(f"{name}: {what}" for name, what in COMMANDS.items())
    top.add_argument("command", nargs="?", choices=tuple(COMMANDS), default="suite", help=text)
    top.add_argument("files", nargs="*", metavar="FILES", help="report: results of --json")
    top.add_argument(
        "--suite",
        help="curated (default), ttc57, hard, random, cpu (default of the command cpu), or the "
        "path of a .json file",
    )
    kind = top.add_mutually_exclusive_group()
    kind.add_argument(
        "--dtype",
        help="run every case in this dtype (f32, bf16, u8, ...); ladder, small, in_place: a list, "
        "f32,u8",
    )
    kind.add_argument(
        "--width", type=int, choices=(1, 2, 4, 8, 16), help="the same by element bytes"
    )
    top.add_argument(
        "--kernel", default="auto", help="auto (default), native, xla or one kernel kind"
    )
    top.add_argument(
        "--peers",
        help="list of numpy, torch, cupy, cutensor, or none; default: those that are there, for "
        "random none; name=PATH gives the folder to import from, or cuTENSOR's library",
    )
    top.add_argument(
        "--repeat",
        type=int,
        help="timed calls per case (default: CPU 15, GPU 30; cpu, and in_place on a CPU: 11)",
    )
    top.add_argument(
        "--max-bytes",
        type=size,
        help="the largest array, e.g. 16M, 1G; a larger case has dimensions halved until it fits "
        "(random: the upper end of the sizes drawn)",
    )
    top.add_argument("--json", metavar="OUT", help="write the results, kept up to date meanwhile")
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
    _drawing(top)
    _parts(top)
    _matrices(top)
    _cpu(top)
    return top


def _drawing(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("random")
    add_drawing(group)


def add_drawing(group) -> None:
    """`--seed` and `--count`, which `bench.native.cases` has too."""
    group.add_argument("--seed", type=int, default=0, help="of the cases drawn (default: 0)")
    group.add_argument("--count", type=int, default=200, help="cases to draw (default: 200)")


def _parts(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("parts of a long run", "suite, random and small")
    group.add_argument(
        "--shard", type=shard, default=(1, 1), metavar="I/N", help="the I-th of N parts of a suite"
    )
    group.add_argument("--start", type=int, default=0, help="leave out the part's first cases")
    group.add_argument(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="start no further case when this time is nearly up, and report those that ran",
    )


def _matrices(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("small and in_place")
    group.add_argument("--sizes", metavar="LIST", help="matrix sides, e.g. 64,512")
    group.add_argument(
        "--modes",
        metavar="LIST",
        help="small: default (XLA's own choice of what goes into CUDA graphs), graphs (every "
        "command in a graph; a process of its own); default: both on a GPU",
    )


def _cpu(top: argparse.ArgumentParser) -> None:
    group = top.add_argument_group("cpu")
    group.add_argument("--threads", type=int, help="cores to run on (default: all)")
    group.add_argument(
        "--hptt",
        metavar="PATH",
        default=os.environ.get("HPTT_LIBRARY"),
        help="libhptt.so (default: HPTT_LIBRARY of the environment; none: left out)",
    )


def size(text: str) -> int:
    """Bytes from "4096", "16M" or "1G".

    >>> size("16M")
    16777216
    """
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; e.g. 4096, 16M, 1G") from None


def shard(text: str) -> tuple[int, int]:
    """The part and the number of parts.

    >>> shard("2/4")
    (2, 4)
    """
    part, _, parts = text.partition("/")
    if part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts):
        return int(part), int(parts)
    raise argparse.ArgumentTypeError(f"{text!r} is no part; e.g. 1/4, the first of four")
