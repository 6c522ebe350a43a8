"""Transposes of partial sums on explicit meshes, as `jnp.einsum` makes with `unreduced=`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax.sharding import PartitionSpec as P
from meshes import CALL, collectives, compile_text, device_mesh, put, use_mesh

import jax_transpose as jt


def _types_partial_sums():
    try:
        return P(None, unreduced={"x"}).unreduced == {"x"} and hasattr(jax, "reshard")
    except TypeError:
        return False


pytestmark = pytest.mark.skipif(not _types_partial_sums(), reason="this JAX has no unreduced types")

KERNELS = pytest.mark.parametrize("kernel", ["auto", "native"])


@pytest.fixture
def mesh():
    explicit = device_mesh((2, 4), explicit=True)
    with use_mesh(explicit):
        yield explicit


def ours(kernel, axes=None):
    return functools.partial(jt.transpose, axes=axes, kernel=kernel)


@KERNELS
def test_a_matrix_of_sums(mesh, kernel):
    a, b = small_values((8, 16), "float32") % 7, small_values((16, 12), "float32") % 5
    operands = put(a, mesh, P(None, "x")), put(b, mesh, P("x", None))

    def program(transpose, a, b):
        sums = jnp.einsum("ij,jk->ik", a, b, out_sharding=P(None, None, unreduced={"x"}))
        return jax.reshard(transpose(sums), P("y", None))

    f, plain = (functools.partial(program, t) for t in (ours(kernel), jnp.transpose))
    out, expected = jax.jit(f)(*operands), jax.jit(plain)(*operands)
    assert_same_bits(out, (a @ b).T)
    assert out.sharding == expected.sharding
    text = compile_text(f, *operands)
    assert sorted(collectives(text)) == sorted(collectives(compile_text(plain, *operands)))
    assert text.count(CALL) == (kernel == "native")
    assert_same_bits(f(*operands), (a @ b).T)  # op by op


@KERNELS
def test_a_three_cycle_of_sums_that_are_split_too(mesh, kernel):
    a, b = small_values((6, 8, 4), "float32") % 7, small_values((8, 10), "float32") % 5
    operands = put(a, mesh, P(None, "x", "y")), put(b, mesh, P("x", None))

    def program(transpose, a, b):
        sums = jnp.einsum("ijl,jk->ikl", a, b, out_sharding=P(None, None, "y", unreduced={"x"}))
        return jax.reshard(transpose(sums), P("y", None, None))

    out = jax.jit(functools.partial(program, ours(kernel, (2, 0, 1))))(*operands)
    assert_same_bits(out, np.einsum("ijl,jk->ikl", a, b).transpose(2, 0, 1))


@KERNELS
def test_gradients_of_weights_in_data_parallel_training(mesh, kernel):
    """The batch is split, the weights are reduced values, so their gradients are partial sums."""
    x, w = small_values((16, 6), "float32") % 3, small_values((10, 6), "float32") % 3
    batch, weights = put(x, mesh, P("x", None)), put(w, mesh, P(None, None))

    def loss(transpose, w, x):
        w = jax.reshard(w, P(None, None, reduced={"x"}))
        return jnp.sum(jnp.einsum("bi,io->bo", x, transpose(w)) ** 2)

    grads = [
        jax.jit(jax.grad(functools.partial(loss, t)))(weights, batch)
        for t in (ours(kernel), jnp.transpose)
    ]
    assert_same_bits(grads[0], 2 * (x @ w.T).T @ x)
    assert grads[0].sharding == grads[1].sharding


def test_a_buffer_of_sums(mesh):
    def sums(a, b, spec):
        return jax.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=spec))(
            put(a, mesh, P(None, "x")), put(b, mesh, P("x", None))
        )

    a, b = small_values((8, 16), "float32") % 7, small_values((16, 12), "float32") % 5
    x = sums(a, b, P("y", None, unreduced={"x"}))
    out = sums(b.T, a.T, P(None, "y", unreduced={"x"}))
    moved = jt.transpose(x, out=out)
    assert out.is_deleted()
    assert_same_bits(jax.reshard(moved, P(None, None)), (a @ b).T)
    with pytest.raises(ValueError, match=r"out of shape \(12, 8\) has sharding"):
        jt.transpose(x, out=put(np.zeros((12, 8), np.float32), mesh, P(None, "y")))
