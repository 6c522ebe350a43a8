"""Donated operands, layouts that are not row-major, and arrays that others own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from meshes import CALL

import jax_transpose as jt

native = functools.partial(jt.transpose, kernel="native")


def unrolled(x, count):
    for _ in range(count):
        x = native(x)
    return x


def looped(x, count):
    return jax.lax.fori_loop(0, count, lambda _, x: native(x), x)


def scanned(x, count):
    return jax.lax.scan(lambda x, _: (native(x), None), x, length=count)[0]


def updated(x, count):
    """Every step reads the buffer and its transpose."""
    return jax.lax.fori_loop(0, count, lambda _, x: native(x) + x, x)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("loop", [unrolled, looped, scanned, updated])
@pytest.mark.parametrize("shape", [(6, 6), (64, 64), (129, 129)], ids=str)
def test_donated_operands(platform_device, shape, loop, count):
    x = small_values(shape, "float32")
    expected = x.T if count % 2 else x
    if loop is updated:
        expected = x
        for _ in range(count):
            expected = expected.T + expected
    f = jax.jit(functools.partial(loop, count=count), donate_argnums=0)
    operand = platform_device.put(x)
    assert_same_bits(f(operand), expected)
    assert operand.is_deleted()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_donated_operands_that_are_not_square(platform_device, count):
    x = small_values((5, 12), "float32")
    f = jax.jit(functools.partial(unrolled, count=count), donate_argnums=0)
    assert_same_bits(f(platform_device.put(x)), x.T if count % 2 else x)


def column_major(x, device):
    """`x` on `device` with its first axis contiguous, by whichever name this JAX has for that."""
    from jax.experimental import layout

    order = getattr(layout, "DeviceLocalLayout", layout.Layout)((1, 0))
    place = layout.Layout if hasattr(layout, "DeviceLocalLayout") else layout.Format
    return jax.device_put(x, place(order, jax.sharding.SingleDeviceSharding(device)))


def test_operands_that_are_not_row_major(platform_device):
    x = small_values((5, 12), "float32")
    operand = column_major(x, platform_device.device)
    f = jax.jit(native)
    text = f.lower(operand).compile().as_text()
    assert "f32[5,12]{0,1}" in text  # as it comes in
    assert "f32[12,5]{1,0} custom-call(" in text and CALL in text
    assert_same_bits(f(operand), x.T)
    assert_same_bits(native(operand), x.T)


def test_after_a_transpose_of_xlas(platform_device):
    x = small_values((3, 5, 12), "float32")
    f = jax.jit(lambda x: native(jnp.transpose(x, (1, 0, 2)), (2, 0, 1)))
    assert_same_bits(f(platform_device.put(x)), x.transpose(1, 0, 2).transpose(2, 0, 1))
    g = jax.jit(lambda x: native(jnp.transpose(x)) + jnp.transpose(native(x)))
    assert_same_bits(g(platform_device.put(x)), 2 * x)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[1:]])
def test_numpy_arrays_through_dlpack(view):
    x = view(small_values((6, 8), "float32"))
    operand = jax.dlpack.from_dlpack(x)
    imported = np.asarray(operand)  # not x: JAX 0.6.2 misreads some column-major arrays
    assert imported.shape == x.shape
    assert_same_bits(native(operand), imported.T)
    assert_same_bits(np.from_dlpack(native(operand)), imported.T)
