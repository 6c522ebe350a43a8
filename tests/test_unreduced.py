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


@KERNELS
def test_gradients_through_a_three_cycle(mesh, kernel):
    """The cotangent, a partial sum, goes back through the inverse, which is no exchange."""
    x, w = small_values((16, 6), "float32") % 3, small_values((4, 6, 10), "float32") % 3
    batch, weights = put(x, mesh, P("x", None)), put(w, mesh, P(None, None, None))

    def loss(transpose, remat, w, x):
        w = jax.reshard(w, P(None, None, None, reduced={"x"}))

        def scores(w):
            return jnp.sum(jnp.einsum("bi,iok->bok", x, transpose(w)) ** 2)

        return (jax.checkpoint(scores) if remat else scores)(w)

    expected = np.einsum("iok,bi->bok", w.transpose(1, 2, 0), x)
    expected = 2 * np.einsum("bok,bi->kio", expected, x)
    for remat in (False, True):
        grad = jax.grad(functools.partial(loss, ours(kernel, (1, 2, 0)), remat))
        assert_same_bits(jax.jit(grad)(weights, batch), expected)
        text = compile_text(grad, weights, batch)
        assert (CALL in text) == (kernel == "native")


@KERNELS
def test_sums_inside_of_shard_map(mesh, kernel):
    a, b = small_values((8, 16), "float32") % 7, small_values((16, 12), "float32") % 5
    operands = put(a, mesh, P(None, "x")), put(b, mesh, P("x", None))
    split, sums = (P(None, "x"), P("x", None)), P(None, None, unreduced={"x"})

    def added_within(a, b):
        def body(a, b):
            return jax.lax.psum(ours(kernel)(a @ b), "x")

        return jax.shard_map(body, in_specs=split, out_specs=P())(a, b)

    def added_outside(a, b):
        product = jnp.einsum("ij,jk->ik", a, b, out_sharding=sums)
        moved = jax.shard_map(ours(kernel), in_specs=sums, out_specs=sums)(product)
        return jax.reshard(moved, P(None, "y"))

    for f in (added_within, added_outside):
        assert_same_bits(jax.jit(f)(*operands), (a @ b).T)
        assert compile_text(f, *operands).count(CALL) == (kernel == "native")


@KERNELS
def test_a_batch_of_sums(mesh, kernel):
    """Microbatches: the batch axis of vmap is one that the sums have too."""
    a, b = small_values((5, 8, 16), "float32") % 7, small_values((5, 16, 12), "float32") % 5
    operands = put(a, mesh, P(None, None, "x")), put(b, mesh, P(None, "x", None))

    def product(transpose, a, b):
        sums = jnp.einsum("ij,jk->ik", a, b, out_sharding=P(None, None, unreduced={"x"}))
        return jax.reshard(transpose(sums), P("y", None))

    out = jax.jit(jax.vmap(functools.partial(product, ours(kernel))))(*operands)
    assert_same_bits(out, (a @ b).swapaxes(1, 2))


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
