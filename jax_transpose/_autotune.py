"""`kernel="autotune"`: measured choices, in memory and in a file that processes share.

The file is JSON: a version and, by key, the kernel kind, its tile and the measured microseconds. A
key names this package's version, whose kernels were measured, the device and the canonical
permutation, so that all shapes that move the same bytes the same way share an entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jax_transpose import __version__, _cpu, _ffi

VERSION = 2  # of the file


class Choice(NamedTuple):
    """A kernel kind, the side of its tile (0: none) and the microseconds it took."""

    kernel: str
    tile: int
    microseconds: float


def cache_file() -> Path:
    """Where choices are kept: in ``JAX_TRANSPOSE_CACHE_DIR``, else in the user's cache folder."""
    folder = os.environ.get("JAX_TRANSPOSE_CACHE_DIR")
    if folder:
        return Path(folder) / "autotune.json"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jax_transpose" / "autotune.json"


def key(device: str, plan: dict) -> str:
    """The entry of a plan's canonical permutation on a device such as "NVIDIA H200"."""
    shape = "x".join(map(str, plan["canonical_shape"]))
    axes = ",".join(map(str, plan["canonical_axes"]))
    return f"{__version__}|{device}|{plan['element_bytes']}|{shape}|{axes}"


def parse(text: str) -> dict[str, Choice]:
    """The entries of a cache file's text; ValueError where it is none of ours."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f"not a version {VERSION} cache")
    try:
        return {
            str(name): Choice(str(kernel), int(tile), float(microseconds))
            for name, (kernel, tile, microseconds) in data["entries"].items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"malformed entries: {error}") from None


class Cache:
    """Choices by key. Reads the file once; every new choice is merged into it."""

    def __init__(self, path: Callable[[], Path] = cache_file):
        self._path = path
        self._entries: dict[str, Choice] | None = None
        self._lock = threading.Lock()

    def _loaded(self) -> dict[str, Choice]:
        with self._lock:
            if self._entries is None:
                try:
                    self._entries = _read(self._path())
                except RuntimeError:  # no home folder
                    self._entries = {}
            return self._entries

    def __bool__(self) -> bool:
        return bool(self._loaded())

    def get(self, name: str) -> Choice | None:
        return self._loaded().get(name)

    def put(self, name: str, choice: Choice) -> None:
        entries = self._loaded()
        with self._lock:
            entries[name] = choice
        try:
            _merge(self._path(), {name: choice})
        except (OSError, RuntimeError) as error:
            warnings.warn(f"autotune cache not written: {error}", stacklevel=2)

    def clear(self) -> None:
        """Forgets what is in memory; the file is read again."""
        with self._lock:
            self._entries = None


def _read(path: Path) -> dict[str, Choice]:
    try:
        return parse(path.read_text())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}  # none was ever written, or none can be
    except (OSError, ValueError) as error:
        warnings.warn(f"autotune cache {path} ignored: {error}", stacklevel=2)
        return {}


def _merge(path: Path, new: dict[str, Choice]) -> None:
    """Adds entries under a lock of their own file; readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `get` has told already
            entries = _read(path) | new
        data = {"version": VERSION, "entries": entries}
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with open(handle, "w") as file:
                json.dump(data, file)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def fastest(candidates: Sequence[tuple[str, int]], microseconds: Sequence[float]) -> Choice:
    """The quickest candidate.

    >>> fastest([("tiled", 32), ("vectorized", 64)], [3.0, 2.0])
    Choice(kernel='vectorized', tile=64, microseconds=2.0)
    """
    best = min(range(len(candidates)), key=microseconds.__getitem__)
    return Choice(*candidates[best], microseconds[best])


cache = Cache()


def _device() -> str | None:
    """The kind of the GPU that programs run on, such as "NVIDIA H200"; None without one."""
    devices = _ffi.gpu_devices()
    return devices[0].device_kind if devices else None


def tuned(platform: str, plan: dict) -> Choice | None:
    """The measured choice for a plan's permutation, where there is one."""
    if platform != "cuda" or not cache:
        return None
    device = _device()
    choice = None if device is None else cache.get(key(device, plan))
    if choice is None:
        return None
    # Written by whom it may be: a kind or a tile that this version lacks counts as unmeasured.
    shape, axes = plan["canonical_shape"], plan["canonical_axes"]
    known = _cpu.cuda_candidates(shape, axes, plan["element_bytes"])
    return choice if (choice.kernel, choice.tile) in known else None


def autotune(
    platform: str, shape: tuple[int, ...], permutation: tuple[int, ...], element_bits: int
) -> None:
    """Measures the candidates of a permutation once per device kind and keeps the fastest.

    Runs while a program is compiled, never inside one. Needs room for two arrays outside JAX's own
    memory pool; without it, or without a GPU, the plan's choice stands.
    """
    device = _device() if platform == "cuda" and element_bits % 8 == 0 else None
    if device is None or not _ffi.has_module(platform):
        return
    size = element_bits // 8
    name = key(device, _cpu.plan(platform, shape, permutation, size, "native", 0))
    if 0 in shape or cache.get(name) is not None:
        return
    candidates = _cpu.cuda_candidates(shape, permutation, size)
    if not candidates:
        return
    try:
        times = _ffi.measure(shape, permutation, size, candidates)
    except RuntimeError as error:
        warnings.warn(f"autotune of shape {shape} left to the plan: {error}", stacklevel=2)
        return
    cache.put(name, fastest(candidates, times))
