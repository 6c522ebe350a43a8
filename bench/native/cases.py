"""Prints suite cases in the form that `sweep` reads.

python -m bench.native.cases --suite hard --width 4 --kernel auto | build/.../sweep
python -m bench.native.cases --suite random --seed 1 --count 200 | build/.../sweep
"""

from __future__ import annotations

import argparse

from bench.cases import WIDTH_DTYPES, element_bits, part, select
from bench.options import add_drawing, shard, size


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--suite", default="hard", help="ttc57, hard, random or the path of a .json file"
    )
    parser.add_argument(
        "--width", type=int, choices=tuple(WIDTH_DTYPES), help="element bytes, for every case"
    )
    parser.add_argument("--kernel", default="auto", help="comma-separated kernel[:tile]")
    parser.add_argument("--name", default="", help="only cases whose name contains this")
    parser.add_argument("--max-bytes", type=size, help="the largest array, e.g. 256M")
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="I/N", help="a part")
    add_drawing(parser)
    options = parser.parse_args(argv)
    chosen = select(
        options.suite,
        "gpu",
        width=options.width,
        max_bytes=options.max_bytes,
        seed=options.seed,
        count=options.count,
    )
    for case in part(chosen, options.shard):
        if options.name not in case.name or element_bits(case.dtype) < 8:
            continue
        for choice in options.kernel.split(","):
            kernel, _, tile = choice.partition(":")
            numbers = [len(case.shape), *case.shape, *case.axes]
            width = element_bits(case.dtype) // 8
            print(case.name, width, kernel, tile or 0, *numbers)


if __name__ == "__main__":
    main()
