"""Derivatives. A 3-cycle is used on purpose: its inverse differs from itself."""

import functools

import dtypes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax.test_util import check_grads

import jax_transpose as jt

CYCLE, INVERSE = (2, 0, 1), (1, 2, 0)
SHAPE, MOVED = (2, 3, 4), (4, 2, 3)

native = functools.partial(jt.transpose, kernel="native")
cycle = functools.partial(native, axes=CYCLE)


def test_first_order(platform_device):
    x = platform_device.put(small_values(SHAPE, "float32"))
    ct = platform_device.put(small_values(MOVED, "float32") * 0.5 + 1)
    back = np.asarray(ct).transpose(INVERSE)

    def loss(x):
        return (cycle(x) * ct).sum()

    @jax.jit
    def all_of(x, ct):
        return [
            jax.grad(loss)(x),
            jax.grad(jax.checkpoint(loss))(x),
            jax.vjp(cycle, x)[1](ct)[0],
            jax.linear_transpose(cycle, x)(ct)[0],
            jax.vmap(jax.linear_transpose(cycle, x), in_axes=2)(jnp.stack([ct, ct], 2))[0][1],
        ]

    for got in (*all_of(x, ct), jax.grad(loss)(x), jax.linear_transpose(cycle, x)(ct)[0]):
        assert_same_bits(got, back)


def test_forward_mode(platform_device):
    x = platform_device.put(small_values(SHAPE, "float32"))
    dx = platform_device.put(small_values(SHAPE, "float32") * 3 - 7)
    for jvp in (jax.jvp, jax.jit(jax.jvp, static_argnums=0)):
        out, tangent = jvp(cycle, (x,), (dx,))
        assert_same_bits(out, np.asarray(x).transpose(CYCLE))
        assert_same_bits(tangent, np.asarray(dx).transpose(CYCLE))
    out, push = jax.linearize(cycle, x)
    assert_same_bits(push(dx), np.asarray(dx).transpose(CYCLE))


def test_derivatives_use_our_kernel_too():
    x, ct = jnp.ones(SHAPE), jnp.ones(MOVED)
    text = jax.jit(lambda x, ct: jax.vjp(cycle, x)[1](ct)).lower(x, ct).as_text()
    assert text.count("custom_call @jax_transpose_v1") >= 1
    assert "stablehlo.transpose" not in text


def test_hessian_and_mixed_modes(platform_device):
    with dtypes.x64():
        x = platform_device.put(small_values((2, 3), "float64") + 1)

        def f(x):
            return (native(x) ** 3).sum()

        want = np.zeros((2, 3, 2, 3))
        for index in np.ndindex(2, 3):
            want[index + index] = 6 * np.asarray(x)[index]
        for second in (jax.hessian(f), jax.jacfwd(jax.jacrev(f)), jax.jacrev(jax.jacfwd(f))):
            np.testing.assert_allclose(jax.jit(second)(x), want, rtol=1e-12)


def test_check_grads():
    with dtypes.x64():
        x = jnp.sin(jnp.arange(24.0).reshape(SHAPE))
        check_grads(lambda x: jnp.sin(cycle(x)) * cycle(x), (x,), order=2)


def test_holomorphic():
    with dtypes.x64():
        z = jnp.arange(6.0).reshape(2, 3) * (1 + 2j)
        grad = jax.grad(lambda z: (native(z) ** 2).sum(), holomorphic=True)(z)
    assert_same_bits(grad, 2 * np.asarray(z))


@pytest.mark.parametrize("name", ["int32", "bool"])
def test_float0_tangents_never_reach_a_kernel(name):
    i = jnp.asarray(small_values((3, 4), name))
    zeros = np.zeros((3, 4), jax.dtypes.float0)
    out, tangent = jax.jvp(native, (i,), (zeros,))
    assert_same_bits(out, np.asarray(i).T)
    assert tangent.dtype == jax.dtypes.float0 and tangent.shape == (4, 3)
    grad = jax.grad(lambda i: (native(i) * 1.5).sum(), allow_int=True)(i)
    assert grad.dtype == jax.dtypes.float0 and grad.shape == (3, 4)


def test_float_and_int_arguments_together():
    x, i = jnp.ones((3, 4)), jnp.arange(12).reshape(3, 4)
    grad = jax.jit(jax.grad(lambda x, i: (native(x) * native(i)).sum()))(x, i)
    assert_same_bits(grad, np.arange(12, dtype=np.float32).reshape(3, 4))


def test_symbolic_zeros_and_unused_outputs():
    x, y = jnp.ones((2, 3)), jnp.ones((3, 2))
    grads = jax.grad(lambda x, y: (native(x), native(y))[1].sum(), argnums=(0, 1))(x, y)
    assert_same_bits(grads[0], np.zeros((2, 3), np.float32))
    assert_same_bits(grads[1], np.ones((3, 2), np.float32))


def test_jet():
    jet = pytest.importorskip("jax.experimental.jet").jet
    x = jnp.arange(1.0, 7.0).reshape(2, 3)
    dx, ddx = jnp.cos(x), jnp.ones_like(x)
    out, terms = jet(lambda x: native(x), (x,), ((dx, ddx),))
    for got, source in zip((out, *terms), (x, dx, ddx), strict=True):
        assert_same_bits(got, np.asarray(source).T)
    _, ours = jet(lambda x: jnp.exp(native(x)), (x,), ((dx, ddx),))
    _, theirs = jet(lambda x: jnp.exp(x.T), (x,), ((dx, ddx),))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_remat():
    x = small_values((4, 4), "float32")

    @functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable)
    def f(x):
        return (jnp.sin(native(x)) * native(x)).sum()

    grad = jax.jit(jax.grad(f))(x)
    np.testing.assert_allclose(grad, np.cos(x) * x + np.sin(x), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("kernel", ["auto", "xla", "naive"])
def test_gradients_under_every_kernel(kernel):
    x, w = jnp.ones(SHAPE), jnp.asarray(small_values(MOVED, "float32"))
    grad = jax.jit(jax.grad(lambda x: (jt.transpose(x, CYCLE, kernel=kernel) * w).sum()))(x)
    assert_same_bits(grad, np.asarray(w).transpose(INVERSE))
