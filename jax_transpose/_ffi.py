"""Loads the extension modules and registers their handlers with XLA."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import jax

from jax_transpose import _compat, _cpu

# The version changes with the meaning of the attributes, so that a saved program never reaches a
# handler that would read it differently.
TARGET = "jax_transpose_v1"
# The same with a second operand, whose buffer is the result's.
INTO_TARGET = "jax_transpose_into_v1"

_XLA_PLATFORM = {"cpu": "cpu", "cuda": "CUDA"}


def platform_name(name: str) -> str:
    """A JAX platform under its own name: "cuda" for "gpu", or "rocm" where that is the GPU's.

    Raises ValueError for what is no platform.
    """
    known = {"cpu", "gpu", "cuda", "rocm", "tpu"} | _compat.known_platforms()
    if not isinstance(name, str) or name not in known:
        allowed = ", ".join(map(repr, sorted(known)))
        raise ValueError(f"platform={name!r} is no platform of JAX; allowed: {allowed}")
    if name != "gpu":
        return name
    try:
        version = jax.devices("gpu")[0].client.platform_version
    except RuntimeError:  # no GPU here: the one that has kernels
        version = ""
    return "rocm" if "rocm" in version.lower() else "cuda"


class Status(NamedTuple):
    """Whether a platform's kernels can run here, and why (not). True where they can."""

    available: bool
    reason: str

    def __bool__(self) -> bool:
        return self.available


def _installed_ffi_version() -> tuple[int, int] | None:
    """The FFI API version of the installed jaxlib, read from the header it ships."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    try:
        text = header.read_text()
    except OSError:
        return None
    major, minor = (
        re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")
    )
    return (int(major[1]), int(minor[1])) if major and minor else None


def check_ffi_version(built: tuple[int, int], installed: tuple[int, int] | None) -> None:
    """Raises ImportError where handlers built with FFI API `built` cannot run under `installed`.

    XLA accepts handlers of its own version and older ones. Registering a newer one makes the whole
    backend fail to start, so this is checked first.
    """
    if installed is None or (built[0] == installed[0] and built[1] <= installed[1]):
        return
    raise ImportError(
        f"jax_transpose was built against XLA FFI API {built[0]}.{built[1]}, but the installed "
        f"jaxlib {jax.lib.__version__} has {installed[0]}.{installed[1]}: install a newer jaxlib, "
        "or rebuild jax_transpose in an environment with this one"
    )


def _register(module: ModuleType, platform: str) -> None:
    check_ffi_version(module.ffi_api_version, _installed_ffi_version())
    for name, handler in ((TARGET, module.handler), (INTO_TARGET, module.into_handler)):
        jax.ffi.register_ffi_target(name, handler(), platform=_XLA_PLATFORM[platform])


def _load_cuda() -> tuple[ModuleType | None, str]:
    try:
        _cuda = importlib.import_module("jax_transpose._cuda")
    except ModuleNotFoundError:
        return None, "built without CUDA (no CUDA compiler was found, or JAX_TRANSPOSE_CUDA=OFF)"
    except ImportError as error:
        return None, f"the CUDA module does not load: {error}"
    _register(_cuda, "cuda")
    return _cuda, ""


_register(_cpu, "cpu")
_cuda_module, _cuda_missing = _load_cuda()


def has_module(platform: str) -> Status:
    """Whether this build holds kernels for `platform`; asks no driver."""
    if platform == "cpu":
        return Status(True, "built in")
    if platform == "cuda":
        return Status(_cuda_module is not None, _cuda_missing or "built in")
    return Status(False, f"platform {platform!r} has no kernels; allowed: 'cpu', 'cuda'")


def can_run(platform: str) -> Status:
    """Whether this build holds kernels that every device of `platform` here can run.

    A program is lowered once for all devices of a platform, so the least able of them decides. True
    as well where there is no device: programs can be lowered for other machines.
    """
    built = has_module(platform)
    if platform == "cuda" and built:
        for device in gpu_devices():
            able, reason = _device_can_run(device.local_hardware_id)
            if not able:
                return Status(False, f"{device.device_kind} ({device}): {reason}")
    return built


_able: set[int] = set()


def _device_can_run(ordinal: int) -> tuple[bool, str]:
    """Asks once where the answer is yes; a no may have a cause that passes."""
    if ordinal in _able:
        return True, ""
    try:
        able, reason = _cuda_module.can_run(ordinal)
    except RuntimeError as error:
        return False, f"it could not be asked: {error}"
    if able:
        _able.add(ordinal)
    return able, reason


def status(platform: str) -> Status:
    """Whether `platform`'s kernels can run on this machine, and why (not).

    Args:
      platform: "cpu", "cuda" (or "gpu", which means the same), or another JAX platform.

    Returns:
      A `Status`, true where the kernels can run.

    Raises:
      ValueError: `platform` is the name of no platform.

    >>> bool(status("cpu"))
    True
    """
    platform = platform_name(platform)
    built = has_module(platform)
    if platform != "cuda" or not built:
        return built
    count, error = _cuda_module.device_count()
    if count == 0:
        return Status(False, f"no CUDA device: {error or 'none is visible'}")
    if not any(d.platform == "gpu" for d in gpu_devices()):
        return Status(
            False, f"{count} CUDA device(s), but JAX has no GPU backend (is jax[cuda13] installed?)"
        )
    able = can_run(platform)
    kernels = f"{count} CUDA device(s); kernels for {_cuda_module.architectures}"
    return Status(True, kernels) if able else able


def gpu_devices() -> list[jax.Device]:
    """JAX's CUDA GPUs in this process; none where it has no such backend."""
    try:
        return jax.local_devices(backend="cuda")
    except RuntimeError:
        return []


def measure(shape, permutation, element_bytes: int, candidates, device: jax.Device) -> list[float]:
    """Microseconds of each (kernel, tile) on a GPU, infinite for one that failed.

    RuntimeError as CUDA says.
    """
    ordinal = device.local_hardware_id
    return _cuda_module.measure(shape, permutation, element_bytes, candidates, ordinal)
