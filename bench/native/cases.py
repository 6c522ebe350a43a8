"""Prints suite cases in the form that `sweep` reads.

python -m bench.native.cases --suite hard --width 4 --kernel auto | build/.../sweep
"""

from __future__ import annotations

import argparse

from bench.cases import element_bits, load_suite, with_dtype

UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="hard", help="ttc57, hard or the path of a .json file")
    parser.add_argument("--width", type=int, choices=UNSIGNED, help="element bytes, for every case")
    parser.add_argument("--kernel", default="auto", help="comma-separated kernel[:tile]")
    parser.add_argument("--name", default="", help="only cases whose name contains this")
    options = parser.parse_args()
    for case in load_suite(options.suite, "gpu"):
        if options.name not in case.name or element_bits(case.dtype) < 8:
            continue
        if options.width:
            case = with_dtype(case, UNSIGNED[options.width])
        for choice in options.kernel.split(","):
            kernel, _, tile = choice.partition(":")
            numbers = [len(case.shape), *case.shape, *case.axes]
            width = element_bits(case.dtype) // 8
            print(case.name, width, kernel, tile or 0, *numbers)


if __name__ == "__main__":
    main()
