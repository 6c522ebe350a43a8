"""`kernel="autotune"`: measured choices, in memory and in a file that processes share.

The file is JSON: a version and, by key, the kernel kind, its tile and the measured microseconds. A
key names this package's version, whose kernels were measured, the device and the canonical
permutation, so that all shapes that move the same bytes the same way share an entry.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from jax_transpose import __version__, _cpu, _ffi

VERSION = 3  # of the file
# What a candidate must gain over the plan's choice: more than the noise of a measurement.
MARGIN = 0.03


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


def fastest(
    candidates: Sequence[tuple[str, int]],
    microseconds: Sequence[float],
    planned: tuple[str, int],
) -> Choice | None:
    """The quickest candidate; `planned`, the plan's own, where the quickest gains less than MARGIN.

    A time that is not finite is that of a candidate that did not run. None where no candidate did.

    >>> fastest([("tiled", 32), ("vectorized", 64)], [3.0, 2.0], ("tiled", 32))
    Choice(kernel='vectorized', tile=64, microseconds=2.0)
    >>> fastest([("tiled", 32), ("vectorized", 64)], [2.01, 2.0], ("tiled", 32))
    Choice(kernel='tiled', tile=32, microseconds=2.01)
    """
    times = {
        tuple(candidate): time
        for candidate, time in zip(candidates, microseconds, strict=True)
        if math.isfinite(time)
    }
    if not times:
        return None
    best = min(times, key=times.__getitem__)
    if planned in times and times[best] > (1 - MARGIN) * times[planned]:
        best = planned
    return Choice(*best, times[best])


cache = Cache()


def device() -> jax.Device | None:
    """The GPU that measurements are for; None without one.

    That is JAX's default device, and where this is no GPU the first one of this process. (JAX
    lowers one program for all GPUs and does not tell for which.)
    """
    gpus = _ffi.gpu_devices()
    default = jax.config.jax_default_device
    return default if default in gpus else next(iter(gpus), None)


def tuned(platform: str, plan: dict) -> Choice | None:
    """The measured choice for a plan's permutation, where there is one."""
    if platform != "cuda" or not cache:
        return None
    gpu = device()
    choice = None if gpu is None else cache.get(key(gpu.device_kind, plan))
    if choice is None:
        return None
    # The file may be another version's: a kind or tile that is unknown here counts as unmeasured.
    shape, axes = plan["canonical_shape"], plan["canonical_axes"]
    known = _cpu.cuda_candidates(shape, axes, plan["element_bytes"])
    return choice if (choice.kernel, choice.tile) in known else None


def autotune(
    platform: str, shape: tuple[int, ...], permutation: tuple[int, ...], element_bits: int
) -> None:
    """Measures the candidates of a permutation once per device kind and keeps the fastest.

    Runs while a program is compiled, never inside one. Needs room for two arrays, and for what
    clears the L2 cache, outside JAX's own memory pool; without it, or without a GPU, the plan's
    choice stands.
    """
    gpu = device() if platform == "cuda" and element_bits % 8 == 0 else None
    if gpu is None or not _ffi.can_run(platform):
        return
    size = element_bits // 8
    plan = _cpu.plan(platform, shape, permutation, size, "native", 0)
    name = key(gpu.device_kind, plan)
    if 0 in shape or cache.get(name) is not None:
        return
    candidates = _cpu.cuda_candidates(shape, permutation, size)
    if not candidates:
        return
    try:
        times = _ffi.measure(shape, permutation, size, candidates, gpu)
    except RuntimeError as error:
        warnings.warn(f"autotune of shape {shape} left to the plan: {error}", stacklevel=2)
        return
    choice = fastest(candidates, times, (plan["kernel"], plan["tile"]))
    if choice is None:
        warnings.warn(f"autotune of shape {shape} left to the plan: nothing ran", stacklevel=2)
    else:
        cache.put(name, choice)
