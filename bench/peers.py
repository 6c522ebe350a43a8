"""Other libraries that transpose, and the plain copy that bounds them all.

A peer moves the same bits: types that it does not know travel as integers of the same width. Its
result is compared with ours before its time counts where the array is small enough to be compared
on the host; cuTENSOR's is not, since it multiplies by one and may change NaN payloads.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .cases import element_bits
from .timing import Clock, Program, jitted
from .verify import words

DEFAULT = {"cpu": ("numpy", "torch"), "gpu": ("torch", "cupy", "cutensor")}


@dataclasses.dataclass(frozen=True)
class Peer:
    """`program(key, xs, axes)` gives a timed `Program`, or None for a dtype it does not move."""

    name: str
    version: str
    program: Callable[[str, list, tuple], Program | None]
    to_host: Callable | None  # output -> numpy array with the same bits; None: not compared
    release: Callable[[], None] = lambda: None  # gives cached device memory back


def load(names, platform: str) -> tuple[list[Peer], dict[str, str]]:
    """The peers among `names` that can be imported, and why the others are missing.

    A name may be followed by "=" and a path: of the folder to import torch or CuPy from, searched
    after all others, or of cuTENSOR's shared library.
    """
    peers, missing = [], {}
    for entry in names:
        name, _, path = entry.partition("=")
        if name not in _MAKERS:
            missing[name] = f"unknown peer; known: {', '.join(_MAKERS)}"
            continue
        try:
            if path and name != "cutensor":
                sys.path.append(path)
            peers.append(_MAKERS[name](platform, *([path] if name == "cutensor" else [])))
        except Exception as error:  # a broken installation raises anything
            text = f"{type(error).__name__}: {error}"
            missing[name] = text.splitlines()[0][:200]
    return peers, missing


def wrong_bytes(peer: Peer, out, ours: np.ndarray) -> bool:
    """Whether the peer's output differs from our (already verified) output."""
    got = np.ascontiguousarray(peer.to_host(out)).reshape(-1).view(np.uint8)
    return not np.array_equal(got, words(ours).reshape(-1).view(np.uint8))


# --- the copy -----------------------------------------------------------------------------------


def copy_program(key: str, xs: list, platform: str) -> tuple[Program, str]:
    """A copy of the same bytes, and what it is.

    CPU: `numpy.copyto` into a buffer whose pages already exist. GPU: `jit(jnp.copy)`, which XLA
    turns into a device-to-device memcpy; the report records the event that really ran.
    """
    if platform == "cpu":
        source = words(np.asarray(xs[0]))
        target = np.ones_like(source)

        def copy(_):
            np.copyto(target, source)
            return target

        return Program(key, copy, wait=lambda out: out), "numpy.copyto into a resident buffer"
    return jitted(key, jnp.copy, xs), "jit(jnp.copy)"


# --- peers --------------------------------------------------------------------------------------

# By element bytes, the dtype that every library knows.
_CARRIERS = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<c16"}


def carrier(x: jax.Array) -> np.dtype | None:
    """A dtype of the same width that every library knows; None for sub-byte types."""
    bits = element_bits(x.dtype.name)
    return None if bits < 8 else np.dtype(_CARRIERS[bits // 8])


class DeviceView:
    """A GPU array under another dtype, as torch and CuPy take it: no copy, nothing compiled."""

    def __init__(self, x: jax.Array):
        self._x = jax.block_until_ready(x)  # keeps the memory alive
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tuple(x.shape),
            "typestr": carrier(x).str,
            "data": (x.unsafe_buffer_pointer(), False),
            "strides": None,
        }


def _numpy(platform: str) -> Peer:
    if platform != "cpu":
        raise RuntimeError("numpy is a peer on the CPU only")

    def program(key, xs, axes):
        host = np.asarray(xs[0])
        return Program(
            key, lambda _: np.ascontiguousarray(host.transpose(axes)), wait=lambda out: out
        )

    return Peer("numpy", np.__version__, program, lambda out: words(out))


def _torch(platform: str) -> Peer:
    torch = importlib.import_module("torch")
    if platform != "cpu" and not torch.cuda.is_available():
        raise RuntimeError("this torch sees no GPU")

    on_gpu = platform != "cpu"

    def mark():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def tensor(x):
        if on_gpu:
            return torch.as_tensor(DeviceView(x), device="cuda")
        return torch.from_numpy(np.array(x).view(carrier(x)))

    def program(key, xs, axes):
        if carrier(xs[0]) is None:
            return None
        tensors = [tensor(x) for x in xs]
        return Program(
            key,
            lambda i: tensors[i % len(tensors)].permute(axes).contiguous(),
            wait=lambda out: torch.cuda.synchronize() if on_gpu else None,
            rotation=len(tensors),
            clock=Clock(mark, lambda a, b: a.elapsed_time(b) * 1e-3) if on_gpu else None,
        )

    release = torch.cuda.empty_cache if on_gpu else lambda: None
    return Peer("torch", torch.__version__, program, lambda out: out.cpu().numpy(), release)


def cupy_clock(cupy) -> Clock:
    """CuPy's events on its current stream."""

    def mark():
        event = cupy.cuda.Event()
        event.record()
        return event

    return Clock(mark, lambda a, b: cupy.cuda.get_elapsed_time(a, b) * 1e-3)


def _cupy(platform: str) -> Peer:
    if platform == "cpu":
        raise RuntimeError("cupy needs a GPU")
    cupy = importlib.import_module("cupy")
    if not cupy.cuda.is_available():
        raise RuntimeError("this CuPy sees no GPU")

    def program(key, xs, axes):
        if carrier(xs[0]) is None:
            return None
        arrays = [cupy.asarray(DeviceView(x)) for x in xs]
        return Program(
            key,
            lambda i: cupy.ascontiguousarray(arrays[i % len(arrays)].transpose(axes)),
            wait=lambda out: cupy.cuda.get_current_stream().synchronize(),
            rotation=len(arrays),
            clock=cupy_clock(cupy),
        )

    release = cupy.get_default_memory_pool().free_all_blocks
    return Peer("cupy", cupy.__version__, program, cupy.asnumpy, release)


def _cutensor(platform: str, path: str = "") -> Peer:
    if platform == "cpu":
        raise RuntimeError("cuTENSOR needs a GPU")
    from . import cutensor

    library = cutensor.Library(path)

    def program(key, xs, axes):
        return library.program(key, xs, axes)

    return Peer("cutensor", library.version, program, None, library.release)


_MAKERS = {"numpy": _numpy, "torch": _torch, "cupy": _cupy, "cutensor": _cutensor}
