"""Every dtype that JAX has here, arrays of random *bits*, and comparison of bits.

Expected values come from numpy alone: an array is viewed as unsigned integers of its
element width (raw 16-byte records for complex128) and permuted by ``np.transpose``.
"""

import contextlib
import math

import jax
import jax.numpy as jnp
import numpy as np

FLOAT8 = tuple(
    name
    for name in (
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3b11fnuz",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e4m3",
        "float8_e3m4",
        "float8_e8m0fnu",
    )
    if hasattr(jnp, name)
)
BYTE_DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *FLOAT8,
)
#: Dtypes that XLA packs several to a byte.
SUB_BYTE = tuple(
    name for name in ("int2", "uint2", "int4", "uint4", "float4_e2m1fn") if hasattr(jnp, name)
)
#: One dtype per element width: 1, 2, 4, 8 and 16 bytes.
ONE_PER_WIDTH = ("uint8", "bfloat16", "float32", "float64", "complex128")

# Signalling NaN with payload, quiet NaN with payload, -0, smallest subnormals, -inf.
_AWKWARD = {
    "float16": (0x7D01, 0xFE55, 0x8000, 0x0001, 0x8001, 0xFC00),
    "bfloat16": (0x7FA1, 0xFFC5, 0x8000, 0x0001, 0x8001, 0xFF80),
    "float32": (0x7FA00001, 0xFFC12345, 0x80000000, 0x00000001, 0x80000001, 0xFF800000),
    "float64": (
        *(0x7FF4000000000001, 0xFFF8000012345678, 1 << 63, 1, (1 << 63) + 1),
        0xFFF0000000000000,
    ),
}
_PART = {"complex64": "float32", "complex128": "float64"}


def x64(enabled=True):
    """Context manager that sets JAX's 64-bit mode, by whichever name this JAX has."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    from jax.experimental import disable_x64, enable_x64

    return enable_x64() if enabled else disable_x64()


def numpy_dtype(name):
    """The numpy dtype of a JAX dtype name, e.g. ``"bfloat16"``."""
    return np.dtype(getattr(jnp, "bool_" if name == "bool" else name))


def random_bits(shape, name, seed=0):
    """A numpy array of uniformly random bits, led by the awkward values of its type."""
    dtype, count = numpy_dtype(name), math.prod(shape)
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    part = _PART.get(name, name)
    if part in _AWKWARD:
        words = raw.view(f"u{numpy_dtype(part).itemsize}")
        words[: len(_AWKWARD[part])] = _AWKWARD[part][: words.size]
    return raw.view(dtype).reshape(shape)


def as_words(x):
    """`x` viewed as unsigned words of its element width, so that numpy only moves bits."""
    x = np.asarray(x)
    return x.view("V16" if x.dtype.itemsize == 16 else f"u{x.dtype.itemsize}")


def expect(x, axes=None):
    """numpy's transpose of the host array `x`, bit for bit."""
    return np.transpose(as_words(x), axes).copy(order="C").view(x.dtype)


def assert_same_bits(actual, expected, context=""):
    """Fail, naming the first wrong element, unless shape, dtype and every bit agree."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, context
    assert actual.dtype == expected.dtype, context
    if actual.tobytes() == expected.tobytes():
        return
    size = actual.dtype.itemsize
    left, right = (
        np.frombuffer(a.tobytes(), np.uint8).reshape(-1, size) for a in (actual, expected)
    )
    wrong = np.flatnonzero((left != right).any(axis=1))
    first = tuple(int(i) for i in np.unravel_index(wrong[0], actual.shape))
    raise AssertionError(
        f"{context}: {len(wrong)} of {actual.size} elements differ, first at {first}: "
        f"{left[wrong[0]].tobytes().hex()} != {right[wrong[0]].tobytes().hex()}"
    )


def small_values(shape, name):
    """Distinct small integers in float-like or integer dtype `name`, C order."""
    return np.arange(math.prod(shape)).reshape(shape).astype(numpy_dtype(name))


@contextlib.contextmanager
def x64_if_needed(*names):
    """Turn 64-bit mode on when one of the dtypes needs it."""
    wide = {"int64", "uint64", "float64", "complex128"}
    with x64() if wide & set(names) else contextlib.nullcontext():
        yield
