"""The benchmark's peers: absent ones are named, and a GPU's are called as their APIs ask.

No GPU is needed: CuPy is a stand-in over NumPy, cuTENSOR a C library of the same signatures that
permutes host memory.
"""

import ctypes
import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
import types

import dtypes
import jax
import numpy as np
import pytest

from bench import cutensor, peers, suite, timing
from bench.cases import Case

CUTENSOR = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t rank; int64_t extent[64], stride[64]; int type; } Tensor;
typedef struct { Tensor *a, *b; int32_t mode_a[64], mode_b[64]; } Operation;

static int compute;
const void* CUTENSOR_COMPUTE_DESC_32F = &compute;
const void* CUTENSOR_COMPUTE_DESC_64F = &compute;

size_t cutensorGetVersion(void) { return 20801; }
const char* cutensorGetErrorString(int code) { return code == 15 ? "not supported" : "?"; }
int cutensorCreate(void** handle) { *handle = &compute; return 0; }

int cutensorCreateTensorDescriptor(void* handle, Tensor** out, uint32_t rank, const int64_t* extent,
                                   const int64_t* stride, int type, uint32_t alignment) {
  if (handle != &compute || alignment != 256) return 7;
  if (rank > 40) return 15;
  *out = calloc(1, sizeof(Tensor));
  (*out)->rank = rank;
  (*out)->type = type;
  memcpy((*out)->extent, extent, rank * sizeof(int64_t));
  memcpy((*out)->stride, stride, rank * sizeof(int64_t));
  return 0;
}

int cutensorCreatePermutation(void* handle, Operation** out, Tensor* a, const int32_t* mode_a,
                              int op, Tensor* b, const int32_t* mode_b, const void* descriptor) {
  if (handle != &compute || descriptor != &compute || op != 1) return 7;
  *out = calloc(1, sizeof(Operation));
  (*out)->a = a;
  (*out)->b = b;
  memcpy((*out)->mode_a, mode_a, a->rank * sizeof(int32_t));
  memcpy((*out)->mode_b, mode_b, b->rank * sizeof(int32_t));
  return 0;
}

int cutensorCreatePlanPreference(void* handle, void** out, int algo, int jit) {
  *out = &compute;
  return handle != &compute || algo != -1 || jit != 0 ? 7 : 0;
}

int cutensorCreatePlan(void* handle, Operation** out, Operation* operation, void* preference,
                       uint64_t workspace) {
  *out = operation;
  return handle != &compute || preference != &compute || workspace != 0 ? 7 : 0;
}

int cutensorPermute(void* handle, Operation* plan, const float* alpha, const char* from, char* to,
                    void* stream) {
  const Tensor *a = plan->a, *b = plan->b;
  const int width = a->type == 14 ? 2 : a->type == 0 ? 4 : a->type == 5 ? 16 : 8;
  if (handle != &compute || stream || (a->type == 0 && *alpha != 1)) return 7;
  int64_t count = 1;
  for (uint32_t d = 0; d < b->rank; ++d) count *= b->extent[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, source = 0, target = 0;
    for (int d = b->rank - 1; d >= 0; --d) {
      const int64_t index = rest % b->extent[d];
      rest /= b->extent[d];
      target += index * b->stride[d];
      for (uint32_t e = 0; e < a->rank; ++e)
        if (plan->mode_a[e] == plan->mode_b[d]) source += index * a->stride[e];
    }
    memcpy(to + target * width, from + source * width, width);
  }
  return 0;
}
"""


class HostArray(np.ndarray):
    """A NumPy array with the `data.ptr` of a CuPy one."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


def from_interface(view):
    """What CuPy and torch make of `__cuda_array_interface__`, for host memory."""
    given = view.__cuda_array_interface__
    assert given["version"] == 3 and given["strides"] is None
    address, read_only = given["data"]
    assert not read_only
    dtype = np.dtype(given["typestr"])
    size = int(np.prod(given["shape"])) * dtype.itemsize
    raw = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(raw, dtype).reshape(given["shape"])


@pytest.fixture
def cupy(monkeypatch):
    """A stand-in for CuPy; `released` counts calls that empty its memory pool."""
    fake = types.ModuleType("cupy")
    fake.__version__ = "13.0"
    fake.uint8 = np.uint8
    fake.asarray = from_interface
    fake.ascontiguousarray = np.ascontiguousarray
    fake.asnumpy = np.asarray
    fake.empty = lambda size, dtype: np.empty(size, dtype).view(HostArray)
    fake.released = []
    pool = types.SimpleNamespace(free_all_blocks=lambda: fake.released.append(1))
    fake.get_default_memory_pool = lambda: pool
    ticks = iter(range(10**6))

    class Event:
        def record(self):
            self.time = next(ticks)

    fake.cuda = types.SimpleNamespace(
        is_available=lambda: True,
        Event=Event,
        get_elapsed_time=lambda a, b: float(b.time - a.time),  # ms
        get_current_stream=lambda: types.SimpleNamespace(ptr=0, synchronize=lambda: None),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return fake


@pytest.fixture(scope="session")
def cutensor_library(tmp_path_factory):
    """The path of the stand-in for cuTENSOR."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("cutensor")
    (folder / "stub.c").write_text(CUTENSOR)
    library = folder / "lib" / "libcutensor.so.2"
    library.parent.mkdir()
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", library, folder / "stub.c"]
    subprocess.run(command, check=True)
    return library


def test_absent_peers_are_named_and_the_rest_goes_on(monkeypatch):
    def broken(platform):
        raise TypeError("a broken\ninstallation")

    monkeypatch.setitem(peers._MAKERS, "torch", broken)
    monkeypatch.setitem(sys.modules, "cupy", None)  # an ImportError
    found, missing = peers.load(["torch", "cupy", "cutensor", "numpy", "mkl"], "gpu")
    assert not found
    assert missing["torch"] == "TypeError: a broken"
    assert "cupy" in missing["cupy"] and "cupy" in missing["cutensor"]
    assert "CPU only" in missing["numpy"] and "known: numpy, torch" in missing["mkl"]
    assert [peer.name for peer in peers.load(["cupy", "numpy"], "cpu")[0]] == ["numpy"]


def test_a_peer_is_imported_from_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", _without("torch", tmp_path))
    (tmp_path / "torch.py").write_text("__version__ = '9.9'\n")
    (torch,), missing = peers.load([f"torch={tmp_path}"], "cpu")
    assert torch.version == "9.9" and not missing
    assert sys.path[-1] == str(tmp_path)  # nothing else is shadowed by what lies there
    monkeypatch.delitem(sys.modules, "torch")


def _without(name, folder):
    """The path finder without an installed `name`."""
    find = importlib.machinery.PathFinder.find_spec

    def find_spec(fullname, path=None, target=None):
        if fullname == name:
            path = [entry for entry in sys.path if entry == str(folder)]
        return find(fullname, path, target)

    return find_spec


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "bfloat16", "float32", "complex64", "float64", "complex128"]
)
def test_a_view_has_the_arrays_bits(dtype):
    with dtypes.x64():
        x = jax.numpy.asarray(dtypes.random_bits((3, 5), dtype))
        assert x.dtype == dtype
        view = from_interface(peers.DeviceView(x))
        assert view.shape == x.shape
        assert view.tobytes() == np.asarray(x).tobytes()


def test_cupy_moves_the_same_bits(cupy):
    (peer,), _ = peers.load(["cupy"], "gpu")
    xs = [jax.numpy.asarray(dtypes.random_bits((3, 4, 5), "bfloat16")) for _ in range(2)]
    program = peer.program("k", xs, (2, 0, 1))
    for i in range(3):
        out = program.run(i)
        want = np.transpose(np.asarray(xs[i % 2]), (2, 0, 1))
        assert peer.to_host(out).tobytes() == np.ascontiguousarray(want).tobytes()
    assert not peers.wrong_bytes(peer, out, want) and peers.wrong_bytes(peer, out, want.T)
    assert peer.program("k", [jax.numpy.ones((2, 4), "int4")], (1, 0)) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "complex64"])
def test_cutensor_is_called_as_its_header_says(cupy, cutensor_library, dtype):
    (peer,), missing = peers.load([f"cutensor={cutensor_library.parent}"], "gpu")
    assert not missing and peer.version == "2.8.1"
    x = jax.numpy.asarray(dtypes.random_bits((3, 4, 1, 6), dtype))
    axes = (3, 0, 2, 1)
    program = peer.program("k", [x], axes)
    out = np.asarray(program.run(0))
    want = np.ascontiguousarray(np.transpose(np.asarray(x), axes))
    assert out.tobytes() == want.tobytes()


def test_cutensor_says_what_it_cannot_do(cupy, cutensor_library):
    (peer,), _ = peers.load([f"cutensor={cutensor_library}"], "gpu")
    assert peer.program("k", [jax.numpy.ones((2, 3), "uint8")], (1, 0)) is None
    high = jax.numpy.ones((1,) * 41, "float32")
    with pytest.raises(RuntimeError, match="cutensorCreateTensorDescriptor: not supported"):
        peer.program("k", [high], tuple(range(41)))


def test_where_cutensor_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("CUTENSOR_LIBRARY", raising=False)
    assert cutensor.library_path() == "libcutensor.so.2"
    monkeypatch.setenv("CUTENSOR_LIBRARY", "/here/libcutensor.so.2")
    assert cutensor.library_path() == "/here/libcutensor.so.2"
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libcutensor.so.2.8"
    library.touch()
    assert cutensor.library_path(str(tmp_path)) == str(library)


def test_a_clock_times_what_cupti_did_not_see(cupy):
    (peer,), _ = peers.load(["cupy"], "gpu")
    x = jax.numpy.ones((8, 8))
    timed = peer.program("k_cupy", [x], (1, 0))
    plain = timing.jitted("k_jnp", lambda x: x.T, [x])
    plain.repeat = 6
    calls = []
    plain.call = lambda i, call=plain.call: calls.append(i) or call(i)
    found = timing.measure_device([timed, plain], repeat=30)
    # One tick of 1 ms between the two events around each call.
    assert found["k_cupy"] == timing.Timing(pytest.approx(1e-3), "events")
    assert found["k_jnp"].source == "wall"
    assert len(calls) == 2 + 6  # to warm up, and its own repeat


def test_the_runner_frees_a_peers_memory_and_survives_its_errors(cupy, monkeypatch):
    good, _ = peers.load(["cupy"], "gpu")

    def fail(key, xs, axes):
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")

    bad = peers.Peer("torch", "2", fail, None)
    runner = suite.Runner("cpu", "auto", [*good, bad], repeat=1)
    (record,) = runner.run([Case("a", (16, 32), (1, 0), "float32")], lambda record: None)
    assert record["status"] == "ok" and record["gbs"]["cupy"] > 0
    assert record["peer_errors"] == {"torch": "CUDA_ERROR_OUT_OF_MEMORY"}
    assert cupy.released
