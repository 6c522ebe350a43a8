"""cuTENSOR 2's permutation through ctypes, on arrays that CuPy holds.

The library is found by path (an argument, or the environment variable CUTENSOR_LIBRARY), in the
PyPI packages `cutensor-cu12` / `cutensor-cu13`, or by the dynamic loader.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

import jax
import numpy as np

from . import peers
from .timing import Program

_OP_IDENTITY = 1
_ALGO_DEFAULT = -1
_JIT_NONE = 0

# dtype -> (cudaDataType_t, exported compute descriptor, dtype of the scalar alpha)
_TYPES = {
    "float16": (2, "CUTENSOR_COMPUTE_DESC_32F", np.float32),
    "bfloat16": (14, "CUTENSOR_COMPUTE_DESC_32F", np.float32),
    "float32": (0, "CUTENSOR_COMPUTE_DESC_32F", np.float32),
    "float64": (1, "CUTENSOR_COMPUTE_DESC_64F", np.float64),
    "complex64": (4, "CUTENSOR_COMPUTE_DESC_32F", np.complex64),
    "complex128": (5, "CUTENSOR_COMPUTE_DESC_64F", np.complex128),
}


def library_path(path: str = "") -> str:
    """The shared library to load; `path` may be a folder that holds it."""
    path = path or os.environ.get("CUTENSOR_LIBRARY", "")
    if path and not Path(path).is_dir():
        return path
    spec = importlib.util.find_spec("cutensor")
    installed = spec.submodule_search_locations or [] if spec else []
    for folder in [path] if path else installed:
        found = sorted(Path(folder).rglob("libcutensor.so.2*"))
        if found:
            return str(found[0])
    return "libcutensor.so.2"


class Library:
    """A loaded cuTENSOR and one handle."""

    def __init__(self, path: str = ""):
        import cupy

        self._cupy = cupy
        self.release = cupy.get_default_memory_pool().free_all_blocks
        self._lib = ctypes.CDLL(library_path(path))
        self._lib.cutensorGetErrorString.restype = ctypes.c_char_p
        self._lib.cutensorGetVersion.restype = ctypes.c_size_t
        number = self._lib.cutensorGetVersion()
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        self._handle = ctypes.c_void_p()
        self._call("cutensorCreate", ctypes.byref(self._handle))

    def _call(self, name: str, *args) -> None:
        code = getattr(self._lib, name)(*args)
        if code:
            raise RuntimeError(f"{name}: {self._lib.cutensorGetErrorString(code).decode()}")

    def _descriptor(self, shape, kind: int) -> ctypes.c_void_p:
        """A row-major tensor of `shape`, 256-byte aligned as XLA's and CuPy's allocators are."""
        rank = len(shape)
        strides = [1] * rank
        for i in range(rank - 2, -1, -1):
            strides[i] = strides[i + 1] * shape[i + 1]
        array = ctypes.c_int64 * rank
        out = ctypes.c_void_p()
        self._call(
            "cutensorCreateTensorDescriptor",
            self._handle,
            ctypes.byref(out),
            ctypes.c_uint32(rank),
            array(*shape),
            array(*strides),
            ctypes.c_int(kind),
            ctypes.c_uint32(256),
        )
        return out

    def program(self, key: str, xs: list, axes: tuple[int, ...]) -> Program | None:
        """A `Program` that permutes; None for dtypes cuTENSOR does not permute."""
        dtype = xs[0].dtype.name
        if dtype not in _TYPES:
            return None
        kind, compute_name, scalar = _TYPES[dtype]
        cupy, shape, rank = self._cupy, xs[0].shape, xs[0].ndim
        pointers = [jax.block_until_ready(x).unsafe_buffer_pointer() for x in xs]
        bytes_out = xs[0].nbytes
        modes = ctypes.c_int32 * rank
        compute = ctypes.c_void_p.in_dll(self._lib, compute_name)
        operation, preference, plan = (ctypes.c_void_p() for _ in range(3))
        self._call(
            "cutensorCreatePermutation",
            self._handle,
            ctypes.byref(operation),
            self._descriptor(shape, kind),
            modes(*range(rank)),
            ctypes.c_int(_OP_IDENTITY),
            self._descriptor(tuple(shape[a] for a in axes), kind),
            modes(*axes),
            compute,
        )
        self._call(
            "cutensorCreatePlanPreference",
            self._handle,
            ctypes.byref(preference),
            ctypes.c_int(_ALGO_DEFAULT),
            ctypes.c_int(_JIT_NONE),
        )
        self._call(
            "cutensorCreatePlan",
            self._handle,
            ctypes.byref(plan),
            operation,
            preference,
            ctypes.c_uint64(0),
        )
        alpha = np.ones(1, scalar)
        stream = cupy.cuda.get_current_stream()

        def call(i):
            out = cupy.empty(bytes_out, cupy.uint8)
            self._call(
                "cutensorPermute",
                self._handle,
                plan,
                ctypes.c_void_p(alpha.ctypes.data),
                ctypes.c_void_p(pointers[i % len(xs)]),
                ctypes.c_void_p(out.data.ptr),
                ctypes.c_void_p(stream.ptr),
            )
            return out

        return Program(
            key,
            call,
            wait=lambda out: stream.synchronize(),
            rotation=len(xs),
            clock=peers.cupy_clock(cupy),
        )
