"""What `explain` says is moved: bytes counted by hand, for every width, whoever moves them."""

import math

import jax.numpy as jnp
import pytest
from built import needs_cuda_module

import jax_transpose as jt

PLATFORMS = pytest.mark.parametrize(
    "platform, kernel",
    [
        ("cpu", "native"),
        ("cpu", "auto"),
        ("cpu", "xla"),
        pytest.param("cuda", "native", marks=needs_cuda_module),
        ("cuda", "auto"),
        ("cuda", "xla"),
        ("tpu", "auto"),
        ("tpu", "xla"),
    ],
)
BITS = {
    name: bits
    for name, bits in {"int2": 2, "uint4": 4, "int4": 4, "uint8": 8, "bfloat16": 16}.items()
    if hasattr(jnp, name)
} | {"float32": 32, "complex64": 64, "complex128": 128}


def read_and_written(shape, name):
    """Elements narrower than a byte are packed; the last byte is moved whole."""
    return 2 * math.ceil(math.prod(shape) * BITS[name] / 8)


@PLATFORMS
@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize(
    "shape, axes",
    [((3, 5), (1, 0)), ((7, 9, 11), (1, 2, 0)), ((7, 9, 11), (2, 0, 1)), ((0, 3), (1, 0))],
)
def test_a_transpose_reads_and_writes_every_element(platform, kernel, shape, axes, name):
    plan = jt.explain(shape, axes, name, platform, kernel=kernel)
    assert plan.bytes_moved == read_and_written(shape, name)
    assert f"{plan.bytes_moved:,} bytes" in str(plan)


@PLATFORMS
@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("shape, axes", [((3, 5), (0, 1)), ((1, 15), (1, 0)), ((15,), (0,))])
def test_what_keeps_the_order_moves_nothing_but_into_a_buffer(platform, kernel, shape, axes, name):
    """A given buffer must be filled: the identity is then a copy, which XLA makes."""
    plan = jt.explain(shape, axes, name, platform, kernel=kernel)
    assert (plan.implementation, plan.kernel, plan.bytes_moved) == ("identity", "none", 0)
    into = jt.explain(shape, axes, name, platform, kernel=kernel, out="buffer")
    assert (into.implementation, into.kernel) == ("xla", "transpose")
    assert into.bytes_moved == read_and_written(shape, name)
    assert (into.tile, into.grid, into.block) == (0, 0, 0)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("shape, axes", [((3, 5), (0, 1)), ((1, 15), (0, 1)), ((15,), (0,))])
def test_in_place_the_identity_moves_nothing(platform, shape, axes):
    plan = jt.explain(shape, axes, "float32", platform, out="in_place")
    assert (plan.implementation, plan.kernel, plan.bytes_moved) == ("identity", "none", 0)
