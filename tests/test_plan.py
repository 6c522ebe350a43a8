"""The plan's canonical form describes the same movement of bytes as the permutation.

No program is compiled here, so many cases are cheap.
"""

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from built import needs_cuda_module, planned_platforms

import jax_transpose as jt
from jax_transpose import _cpu

WIDTHS = {"uint8": 1, "bfloat16": 2, "float32": 4, "float64": 8, "complex128": 16}


def plan_of(shape, axes, name="float32", platform="cpu", kernel="native"):
    return jt.explain(shape, axes, name, platform, kernel=kernel)


@st.composite
def permutations(draw, max_rank=7, max_side=5):
    rank = draw(st.integers(1, max_rank))
    shape = tuple(draw(st.lists(st.integers(1, max_side), min_size=rank, max_size=rank)))
    return shape, tuple(draw(st.permutations(range(rank))))


@planned_platforms
@hypothesis.settings(max_examples=200)
@hypothesis.given(case=permutations(), name=st.sampled_from(list(WIDTHS)))
def test_the_canonical_form_moves_the_same_bytes(platform, case, name):
    shape, axes = case
    plan = plan_of(shape, axes, name, platform)
    width, count = WIDTHS[name], math.prod(shape)
    x = np.random.default_rng(0).integers(0, 256, (count, width), dtype=np.uint8)
    want = x.view(f"V{width}").reshape(shape).transpose(axes).tobytes()
    if plan.implementation == "identity":
        assert x.tobytes() == want
        return
    assert plan.element_bytes % width == 0 and plan.element_bytes <= 16
    assert math.prod(plan.canonical_shape) * plan.element_bytes == count * width
    wide = x.reshape(-1).view(f"V{plan.element_bytes}").reshape(plan.canonical_shape)
    assert wide.transpose(plan.canonical_axes).tobytes() == want


@hypothesis.settings(max_examples=200)
@hypothesis.given(case=permutations())
def test_the_canonical_form_cannot_be_made_smaller(case):
    plan = plan_of(*case)
    if plan.implementation == "identity":
        return
    assert 1 not in plan.canonical_shape
    axes = plan.canonical_axes
    assert sorted(axes) == list(range(len(plan.canonical_shape)))
    assert all(b != a + 1 for a, b in itertools.pairwise(axes)), plan


@pytest.mark.parametrize(
    "shape, axes, canonical",
    [
        # Adjacent axes that stay adjacent are one axis.
        ((10, 10, 10, 100, 10, 10, 10), (3, 0, 1, 2, 4, 5, 6), ((1000, 100, 1000), (1, 0, 2))),
        ((2, 3, 4, 5), (2, 3, 0, 1), ((6, 20), (1, 0))),
        # Axes of size 1 go by value, not by position.
        ((2, 1, 3, 1, 4), (3, 2, 0, 4, 1), ((2, 3, 4), (1, 0, 2))),
        ((5, 1, 7), (2, 1, 0), ((5, 7), (1, 0))),
        ((2, 3, 4), (2, 1, 0), ((2, 3, 4), (2, 1, 0))),
        ((2,) * 22, (*range(11, 22), *range(11)), ((2048, 2048), (1, 0))),
    ],
)
def test_merging(shape, axes, canonical):
    plan = plan_of(shape, axes, "complex128")  # 16 bytes wide: nothing to widen
    assert (plan.canonical_shape, plan.canonical_axes) == canonical


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((1, 1, 1), (2, 0, 1)),
        ((1, 7, 1), (2, 1, 0)),
        ((4, 1, 5), (0, 2, 1)),
        ((), ()),
        ((9,), (0,)),
    ],
)
def test_what_only_moves_size_1_axes_is_the_identity(shape, axes):
    assert plan_of(shape, axes).implementation == "identity"


@pytest.mark.parametrize(
    "name, kept, width",
    [
        ("uint8", 3, 1),
        ("uint8", 2, 2),
        ("uint8", 12, 4),
        ("uint8", 64, 16),
        ("bfloat16", 4, 8),
        ("float32", 2, 8),
        ("float32", 3, 4),
        ("float64", 6, 16),
        ("complex128", 5, 16),
    ],
)
def test_a_kept_minor_run_is_moved_as_wider_elements(name, kept, width):
    plan = plan_of((7, 5, kept), (1, 0, 2), name)
    assert plan.element_bytes == width
    run = kept * WIDTHS[name] // width
    want = ((7, 5), (1, 0)) if run == 1 else ((7, 5, run), (1, 0, 2))
    assert (plan.canonical_shape, plan.canonical_axes) == want


def test_no_widening_across_a_moved_minor_axis():
    assert plan_of((4, 8), (1, 0), "uint8").element_bytes == 1


@needs_cuda_module
@pytest.mark.parametrize("kind", [k for k in jt.kernels("cuda") if k != "naive"])
def test_grids_of_huge_operands_do_not_wrap(kind):
    plan = plan_of((1 << 16, 1 << 16), (1, 0), "uint8", "cuda", kind)
    assert plan.bytes_moved == 1 << 33
    assert 1 <= plan.grid < 1 << 31
    skinny = plan_of((1 << 31, 2), (1, 0), "uint8", "cuda", kind)
    assert skinny.bytes_moved == 1 << 33
    assert 1 <= skinny.grid < 1 << 31


REASONS = {
    "cpu": [
        ((7, 5, 64), (1, 0, 2), "native", "rows", "the minor dimension is kept: runs are copied"),
        ((1000, 3), (1, 0), "native", "interleave", "a side of a few adjacent elements"),
        ((3, 1000), (1, 0), "native", "interleave", "a side of a few adjacent elements"),
        ((99, 7, 5), (0, 2, 1), "native", "tiny", "a batch of small matrices"),
        ((100, 200), (1, 0), "native", "blocked", "exchanged: cache-blocked tiles"),
        ((30, 40, 50), (2, 1, 0), "native", "blocked", "exchanged: cache-blocked tiles"),
        ((9, 8, 7), (2, 1, 0), "blocked", "blocked", "asked for by name"),
        ((9, 8, 7), (2, 1, 0), "rows", "naive", "asked for 'rows', but the minor dimension moves"),
        ((100, 200), (1, 0), "interleave", "blocked", "asked for 'interleave', but no side is"),
        ((0, 5), (1, 0), "native", "copy", "no elements"),
        ((1, 5), (1, 0), "native", "copy", "keeps the order"),
    ],
    "cuda": [
        ((7, 5, 64), (1, 0, 2), "native", "rows", "the minor dimension is kept: its runs are"),
        ((7, 5, 3), (1, 0, 2), "native", "packed", "the minor dimension is kept but short"),
        ((4096, 2048), (1, 0), "native", "async_copy", "asynchronous 16-byte copies"),
        ((8191, 4095), (1, 0), "native", "shifted", "rows are not on 32-byte boundaries"),
        ((1000, 3), (1, 0), "native", "packed", "minor dimensions are exchanged and short"),
        ((9, 8, 7), (2, 1, 0), "tiled", "tiled", "asked for by name"),
        ((9, 8, 7), (2, 1, 0), "rows", "packed", "asked for 'rows', but the minor dimension moves"),
        ((7, 5, 64), (1, 0, 2), "shifted", "vectorized", "asked for 'shifted', but there are no"),
        ((1, 5), (1, 0), "native", "copy", "keeps the order"),
    ],
}


@pytest.mark.parametrize(
    "platform, shape, axes, asked, kernel, reason",
    [(platform, *case) for platform, cases in REASONS.items() for case in cases],
)
def test_the_reason_is_that_of_the_case(platform, shape, axes, asked, kernel, reason):
    plan = _cpu.plan(platform, shape, axes, 4, asked, 0)
    assert plan["kernel"] == kernel and reason in plan["reason"]
    others = {case[4] for case in REASONS[platform]} - {reason}
    assert not any(other in plan["reason"] for other in others)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@hypothesis.settings(max_examples=200)
@hypothesis.given(case=permutations(max_side=40), width=st.sampled_from([1, 2, 4, 8, 16]))
def test_reasons_tell_kept_from_exchanged_dimensions(platform, case, width):
    shape, axes = case
    plan = _cpu.plan(platform, shape, axes, width, "native", 0)
    moved = [axis for axis in axes if shape[axis] != 1]
    if moved == sorted(moved):
        assert "keeps the order" in plan["reason"]
    else:
        # A short kept run is part of a wider element: the canonical form then exchanges.
        kept = plan["canonical_axes"][-1] == len(plan["canonical_axes"]) - 1
        assert kept <= (moved[-1] == max(moved))
        assert ("minor dimension is kept" in plan["reason"]) == kept
        assert ("exchanged" in plan["reason"]) <= (not kept)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("shape, axes", [((16, 31), (1, 0)), ((7, 5, 9), (1, 2, 0))])
def test_auto_says_why_it_leaves_small_arrays(platform, shape, axes):
    """Below the crossover its reason is that; above, the plan's own. Both from one place."""
    for scale in (1, 1 << 16):
        grown = (scale * shape[0], *shape[1:])
        plan = _cpu.plan(platform, grown, axes, 1, "native", 0)
        crossover = "smaller than the platform's measured crossover" in plan["auto_reason"]
        assert crossover == (scale == 1)
        assert plan["prefer_xla"] == (plan["auto_reason"] not in plan["reason"])


@needs_cuda_module
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kind", jt.kernels("cuda"))
def test_predictions_lie_between_a_copy_and_forty_copies(kind, width):
    dtype = {1: "uint8", 2: "uint16", 4: "uint32", 8: "complex64", 16: "complex128"}[width]
    shape, axes = ((64, 512, 64), (1, 0, 2)) if kind == "rows" else ((4096, 2048), (1, 0))
    plan = plan_of(shape, axes, dtype, "cuda", kind)
    copy_us = plan.bytes_moved / 4.25e6  # 4.25 TB/s
    assert copy_us < plan.predicted_us < 40 * copy_us + 5
    assert "H200" in plan.predicted_on


@pytest.mark.parametrize(
    "case, measured_us",
    # Of bench/results/2026-11-30-h200-hard.json.
    [
        (((8192, 8192), (1, 0), "float32"), 131.0),
        (((16384, 16384), (1, 0), "uint8"), 134.0),
        (((8, 4096, 32, 128), (0, 2, 1, 3), "bfloat16"), 128.5),
        (((262144, 16, 16), (0, 2, 1), "float32"), 129.1),
    ],
)
@needs_cuda_module
def test_predictions_are_near_measured_times(case, measured_us):
    plan = plan_of(*case, "cuda")
    assert plan.predicted_us == pytest.approx(measured_us, rel=0.1)


@pytest.mark.parametrize(
    "shape, axes, name, implementation",
    [
        ((512, 512), (1, 0), "complex128", "native"),
        ((64, 64, 64), (2, 1, 0), "complex128", "xla"),  # 4 MiB
        ((96, 96, 96), (2, 1, 0), "complex128", "native"),  # 13.5 MiB
        ((64, 64, 64), (2, 1, 0), "float64", "native"),
        ((40000, 4, 4), (0, 2, 1), "float64", "xla"),  # 4.9 MiB of small matrices
        ((80000, 4, 4), (0, 2, 1), "float64", "native"),
        ((40000, 4, 4), (0, 2, 1), "float32", "native"),
        ((8, 16, 64), (1, 0, 2), "float32", "xla"),  # 32 KiB of kept runs
    ],
)
def test_what_auto_leaves_to_xla_on_a_cpu(shape, axes, name, implementation):
    assert plan_of(shape, axes, name, kernel="auto").implementation == implementation


def test_only_our_cuda_kernels_are_predicted():
    assert plan_of((4096, 4096), (1, 0), "float32", "cpu").predicted_us is None
    assert plan_of((16, 16), (1, 0), "float32", "cuda", "xla").predicted_us is None
