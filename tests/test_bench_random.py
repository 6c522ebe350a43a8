"""The random suite: what is drawn, that the seed fixes it, and its form for the native sweep."""

import math

import numpy as np
import pytest

import jax_transpose as jt
from bench import cases, draw
from bench.native import cases as native_cases

MIB = 1 << 20


@pytest.fixture(scope="module")
def drawn():
    return draw.cases(0, 210)


def test_the_seed_fixes_the_cases(drawn):
    assert draw.cases(0, 210) == drawn
    assert draw.cases(0, 40) == drawn[:40]
    assert not {c.shape for c in draw.cases(1, 210)} & {c.shape for c in drawn}
    # Written down once: a change of the generator makes older results incomparable.
    assert drawn[2] == cases.Case("r0_002", (16, 6576, 7, 48), (3, 0, 1, 2), "float32")


def test_every_rank_meets_every_width(drawn):
    pairs = {(len(c.shape), cases.element_bits(c.dtype) // 8) for c in drawn}
    assert pairs == {(rank, width) for rank in range(2, 9) for width in (1, 2, 4, 8, 16)}


@pytest.mark.parametrize("max_bytes", [2 * MIB, 1 << 30])
def test_sizes_are_spread_over_the_whole_range(max_bytes):
    sizes = [c.nbytes for c in draw.cases(3, 210, max_bytes)]
    assert min(sizes) >= MIB and max(sizes) <= max_bytes
    logs = np.log(np.array(sizes) / MIB) / math.log(max_bytes / MIB)
    assert np.histogram(logs, bins=4, range=(0, 1))[0].min() >= 20


def test_extents_are_of_every_kind(drawn):
    extents = [extent for c in drawn for extent in c.shape]
    large = [extent for extent in extents if extent > 9]
    assert sum(extent % 2 for extent in large) > 100
    assert sum(extent & (extent - 1) == 0 for extent in large) > 100
    assert {1, 2, 3, 4, 5, 7} <= set(extents)
    matrices = [c.shape for c in drawn if len(c.shape) == 2]
    assert any(min(shape) < 10 and max(shape) > 10_000 for shape in matrices)
    assert any(min(shape) > 256 for shape in matrices)


def test_no_case_is_the_identity(drawn):
    for case in drawn:
        assert sorted(case.axes) == list(range(len(case.shape)))
        plan = jt.explain(case.shape, case.axes, case.dtype, "cpu")
        assert plan.implementation != "identity", case


@pytest.mark.parametrize(
    "shape, axes", [((1, 7, 1, 5), (2, 1, 3, 0)), ((1, 7, 1, 5), (3, 1, 0, 2))]
)
def test_moves_agrees_with_the_plan(shape, axes):
    identity = jt.explain(shape, axes, "float32", "cpu").implementation == "identity"
    assert draw.moves(shape, axes) != identity


def test_a_width_is_drawn_at_that_width():
    chosen = cases.select("random", "gpu", width=16, count=35, max_bytes=64 * MIB)
    assert {c.dtype for c in chosen} == {"complex128"}
    assert all(MIB <= c.nbytes <= 64 * MIB for c in chosen)


@pytest.mark.parametrize("bad", [{"max_bytes": MIB}, {"count": 0}])
def test_what_cannot_be_drawn_is_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}={next(iter(bad.values()))}"):
        cases.select("random", "cpu", **bad)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_shards_are_the_whole(drawn, n):
    parts = [cases.part(drawn, (i, n)) for i in range(1, n + 1)]
    assert [case for part in parts for case in part] == drawn
    assert cases.part(drawn, (n, n), start=2) == parts[-1][2:]


def test_lines_for_the_native_sweep(drawn, capsys):
    arguments = "--suite random --seed 0 --count 70 --shard 2/2 --kernel auto,tiled:64"
    native_cases.main(arguments.split())
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 70
    for line, case in zip(lines[::2], drawn[35:70], strict=True):
        rank = len(case.shape)
        width = cases.element_bits(case.dtype) // 8
        assert line[:5] == [case.name, str(width), "auto", "0", str(rank)]
        assert tuple(map(int, line[5:])) == case.shape + case.axes
    assert [line[2:4] for line in lines[1::2]] == [["tiled", "64"]] * 35
