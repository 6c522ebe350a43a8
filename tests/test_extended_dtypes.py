"""dtypes that NumPy does not know, whose elements are arrays of plain ones, and float0."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compat_dtypes import PairDType, through_pairs
from dtypes import assert_same_bits, small_values
from jax.dtypes import float0
from jax.sharding import PartitionSpec as P
from meshes import collectives, device_mesh, put, use_mesh

import jax_transpose as jt

WORDS = small_values((3, 4, 5, 2), "uint32")
CALL = "@jax_transpose_v1"
KERNELS = pytest.mark.parametrize("kernel", ["auto", "native"])


@KERNELS
@pytest.mark.parametrize("axes", [None, (2, 0, 1), (0, 2, 1)])
def test_registered_dtypes(platform_device, axes, kernel):
    f = through_pairs(lambda x: jt.transpose(x, axes, kernel=kernel))
    words = platform_device.put(WORDS)
    last = (2, 1, 0) if axes is None else axes
    assert_same_bits(f(words), WORDS.transpose(*last, 3))
    assert f.lower(words).as_text().count(CALL) == (kernel == "native")


def test_every_function_takes_registered_dtypes():
    for function, expected in (
        (lambda x: jt.swapaxes(x, 0, 2), WORDS.swapaxes(0, 2)),
        (lambda x: jt.moveaxis(x, 0, 2), np.moveaxis(WORDS, 0, 2)),
        (jt.matrix_transpose, WORDS.swapaxes(1, 2)),
        (lambda x: jt.transpose(x, (0, 1, 2)), WORDS),
        (lambda x: jax.vmap(jt.matrix_transpose)(x), WORDS.swapaxes(1, 2)),
        (lambda x: jax.vmap(lambda y: jt.transpose(y), in_axes=1)(x), WORDS.transpose(1, 2, 0, 3)),
    ):
        assert_same_bits(through_pairs(function)(WORDS), expected)


@KERNELS
def test_registered_dtypes_in_a_buffer(kernel):
    words = small_values((3, 5, 2), "uint32")
    f = through_pairs(lambda x: jt.transpose(x, out=jt.transpose(x, kernel="xla"), kernel=kernel))
    assert_same_bits(f(words), words.swapaxes(0, 1))
    square = small_values((3, 5, 5, 2), "uint32")
    f = through_pairs(lambda x: jt.matrix_transpose(x, out=x, kernel=kernel))
    assert_same_bits(f(square), square.swapaxes(1, 2))
    f = through_pairs(lambda x: jax.vmap(lambda y: jt.transpose(y, out=y, kernel=kernel))(x))
    assert_same_bits(f(square), square.swapaxes(1, 2))


def test_explain_tells_of_stored_arrays():
    plan = jt.explain((3, 4), dtype=PairDType(), kernel="native", platform="cpu")
    assert (plan.implementation, plan.dtype) == ("native", "uint32")
    assert (plan.shape, plan.axes) == ((3, 4, 2), (1, 0, 2))
    assert plan.bytes_moved == 2 * 3 * 4 * 8
    plan = jt.explain((3, 4), dtype=float0)
    assert (plan.implementation, plan.dtype, plan.bytes_moved) == ("xla", "float0", 0)


class TestFloat0:
    ZEROS = np.zeros((2, 3, 4), float0)

    @pytest.mark.parametrize("jitted", [False, True])
    def test_arrays(self, jitted):
        for axes, shape in ((None, (4, 3, 2)), ((1, 2, 0), (3, 4, 2))):
            for transpose in (jt.transpose, jnp.transpose):
                f = functools.partial(transpose, axes=axes)
                got = jax.jit(f)(self.ZEROS) if jitted else f(self.ZEROS)
                assert got.shape == shape and got.dtype == float0

    def test_kernels_refuse_it(self):
        with pytest.raises(TypeError, match=r"'native'.*float0"):
            jt.transpose(self.ZEROS, kernel="native")

    def test_a_buffer(self):
        with pytest.raises(TypeError, match=r"out of dtype float32 .* dtype float0"):
            jt.transpose(self.ZEROS, out=jnp.zeros((4, 3, 2)))

    def test_tangents_of_integers(self):
        x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
        for kernel in ("auto", "native"):
            f = functools.partial(jt.transpose, axes=(2, 0, 1), kernel=kernel)
            out, tangent = jax.jvp(f, (x,), (self.ZEROS,))
            assert_same_bits(out, x.transpose(2, 0, 1))
            assert tangent.dtype == float0 and tangent.shape == (4, 2, 3)
            grad = jax.grad(lambda x, f=f: jnp.sum(f(x) * 1.0), allow_int=True)(x)
            assert grad.dtype == float0 and grad.shape == x.shape


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("kernel", ["auto", "native"])
def test_keys_of_every_implementation(platform_device, impl, kernel):
    with jax.default_device(platform_device.device):
        keys = jax.random.split(jax.random.key(3, impl=impl), 24).reshape(2, 3, 4)
        data = np.asarray(jax.random.key_data(keys))
        f = functools.partial(jt.transpose, kernel=kernel)
        cycle = functools.partial(f, axes=(2, 0, 1))
        for call in (cycle, jax.jit(cycle)):
            moved = call(keys)
            assert moved.dtype == keys.dtype and moved.shape == (4, 2, 3)
            assert_same_bits(jax.random.key_data(moved), data.transpose(2, 0, 1, 3))
        batched = jax.vmap(lambda k: f(k), in_axes=1, out_axes=2)(keys)
        assert_same_bits(jax.random.key_data(batched), data.transpose(2, 0, 1, 3))
        plan = jt.explain(keys, (2, 0, 1), kernel=kernel)
        assert plan.bytes_moved == 2 * data.nbytes


@KERNELS
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_the_primitive_takes_keys(impl, kernel):
    """As bound by code that does not go through `transpose`, such as a transformation."""
    keys = jax.random.split(jax.random.key(3, impl=impl), 24).reshape(2, 3, 4)
    data = np.asarray(jax.random.key_data(keys))

    def move(x, axes):
        return jt.transpose_p.bind(x, permutation=axes, kernel=kernel, tile=0)

    for moved in (move(keys, (2, 0, 1)), jax.jit(lambda x: move(x, (2, 0, 1)))(keys)):
        assert moved.dtype == keys.dtype
        assert_same_bits(jax.random.key_data(moved), data.transpose(2, 0, 1, 3))
    batched = jax.vmap(lambda x: move(x, (1, 0)), in_axes=1)(keys)
    assert_same_bits(jax.random.key_data(batched), data.transpose(1, 2, 0, 3))


@KERNELS
def test_keys_used_twice_are_found(kernel):
    """As with `jnp.transpose`, which counts as the one use of its keys."""

    def reuse(transpose, keys):
        return transpose(keys), jax.vmap(jax.vmap(jax.random.uniform))(keys)

    for transpose in (jnp.transpose, functools.partial(jt.transpose, kernel=kernel)):
        keys = jax.random.split(jax.random.key(3), 6).reshape(2, 3)
        with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
            jax.jit(functools.partial(reuse, transpose))(keys)


@pytest.mark.parametrize("explicit", [False, True])
def test_split_arrays_of_extended_dtypes(explicit):
    mesh = device_mesh((2, 4), explicit=explicit)
    with use_mesh(mesh):
        words = put(small_values((8, 6, 4, 2), "uint32"), mesh, P("y", "x"))
        f = through_pairs(lambda x: jt.transpose(x, (2, 0, 1), kernel="native"))
        assert_same_bits(f(words), np.asarray(words).transpose(2, 0, 1, 3))
        text = f.lower(words).compile().as_text()
        assert CALL[1:] in text and collectives(text) == []
