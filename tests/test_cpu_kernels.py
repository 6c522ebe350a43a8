"""The CPU kernels on plain buffers: every width, instruction set and thread count, bit for bit.

Nothing is compiled by XLA here, so thousands of cases are cheap. One process a set: the choice is
made once, from the environment. JAX_TRANSPOSE_TEST_CASES says how many random cases each set gets.
"""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from jax_transpose import _cpu

WIDTHS = (1, 2, 4, 8, 16)
KINDS = _cpu.kernels("cpu")
CASES = int(os.environ.get("JAX_TRANSPOSE_TEST_CASES", "2000"))
GUARD = 128  # bytes on both sides of the output that no kernel may touch


def move(shape, axes, width, kernel="native", threads=1, large=False, shift=(0, 0), seed=0):
    """Runs one case and compares it with numpy. `shift`: elements off a line, in and out."""
    count = int(np.prod(shape, dtype=np.int64)) * width
    rng = np.random.default_rng(seed)
    source = rng.integers(0, 256, count + shift[0] * width, dtype=np.uint8)[shift[0] * width :]
    memory = np.full(count + 2 * GUARD + 128, 0xA5, np.uint8)
    start = GUARD + -(memory.ctypes.data + GUARD) % 64 + shift[1] * width
    target = memory[start : start + count]
    _cpu._run(source, target, list(shape), list(axes), width, kernel, threads, large)
    want = np.ascontiguousarray(source).view(f"V{width}").reshape(shape).transpose(axes).tobytes()
    case = (shape, axes, width, kernel, threads, large, shift, seed)
    assert target.tobytes() == want, case
    rest = np.concatenate([memory[:start], memory[start + count :]])
    assert (rest == 0xA5).all(), f"wrote outside the output: {case}"


def move_in_place(shape, axes, width, threads=1, large=False, shift=0, seed=0):
    """Runs one case within one buffer and compares it with numpy."""
    count = int(np.prod(shape, dtype=np.int64)) * width
    source = np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
    memory = np.full(count + 2 * GUARD + 128, 0xA5, np.uint8)
    start = GUARD + -(memory.ctypes.data + GUARD) % 64 + shift * width
    data = memory[start : start + count]
    data[:] = source
    _cpu._run(data, data, list(shape), list(axes), width, "native", threads, large)
    want = source.view(f"V{width}").reshape(shape).transpose(axes).tobytes()
    case = (shape, axes, width, threads, large, shift, seed)
    assert data.tobytes() == want, case
    rest = np.concatenate([memory[:start], memory[start + count :]])
    assert (rest == 0xA5).all(), f"wrote outside the buffer: {case}"


def random_swap(rng):
    """A case whose two sides of equal length are exchanged."""
    width = int(rng.choice(WIDTHS))
    batch, middle, run = (int(n) for n in rng.choice((1, 1, 2, 3, 8, 31), 3))
    side = int(2 ** rng.uniform(1, 10))
    while batch * middle * run * side**2 * width > 1 << 21:
        side = max(2, side // 2)
        batch = max(1, batch // 2)
        run = max(1, run // 2)
    return dict(
        shape=(batch, side, middle, side, run),
        axes=(0, 3, 2, 1, 4),
        width=width,
        threads=int(rng.integers(1, 5)),
        large=bool(rng.integers(2)),
        shift=int(rng.choice((0, 0, 1, 3, 8))),
        seed=int(rng.integers(1 << 30)),
    )


def random_case(rng):
    width = int(rng.choice(WIDTHS))
    rank = int(rng.integers(2, 8))
    size = 10 ** rng.uniform(0.5, 5.2)
    shape = [int(2 ** rng.uniform(0, 2 * np.log2(size) / rank + 1)) for _ in range(rank)]
    while np.prod(shape, dtype=np.int64) * width > 1 << 21:
        shape[int(np.argmax(shape))] //= 2
    return dict(
        shape=tuple(shape),
        axes=tuple(int(a) for a in rng.permutation(rank)),
        width=width,
        kernel=str(rng.choice(("native", "native", *KINDS))),
        threads=int(rng.integers(1, 5)),
        large=bool(rng.integers(2)),
        shift=tuple(int(s) for s in rng.choice((0, 0, 1, 3, 8), 2)),
        seed=int(rng.integers(1 << 30)),
    )


def run_random_cases(seed, count):
    rng = np.random.default_rng(seed)
    for i in range(count):
        if i % 5 == 0:
            move_in_place(**random_swap(rng))
        else:
            move(**random_case(rng))


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512", "generic"])
def test_random_cases_on_every_instruction_set(isa):
    if isa not in _cpu.isas():
        pytest.skip(f"this processor or build has no {isa}; it has {', '.join(_cpu.isas())}")
    script = (
        "from jax_transpose import _cpu; import test_cpu_kernels as t; "
        f"assert _cpu.isa() == {isa!r}, _cpu.isa(); t.run_random_cases(1, {CASES})"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "JAX_TRANSPOSE_ISA": isa, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_unknown_instruction_set_is_an_error():
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import jax_transpose"],
        env={
            **os.environ,
            "JAX_TRANSPOSE_ISA": "mmx",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "JAX_TRANSPOSE_ISA='mmx'" in done.stderr and _cpu.isas()[0] in done.stderr


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_sides_around_vectors_tiles_and_bands(width, large):
    """Sides just below, at and above what the kernels count in."""
    tile = 64 // width
    sides = {1, 2, 3, 5, 7, 8, 9, 16 // width + 1, tile - 1, tile, tile + 1, 4 * tile, 5 * tile + 3}
    for rows in sides:
        for cols in sides:
            move((rows, cols), (1, 0), width, large=large)
            move((3, rows, cols), (0, 2, 1), width, large=large, shift=(0, 1))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_and_columns_of_several_dimensions(width, large):
    """Short dimensions that make tiles together, whole and cut."""
    for inner, outer in itertools.product((2, 3, 5, 16 // width + 1), (2, 7, 64 // width + 1)):
        shape = (outer, inner, 3, outer, inner)
        move(shape, (4, 3, 2, 1, 0), width, large=large)
        move(shape, (3, 2, 4, 0, 1), width, large=large, shift=(1, 1))
        move((9, inner, outer), (0, 2, 1), width, large=large, shift=(0, 3))
    move((2,) * 14, tuple(reversed(range(14))), width, large=large)
    # The cut falls within a long dimension, and after few of its slices.
    move((41, 4, 7, 90, 3), (4, 0, 1, 3, 2), width, threads=2, large=large)
    move((5, 2, 176, 6), (0, 3, 2, 1), width, threads=2, large=large)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_cut_at_the_lines_of_the_output(width, threads):
    """Long rows of an odd pitch: neighboring blocks meet in the middle of a line."""
    for rows in (2048 // width + 1, 3 * 2048 // width + 5, 4096 // width - 1):
        for cols in (64 // width, 64 // width + 3, 200):
            for shift in ((0, 0), (0, 1), (1, 0), (3, 3)):
                move((rows, cols), (1, 0), width, threads=threads, large=True, shift=shift)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("side", range(2, 9))
def test_a_small_side(width, side):
    for length in (63, 64, 65, 1000, 4097):
        for large in (False, True):
            move((length, side), (1, 0), width, large=large)
            move((side, length), (1, 0), width, large=large)
            move((2, length, side), (0, 2, 1), width, large=large, threads=2)
    move((77, side, side), (0, 2, 1), width, large=True)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_small_matrices(width, large):
    """Matrices of a few vectors, adjacent and apart, fewer and more than move at once."""
    sides = {2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33}
    for rows, cols in itertools.product(sides, sides):
        if rows * cols * width > 5 * 64:
            continue
        for count in (1, 2, 3, 7, 40):
            move((count, rows, cols), (0, 2, 1), width, large=large, shift=(1, 3))
        move((3, 5, rows, cols), (1, 0, 3, 2), width, large=large)
        move((rows, 11, cols), (2, 1, 0), width, large=large)  # no matrix lies whole
    for shape in ((9, 2, 3, 4), (9, 4, 2, 2), (30, 2, 2, 2), (5, 3, 3, 3)):
        move(shape, (0, 3, 2, 1), width, large=large, shift=(0, 1))
        move(shape, (0, 3, 1, 2), width, large=large)


@pytest.mark.parametrize("run", [1, 2, 3, 5, 6, 7, 12, 16, 24, 31, 48, 64, 65, 100, 1500, 5000])
def test_kept_runs(run):
    for large in (False, True):
        move((9, 14, run), (1, 0, 2), 1, large=large)
        move((3, 5, 7, run), (2, 0, 1, 3), 1, large=large, threads=2, shift=(1, 1))
        move((6, 4, run), (1, 0, 2), 4, large=large)


@pytest.mark.parametrize("width", WIDTHS)
def test_strides_that_equal_other_extents(width):
    """What one dimension steps over is as long as another: a plan must not take one for the other.

    In (4, 16, 64) the last axis has as many elements as lie between those of the first's output.
    """
    for few, middle in itertools.product((2, 3, 4, 8), (2, 16, 21, 64)):
        many = few * middle
        for shape in ((few, middle, many), (many, middle, few), (middle, few, many)):
            for axes in itertools.permutations(range(3)):
                for large in (False, True):
                    move(shape, axes, width, large=large, shift=(1, 0))
        for axes in ((3, 2, 1, 0), (2, 3, 1, 0), (3, 0, 2, 1), (1, 3, 0, 2), (2, 0, 3, 1)):
            move((few, middle, 2, 2 * many // few), axes, width)
            move((few, 2, middle, 2 * middle), axes, width, large=True)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("width", WIDTHS)
def test_sides_in_place(width, threads):
    """Sides around a vector, a tile, a block of tiles and the size that goes through a buffer."""
    tile = 64 // width
    staged = int((32768 / width) ** 0.5)
    sides = {2, 3, 16 // width + 1, tile - 1, tile, tile + 1, 4 * tile, staged, staged + 1, 500}
    for side in sides:
        move_in_place((side, side), (1, 0), width, threads, large=True)
        move_in_place((3, side, 2, side), (0, 3, 2, 1), width, threads, shift=1)
        move_in_place((side, side, 5), (1, 0, 2), width, threads)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_moves_every_permutation(kind):
    """A kind asked for by name is right also where the plan would not pick it."""
    for shape, axes in (
        ((40, 70), (1, 0)),
        ((300, 3), (1, 0)),
        ((5, 6, 7), (0, 2, 1)),
        ((5, 6, 7), (1, 0, 2)),
        ((2,) * 9, (8, 1, 6, 3, 4, 5, 2, 7, 0)),
        ((6, 1, 5, 4, 3), (4, 3, 2, 1, 0)),
    ):
        for width in WIDTHS:
            for large in (False, True):
                move(shape, axes, width, kind, 2, large)


def test_many_calls_at_once():
    """More callers than cores, each with helpers of its own."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(move, (257 + i, 391), (1, 0), 4, "native", 4, True, (0, 0), i)
            for i in range(64)
        ]
        for job in jobs:
            job.result()


def test_buffers_of_the_wrong_size_are_refused():
    with pytest.raises(ValueError, match="size"):
        _cpu._run(np.zeros(11, np.uint8), np.zeros(12, np.uint8), [3, 4], [1, 0], 1)
