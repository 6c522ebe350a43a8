"""What `kernel="autotune"` measures: every candidate can be asked for, and is what then runs."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from jax_transpose import _cpu

WIDTHS = (1, 2, 4, 8, 16)
SHAPES = [
    ((60, 3333328), (1, 0)),
    ((3333328, 60), (1, 0)),
    ((131, 4099), (1, 0)),
    ((256, 4096), (1, 0)),
    ((33, 1000, 2048), (0, 2, 1)),
    ((12, 40, 7, 33), (2, 0, 3, 1)),
    ((30, 7, 64), (1, 0, 2)),
    ((5, 1000, 3), (1, 2, 0)),
]


@st.composite
def moves(draw):
    rank = draw(st.integers(2, 5))
    extent = st.one_of(
        st.integers(1, 9), st.integers(10, 300), st.sampled_from([16, 64, 128, 256, 1024, 4096])
    )
    shape = tuple(draw(st.lists(extent, min_size=rank, max_size=rank)))
    return shape, tuple(draw(st.permutations(range(rank))))


def check(shape, axes, width):
    candidates = _cpu.cuda_candidates(shape, axes, width)
    assert len(set(candidates)) == len(candidates)
    for kernel, tile in candidates:
        plan = _cpu.plan("cuda", shape, axes, width, kernel, tile)
        assert (plan["kernel"], plan["tile"]) == (kernel, tile), (shape, axes, width)
    return candidates


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape, axes", SHAPES)
def test_candidates_of_awkward_shapes_can_be_asked_for(shape, axes, width):
    candidates = check(shape, axes, width)
    chosen = _cpu.plan("cuda", shape, axes, width, "native", 0)
    assert (chosen["kernel"], chosen["tile"]) in candidates


@hypothesis.settings(max_examples=300)
@hypothesis.given(move=moves(), width=st.sampled_from(WIDTHS))
def test_candidates_can_be_asked_for(move, width):
    shape, axes = move
    candidates = check(shape, axes, width)
    kept = [axis for axis in axes if shape[axis] != 1]
    if kept != sorted(kept) and 0 not in shape:
        assert candidates


@pytest.mark.gpu
@pytest.mark.parametrize("width", WIDTHS)
def test_candidates_run(cuda, width):
    from jax_transpose import _cuda

    device = cuda.device.local_hardware_id
    for shape, axes in (((60, 33328), (1, 0)), ((131, 257), (1, 0)), ((12, 40, 7), (2, 0, 1))):
        candidates = _cpu.cuda_candidates(shape, axes, width)
        times = _cuda.measure(shape, axes, width, candidates, device)
        assert len(times) == len(candidates)
        assert np.isfinite(times).all() and min(times) > 0


@pytest.mark.gpu
def test_a_candidate_that_fails_is_infinitely_slow(cuda):
    from jax_transpose import _cuda

    device = cuda.device.local_hardware_id
    wanted = [("tiled", 32), ("gone", 0), ("vectorized", 64), ("naive", 0)]
    times = _cuda.measure((60, 33328), (1, 0), 1, wanted, device)
    assert np.isfinite(times).tolist() == [True, False, False, True]
    _cuda._force_launch_failure(True)
    try:
        assert np.isinf(_cuda.measure((60, 33328), (1, 0), 1, wanted, device)).all()
    finally:
        _cuda._force_launch_failure(False)
    assert np.isfinite(_cuda.measure((60, 33328), (1, 0), 1, wanted[:1], device)).all()


@pytest.mark.gpu
def test_measuring_needs_a_device_that_exists(cuda):
    from jax_transpose import _cuda

    with pytest.raises(RuntimeError, match="InvalidDevice"):
        _cuda.measure((60, 64), (1, 0), 4, [("tiled", 32)], 99)
    assert _cuda.can_run(cuda.device.local_hardware_id) == (True, "")
    runs, reason = _cuda.can_run(99)
    assert not runs and "InvalidDevice" in reason
