"""What only a GPU has: graph capture, launch errors, misaligned device pointers."""

import ctypes
import functools
import pathlib

import dtypes
import jax
import pytest
from dlpack import OffsetView
from scripts import run_python

import jax_transpose as jt

pytestmark = pytest.mark.gpu

KINDS = ("native", *jt.kernels("cuda"))

LOOP = """
import jax, jax.numpy as jnp
import jax_transpose as jt

# A permutation matrix and powers of two: every step is exact, also in TF32.
N = 256
shuffle = np.eye(N, dtype=np.float32)[np.random.default_rng(0).permutation(N)]

def ours(n, kernel):
    def body(_, x):
        y = x @ shuffle[:n, :n] if n == N else x
        return jt.transpose(y, kernel=kernel) * 0.5
    return jax.jit(lambda x: jax.lax.fori_loop(0, 10, body, x))

def theirs(x):
    for _ in range(10):
        y = x @ shuffle if len(x) == N else x
        x = y.T * np.float32(0.5)
    return x

def value(n, seed):
    x = np.random.default_rng(seed).integers(-512, 512, (n, n))
    return x.astype(np.float32)

for kernel in ("native", *jt.kernels("cuda")):
    f, x = ours(N, kernel), value(N, 0)
    for _ in range(REPLAYS):
        out = f(x)
    assert (np.asarray(out) == theirs(x)).all(), kernel
    for seed in (1, 2):  # new operands, so new addresses, into the captured graph
        assert (np.asarray(f(jnp.asarray(value(N, seed)))) == theirs(value(N, seed))).all()
    for n in (100, 33):  # new shapes after a capture
        assert (np.asarray(ours(n, kernel)(value(n, n))) == theirs(value(n, n))).all()

f = jax.jit(lambda x: [jt.transpose(x, kernel=k) for k in jt.kernels("cuda") for _ in range(2)])
for seed in range(5):
    for out in f(value(N, seed)):
        assert (np.asarray(out) == value(N, seed).T).all()
print("done")
"""


@pytest.mark.parametrize("flags", ["", "--xla_gpu_graph_min_graph_size=1"])
def test_loops_with_and_without_command_buffers(flags):
    body = f"REPLAYS = {200 if flags else 5}\n{LOOP}"
    assert run_python(body, timeout=200, XLA_FLAGS=flags).strip().endswith("done")


WHILE = """
import pathlib, tempfile
import jax, jax.numpy as jnp
import jax_transpose as jt

# Exact in float32 and TF32: a permutation matrix, integers but 0, and a scale that turns signs.
N, STEPS = 256, 1000
shuffle = np.eye(N, dtype=np.float32)[np.random.default_rng(0).permutation(N)]
x = np.random.default_rng(1).integers(1, 512, (N, N)).astype(np.float32)

@jax.jit
def run(x):
    def body(state):
        i, x = state
        return i + 1, jt.transpose(x @ shuffle, kernel="native") * jnp.float32(-1)
    return jax.lax.while_loop(lambda state: state[0] < STEPS, body, (0, x))[1]

expected = x
for _ in range(STEPS):
    expected = -(expected @ shuffle).T
got = np.asarray(run(x))
assert got.tobytes() == expected.tobytes()

with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
        again = jax.block_until_ready(run(x))
    (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(file))
    names = {e.name for plane in profile.planes for line in plane.lines for e in line.events}
assert np.asarray(again).tobytes() == got.tobytes()
print(sorted(name for name in names if "GraphLaunch" in name))
"""


def test_a_captured_while_loop():
    """1000 steps of matmul, transpose and scale: same bits, and the profile shows the graph."""
    captured = "--xla_gpu_graph_min_graph_size=1"
    assert "GraphLaunch" in run_python(WHILE, timeout=200, XLA_FLAGS=captured)
    launched = "--xla_gpu_enable_command_buffer="
    assert run_python(WHILE, timeout=200, XLA_FLAGS=launched).strip() == "[]"


@pytest.mark.parametrize("name", ["int8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("rows", [65, 4097])
def test_slices_of_a_buffer(cuda, name, rows):
    host = dtypes.random_bits((rows, 64), name)
    flat = host.reshape(-1)
    x = cuda.put(host)
    half = rows // 2

    @jax.jit
    def run(x, start):
        sliced = [jt.transpose(x[1:], kernel=k) for k in KINDS]
        flats = [
            jt.transpose(x.reshape(-1)[o : o + half * 64].reshape(half, 64), kernel=k)
            for k in KINDS
            for o in (1, 3)
        ]

        def body(i, out):
            part = jax.lax.dynamic_slice(x.reshape(-1), (start + i,), (half * 64,))
            return jt.transpose(part.reshape(half, 64), kernel="native")

        return sliced, flats, jax.lax.fori_loop(0, 3, body, flats[0])

    sliced, flats, looped = run(x, 5)
    for kernel, out in zip(KINDS, sliced, strict=True):
        dtypes.assert_same_bits(out, dtypes.expect(host[1:]), kernel)
    for i, out in enumerate(flats):
        o = (1, 3)[i % 2]
        dtypes.assert_same_bits(out, dtypes.expect(flat[o : o + half * 64].reshape(half, 64)))
    dtypes.assert_same_bits(looped, dtypes.expect(flat[7 : 7 + half * 64].reshape(half, 64)))


@pytest.mark.parametrize("name", ["int8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("offset", [1, 2, 4])
def test_pointers_aligned_to_the_element_only(cuda, name, offset):
    host = dtypes.random_bits((130 * 64,), name)
    base = jax.block_until_ready(cuda.put(host))
    view = OffsetView(base, offset, (128, 64))
    x = view.to_jax()
    size = host.dtype.itemsize
    assert x.unsafe_buffer_pointer() == base.unsafe_buffer_pointer() + offset * size
    run = jax.jit(lambda x: [jt.transpose(x, kernel=k) for k in KINDS])
    try:
        outs = jax.block_until_ready(run(x))
    except jax.errors.JaxRuntimeError as error:
        # Newer XLA takes no operand off a 16-byte boundary, whoever would read it.
        if "must be a multiple of" not in str(error):
            raise
        with pytest.raises(jax.errors.JaxRuntimeError, match="must be a multiple of"):
            jax.block_until_ready(jax.jit(lambda x: x.T)(x))
        return
    rows = jax.jit(lambda x: jt.transpose(x.reshape(16, 8, 64), (1, 0, 2), kernel="native"))(x)
    part = host[offset : offset + 128 * 64].reshape(128, 64)
    for kernel, out in zip(KINDS, outs, strict=True):
        dtypes.assert_same_bits(out, dtypes.expect(part), f"{kernel} at {offset}")
    dtypes.assert_same_bits(rows, dtypes.expect(part.reshape(16, 8, 64), (1, 0, 2)))


@pytest.mark.parametrize("kind", jt.kernels("cuda"))
def test_a_launch_that_fails_raises_and_harms_nothing(cuda, kind):
    from jax_transpose import _cuda

    # `rows` is for kept minor runs and leaves other permutations to `packed`.
    shape, axes = ((8, 8, 64), (1, 0, 2)) if kind == "rows" else ((64, 64), (1, 0))
    host = dtypes.small_values(shape, "float32")
    x = cuda.put(host)
    f = jax.jit(functools.partial(jt.transpose, axes=axes, kernel=kind))
    dtypes.assert_same_bits(f(x), host.transpose(axes))
    _cuda._force_launch_failure(True)
    try:
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.block_until_ready(f(x))
    finally:
        _cuda._force_launch_failure(False)
    message = str(caught.value)
    assert kind in message and "invalid" in message.lower(), message
    dtypes.assert_same_bits(f(x), host.transpose(axes))


def _loaded_cudart():
    """The CUDA runtime that other libraries of this process share, or None."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if "libcudart.so" in path:
            return ctypes.CDLL(path)
    return None


def test_an_error_that_another_library_left_behind(cuda):
    host = dtypes.small_values((64, 64), "float32")
    f = jax.jit(functools.partial(jt.transpose, kernel="native"))
    x = cuda.put(host)
    dtypes.assert_same_bits(f(x), host.T)
    cudart = _loaded_cudart()
    assert cudart is not None, "JAX's CUDA plugin loads libcudart"
    assert cudart.cudaSetDevice(9999) != 0
    try:
        dtypes.assert_same_bits(f(x), host.T)
        dtypes.assert_same_bits(jt.transpose(x, kernel="native"), host.T)
        assert cudart.cudaPeekAtLastError() != 0  # still there for whoever made it
    finally:
        cudart.cudaGetLastError()
