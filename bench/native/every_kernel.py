"""Prints small cases of every CUDA kernel and width in the form that `sweep` reads.

For compute-sanitizer, under which the large cases of the suites would take hours:

python -m bench.native.every_kernel > cases.txt
build/.../sweep < cases.txt
compute-sanitizer --tool memcheck build/.../sweep --exact < cases.txt
compute-sanitizer --tool memcheck build/.../sweep --exact --shift 1 < cases.txt
compute-sanitizer --tool racecheck build/.../sweep --exact < cases.txt
"""

from __future__ import annotations

from collections.abc import Iterator

import jax_transpose

# Rows on 16-byte boundaries, rows on none, and a batch with short sides.
EXCHANGED = (
    ((160, 192), (1, 0)),
    ((131, 77), (1, 0)),
    ((3, 70, 5, 96), (3, 2, 1, 0)),
)
# Whole tiles of `shifted` and what hangs over; either side aligned alone.
UNALIGNED = (
    ((300, 259), (1, 0)),
    ((256, 259), (1, 0)),
    ((259, 256), (1, 0)),
    ((2, 301, 515), (0, 2, 1)),
)
KEPT = (((6, 5, 160), (1, 0, 2)), ((6, 5, 33), (1, 0, 2)), ((7, 3, 5, 11), (2, 0, 1, 3)))
SQUARE = (
    ((160, 160), (1, 0)),
    ((131, 131), (1, 0)),
    ((3, 65, 65), (0, 2, 1)),
    ((50, 7, 7), (0, 2, 1)),
    ((40, 40, 12), (1, 0, 2)),
)
# Arrays that end within a word, after each number of bytes, whatever the width.
ODD_ENDS = (
    ((65, 67), (1, 0)),
    ((3, 67, 71), (2, 0, 1)),
    ((129, 133), (1, 0)),
    ((129, 135), (1, 0)),
)
SUB_BYTE = (
    ((256, 192), (1, 0)),
    ((131, 77), (1, 0)),
    ((5, 33, 64), (1, 0, 2)),
    ((129, 131), (1, 0)),
    ((129, 137), (1, 0)),
    ((7, 5, 11), (2, 0, 1)),
)


def lines() -> Iterator[str]:
    """One line a case: name, element bytes, kernel, tile, rank, shape and axes.

    >>> next(lines())
    'naive 1 naive 0 2 160 192 1 0'
    """
    for width in (1, 2, 4, 8, 16):
        for kernel in jax_transpose.kernels("cuda"):
            moves = KEPT if kernel == "rows" else (*EXCHANGED, *ODD_ENDS)
            moves += UNALIGNED if kernel == "shifted" else ()
            yield from (_line(kernel, width, move) for move in moves)
        yield from (_line("in_place", width, move) for move in SQUARE)
    for width in (0.5, 0.25):
        yield from (_line("auto", width, move) for move in (*SUB_BYTE, *ODD_ENDS))


def _line(kernel: str, width: float, move: tuple) -> str:
    shape, axes = move
    return " ".join(map(str, (kernel, width, kernel, 0, len(shape), *shape, *axes)))


if __name__ == "__main__":
    print("\n".join(lines()))
