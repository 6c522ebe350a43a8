"""Other libraries that transpose, and the plain copy that bounds them all.

A peer moves the same bits: types that it does not know travel as integers of the same width. Its
result is compared with ours before its time counts where the array is small enough to be compared
on the host; cuTENSOR's is not, since it multiplies by one and may change NaN payloads.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .cases import element_bits
from .timing import Program, jitted
from .verify import words

DEFAULT = {"cpu": ("numpy", "torch"), "gpu": ("torch", "cupy", "cutensor")}


@dataclasses.dataclass(frozen=True)
class Peer:
    """`program(key, xs, axes)` gives a timed `Program`, or None for a dtype it does not move."""

    name: str
    version: str
    program: Callable[[str, list, tuple], Program | None]
    to_host: Callable | None  # output -> numpy array with the same bits; None: not compared


def load(names, platform: str) -> tuple[list[Peer], dict[str, str]]:
    """The importable peers among `names`, and why the others are missing."""
    peers, missing = [], {}
    for name in names:
        try:
            peers.append(_MAKERS[name](platform))
        except KeyError:
            missing[name] = f"unknown peer; known: {', '.join(_MAKERS)}"
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
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


def _integers(x: jax.Array) -> jax.Array | None:
    """`x` as an array whose dtype every library knows, bits unchanged; None for sub-byte types."""
    bits = element_bits(x.dtype.name)
    if bits < 8:
        return None
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return x
    return jax.lax.bitcast_convert_type(x, "uint8" if bits == 8 else f"int{bits}")


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

    def program(key, xs, axes):
        xs = [_integers(x) for x in xs]
        if xs[0] is None:
            return None
        if platform == "cpu":
            tensors = [torch.from_numpy(np.array(x)) for x in xs]
        else:
            tensors = [torch.from_dlpack(jax.block_until_ready(x)) for x in xs]
        return Program(
            key,
            lambda i: tensors[i % len(tensors)].permute(axes).contiguous(),
            wait=lambda out: None if platform == "cpu" else torch.cuda.synchronize(),
            rotation=len(tensors),
        )

    return Peer("torch", torch.__version__, program, lambda out: out.cpu().numpy())


def _cupy(platform: str) -> Peer:
    if platform == "cpu":
        raise RuntimeError("cupy needs a GPU")
    cupy = importlib.import_module("cupy")

    def program(key, xs, axes):
        xs = [_integers(x) for x in xs]
        if xs[0] is None:
            return None
        arrays = [cupy.from_dlpack(jax.block_until_ready(x)) for x in xs]
        return Program(
            key,
            lambda i: cupy.ascontiguousarray(arrays[i % len(arrays)].transpose(axes)),
            wait=lambda out: cupy.cuda.get_current_stream().synchronize(),
            rotation=len(arrays),
        )

    return Peer("cupy", cupy.__version__, program, cupy.asnumpy)


def _cutensor(platform: str) -> Peer:
    if platform == "cpu":
        raise RuntimeError("cuTENSOR needs a GPU")
    from . import cutensor

    library = cutensor.Library()

    def program(key, xs, axes):
        return library.program(key, xs, axes)

    return Peer("cutensor", library.version, program, None)


_MAKERS = {"numpy": _numpy, "torch": _torch, "cupy": _cupy, "cutensor": _cutensor}
