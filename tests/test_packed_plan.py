"""The CUDA kernels `packed` and `rows`, thread by thread on the host.

Their index arithmetic compiles for both, so each element is seen to arrive, once and in place,
without a GPU.
"""

import math

import numpy as np
import pytest

from jax_transpose import _cpu

WIDTHS = (1, 2, 4, 8, 16)
SIDES = (2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 32, 33, 48, 64, 100)
# A shape each for the ways a tile can be cut, gathered and padded.
SHAPES = [
    ((1000, 3), (1, 0)),
    ((4099, 3), (1, 0)),
    ((3, 48 * 40), (1, 0)),
    ((5000, 33), (1, 0)),
    ((700, 4, 4), (0, 2, 1)),
    ((701, 3, 3), (0, 2, 1)),
    ((50, 100, 7), (0, 2, 1)),
    ((3, 4096, 3), (0, 2, 1)),
    ((9, 3, 1030), (0, 2, 1)),
    ((2, 3, 16 * 331), (0, 2, 1)),
    ((48, 7, 6, 5, 48), (4, 3, 2, 1, 0)),
    ((20, 22, 3, 5, 19, 24), (3, 0, 5, 2, 1, 4)),
    ((2,) * 12, (11, 0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9)),
    ((64, 48, 3), (1, 0, 2)),
    ((37, 5, 16, 12), (1, 0, 2, 3)),
    ((65, 67), (1, 0)),
    ((5, 3, 20000), (1, 0, 2)),
    ((5, 4, 1009), (1, 0, 2)),
    ((7, 13), (1, 0)),
]


def buffer(size, offset):
    """`size` writable bytes, `offset` past a 128-byte boundary, and all the bytes around them."""
    around = np.full(size + 256, 0xAB, np.uint8)
    start = -around.ctypes.data % 128 + 64 + offset
    return around[start : start + size], around


def check(shape, axes, width, kernel, offsets=(0, 0)):
    rng = np.random.default_rng(len(shape) * 1000 + width)
    x = rng.integers(0, 256, math.prod(shape) * width, dtype=np.uint8)
    want = x.reshape(*shape, width).transpose(*axes, len(shape)).reshape(-1)
    source, _ = buffer(x.size, offsets[0])
    target, around = buffer(x.size, offsets[1])
    source[:] = x
    kind = _cpu._emulate_cuda(source, target, list(shape), list(axes), width, kernel)
    if kind == "copy":
        # One copy of all bytes, which is not emulated, is right only where they keep their order.
        np.testing.assert_array_equal(x, want)
        return kind
    assert kind in ("packed", "rows"), f"{kind} moves {shape} {axes}"
    np.testing.assert_array_equal(target, want)
    target[:] = 0xAB
    assert (around == 0xAB).all(), "bytes outside the output were written"
    return kind


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape, axes", SHAPES)
def test_every_element_arrives(shape, axes, width):
    assert check(shape, axes, width, "packed") == "packed"


@pytest.mark.parametrize("width", WIDTHS[:-1])
@pytest.mark.parametrize("offsets", [(1, 0), (0, 1), (3, 1)])
def test_buffers_that_begin_anywhere(width, offsets):
    for shape, axes in SHAPES:
        assert check(shape, axes, width, "packed", tuple(width * n for n in offsets)) == "packed"


@pytest.mark.parametrize("kernel", ["packed", "rows"])
@pytest.mark.parametrize("width", WIDTHS)
def test_random_permutations(width, kernel):
    rng = np.random.default_rng(width)
    kinds = []
    for _ in range(40):
        rank = int(rng.integers(2, 7))
        shape = [int(side) for side in rng.choice(SIDES, rank)]
        while math.prod(shape) > 40_000:
            longest = shape.index(max(shape))
            shape[longest] = (shape[longest] + 1) // 2
        axes = tuple(int(a) for a in rng.permutation(rank))
        kinds.append(check(tuple(shape), axes, width, kernel))
    # `rows` moves what keeps its minor dimension; few permutations keep all.
    assert kinds.count("copy") < 12 and kernel in kinds


@pytest.mark.parametrize("width", WIDTHS)
def test_kept_runs_are_copied_whole(width):
    for shape in [(7, 9, 64), (5, 4, 1009), (33, 6, 256), (5, 3, 20000), (2, 3, 5, 77)]:
        axes = (1, 0, *range(2, len(shape)))
        assert check(shape, axes, width, "rows") == "rows"


@pytest.mark.parametrize(
    "shape, axes, width, kernel",
    [
        ((20_000_000, 3), (1, 0), 4, "packed"),
        ((4_194_304, 4, 4), (0, 2, 1), 4, "packed"),
        ((1700, 224, 224, 3), (0, 3, 1, 2), 1, "packed"),
        ((2,) * 26, tuple(range(25, -1, -1)), 4, "packed"),
        ((20, 22, 18, 21, 19, 24), (3, 0, 5, 2, 1, 4), 4, "packed"),
        ((48, 28, 28, 28, 48), (4, 3, 2, 1, 0), 4, "async_copy"),
        ((4096, 4096, 3), (1, 0, 2), 4, "packed"),
        ((8, 4096, 32, 128), (0, 2, 1, 3), 2, "rows"),
        ((8, 4096, 3, 16, 64), (2, 0, 3, 1, 4), 2, "rows"),
        ((400, 400, 400), (1, 0, 2), 4, "rows"),
        ((8192, 8192), (1, 0), 4, "async_copy"),
        ((8191, 8193), (1, 0), 4, "shifted"),
        ((400, 400, 400), (1, 2, 0), 4, "async_copy"),
    ],
)
def test_the_plan_picks_by_run_length(shape, axes, width, kernel):
    plan = _cpu.plan("cuda", list(shape), list(axes), width, "auto", 0)
    assert plan["kernel"] == kernel, plan["reason"]
    assert 32 <= plan["block"] <= 1024 and plan["grid"] >= 1
