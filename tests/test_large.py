"""Operands beyond 2**31 elements and grids beyond 65535 blocks, checked on the device.

Every element is a hash of its index, so that the whole output can be compared with the
hash of the permuted index without a second copy of it. Two bands of every output are
compared with numpy's hash on the host as well, so that XLA's index arithmetic is not
the only witness.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import numpy_dtype

import jax_transpose as jt

pytestmark = pytest.mark.gpu

_PRIMES = (2654435761, 2246822519, 3266489917)
BAND = 4096


def _mix(xp, indices, dtype):
    """A hash of the index arrays (uint32, broadcastable), as integers of `dtype`'s width."""
    total = xp.uint32(0x9E3779B9)
    for prime, index in zip(_PRIMES, indices, strict=False):
        total = total ^ (index * xp.uint32(prime))
        total = total ^ (total >> xp.uint32(15))
    total = total * xp.uint32(2246822519)
    bits = 8 * numpy_dtype(dtype).itemsize
    return (total >> xp.uint32(32 - bits)).astype(f"uint{bits}")


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def hashed(shape, dtype, axes):
    """The operand transposed by `axes`, computed from the indices: no transpose involved."""
    moved = tuple(shape[a] for a in axes)
    where = [jax.lax.broadcasted_iota(jnp.uint32, moved, axes.index(d)) for d in range(len(shape))]
    return jax.lax.bitcast_convert_type(_mix(jnp, where, dtype), numpy_dtype(dtype))


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def differs(out, shape, dtype, axes):
    """Whether any element of `out` has other bits than hashed(); fused, nothing stored."""
    bits = f"uint{8 * numpy_dtype(dtype).itemsize}"
    want = jax.lax.bitcast_convert_type(hashed(shape, dtype, axes), bits)
    return jnp.any(jax.lax.bitcast_convert_type(out, bits) != want)


def host_band(shape, dtype, axes, band):
    """numpy's value of `out[band]`, `band` one slice per output axis."""
    grids = np.meshgrid(*[np.arange(s.start, s.stop, dtype=np.uint32) for s in band], indexing="ij")
    with np.errstate(over="ignore"):
        return _mix(np, [grids[axes.index(d)] for d in range(len(shape))], dtype)


def check(shape, axes, dtype="uint8", kernel="native"):
    """Transpose the hashed operand and compare everything; frees all it made."""
    x = hashed(shape, dtype, tuple(range(len(shape))))
    out = jax.jit(lambda x: jt.transpose(x, axes, kernel=kernel))(x)
    x.delete()
    assert out.shape == tuple(shape[a] for a in axes)
    wrong = bool(differs(out, shape, dtype, axes))
    longest = max(range(out.ndim), key=lambda d: out.shape[d])
    for at_end in (False, True):  # a band across the longest axis: both ends of memory
        band = [slice(0, min(n, 64)) for n in out.shape]
        n = out.shape[longest]
        band[longest] = slice(max(n - BAND, 0), n) if at_end else slice(0, min(n, BAND))
        if at_end:
            band = [
                b if d == longest else slice(max(out.shape[d] - 64, 0), out.shape[d])
                for d, b in enumerate(band)
            ]
        got = np.asarray(out[tuple(band)])
        want = host_band(shape, dtype, axes, band)
        assert (got.view(want.dtype) == want).all(), f"{kernel} {shape} {axes} {band}"
    out.delete()
    assert not wrong, f"{kernel} {dtype} {shape} {axes}"


KINDS = ("native", *jt.kernels("cuda"))


@pytest.mark.parametrize("kernel", KINDS)
def test_exactly_2_to_32_elements(kernel):
    """A 32-bit element count is 0 here, so that a kernel may silently write nothing."""
    check((1 << 16, 1 << 16), (1, 0), kernel=kernel)


@pytest.mark.parametrize("kernel", KINDS)
@pytest.mark.parametrize("shape", [(2, 1073742848), (1073742848, 2)])
def test_between_2_to_31_and_2_to_32(kernel, shape):
    check(shape, (1, 0), kernel=kernel)


@pytest.mark.parametrize("kernel", KINDS)
def test_a_loop_counter_that_overflows_after_the_last_element(kernel):
    check((33554431, 64), (1, 0), kernel=kernel)


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
@pytest.mark.parametrize(
    "shape, axes",
    [
        ((33640000, 64), (1, 0)),
        ((269120000, 8), (1, 0)),
        ((5800, 5800, 64), (2, 1, 0)),
        ((5800, 5800, 64), (0, 2, 1)),
        ((22500000, 1, 96), (2, 0, 1)),
        ((22500000, 3, 32), (0, 2, 1)),
        ((33640000, 2, 32), (1, 0, 2)),
    ],
)
def test_every_pattern_with_64_bit_indices(shape, axes, dtype):
    check(shape, axes, dtype)


@pytest.mark.parametrize("name", ["float32", "float16"])
@pytest.mark.parametrize("rows", [1048561, 2097121, 4194241, 8388481])
def test_more_than_65535_tiles_in_one_direction(name, rows):
    """The first heights past 65535 tiles of 16, 32, 64 and 128 rows."""
    for shape in ((rows, 4), (4, rows)):
        check(shape, (1, 0), name)


@pytest.mark.parametrize("kernel", KINDS)
def test_more_than_65535_batches(kernel):
    check((70001, 5, 7), (0, 2, 1), "uint16", kernel)


def test_eager_beyond_2_to_31():
    shape = (2, 1073742848)
    x = hashed(shape, "uint8", (0, 1))
    out = jt.transpose(x)
    assert math.prod(out.shape) > 1 << 31
    assert not differs(out, shape, "uint8", (1, 0))
