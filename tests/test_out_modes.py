"""An eager `out=` where a mode or a transformation of JAX reads the arrays a second time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax.experimental import checkify

import jax_transpose as jt

SHAPE, AXES = (3, 4, 4), (0, 2, 1)
HOST = small_values(SHAPE, "float32") + 1


def in_place(x):
    return jt.transpose(x, AXES, out=x)


def into(x):
    return jt.transpose(x, AXES, out=jnp.zeros(SHAPE))


def into_a_three_cycle(x):
    return jt.transpose(x, (2, 0, 1), out=jnp.zeros((4, 3, 4)))


CALLS = pytest.mark.parametrize("call", [in_place, into])


def array():
    return jax.block_until_ready(jnp.array(HOST))


@pytest.mark.parametrize("mode", [jax.debug_nans, jax.debug_infs], ids=["nans", "infs"])
@CALLS
@pytest.mark.parametrize("jitted", [False, True])
def test_debug_nans(mode, call, jitted):
    bad = np.float32(np.nan if mode is jax.debug_nans else np.inf)
    x = array().at[1, 2, 3].set(bad)
    f = jax.jit(call) if jitted else call
    with mode(True):
        with pytest.raises(FloatingPointError):
            f(x)
        assert_same_bits(f(array()), HOST.transpose(AXES))


def test_debug_nans_with_a_donated_buffer():
    f = jax.jit(lambda x, out: jt.transpose(x, AXES, out=out), donate_argnums=(0, 1))
    plain = jax.jit(lambda x, out: jnp.transpose(x, AXES), donate_argnums=(0, 1), keep_unused=True)
    with jax.debug_nans(True):
        for program in (plain, f):
            with pytest.raises(FloatingPointError):
                program(array().at[0].set(np.nan), array())


@CALLS
def test_disable_jit(call):
    """A program steps as it runs: what it does not donate, the caller still has."""
    x = array()
    with jax.disable_jit():
        assert_same_bits(jax.jit(call)(x), HOST.transpose(AXES))
        assert_same_bits(jax.jit(call)(x), HOST.transpose(AXES))
    assert_same_bits(x, HOST)


@CALLS
@pytest.mark.parametrize("wrap", [lambda f: f, jax.checkpoint, jax.jit], ids=["", "remat", "jit"])
def test_gradients(call, wrap):
    """What the backward pass reads must outlive the forward pass."""
    x = array()

    def loss(transpose, x):
        return jnp.sum(wrap(lambda x: jnp.sin(transpose(jnp.cos(x) * x)) * transpose(x))(x) * x)

    got = jax.grad(functools.partial(loss, call))(x)
    expected = jax.grad(functools.partial(loss, lambda x: jnp.transpose(x, AXES)))(x)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert_same_bits(x, HOST)


@CALLS
def test_checkpoint_of_the_call_itself(call):
    x = array()
    value, grad = jax.value_and_grad(lambda x: jnp.sum(jax.checkpoint(call)(x) ** 2))(x)
    np.testing.assert_allclose(value, np.sum(HOST**2), rtol=1e-6)
    assert_same_bits(grad, 2 * HOST)
    assert_same_bits(x, HOST)


@pytest.mark.parametrize("call, axes", [(in_place, AXES), (into_a_three_cycle, (2, 0, 1))])
def test_vjp_jvp_and_linearize(call, axes):
    x = array()
    weights = small_values(tuple(np.array(SHAPE)[list(axes)]), "float32")
    out, pull = jax.vjp(call, x)
    assert_same_bits(out, HOST.transpose(axes))
    assert_same_bits(pull(jnp.array(weights))[0], weights.transpose(np.argsort(axes)))
    out, tangent = jax.jvp(call, (x,), (x,))
    assert_same_bits(out, HOST.transpose(axes))
    assert_same_bits(tangent, HOST.transpose(axes))
    out, push = jax.linearize(call, x)
    assert_same_bits(push(x), HOST.transpose(axes))
    assert_same_bits(x, HOST)


def test_the_gradient_of_a_program_that_ran_before():
    f = jax.jit(lambda x, out: jnp.sum(jt.transpose(x, AXES, out=out) ** 2))
    x, out = array(), array()
    assert_same_bits(jax.grad(f)(x, out), 2 * HOST)
    assert_same_bits(jax.grad(f)(x, out), 2 * HOST)


@CALLS
def test_checkify(call):
    x = array()
    program = jax.jit(lambda x: call(x) + x)
    checked = checkify.checkify(program, errors=checkify.all_checks)
    error, got = checked(x)
    error.throw()
    assert_same_bits(got, HOST.transpose(AXES) + HOST)
    assert_same_bits(x, HOST)


def test_checkify_makes_constants_of_arguments():
    with pytest.raises(ValueError, match=r"out of shape .* constant.*checkify.*jax\.jit"):
        checkify.checkify(in_place)(array())


@CALLS
@pytest.mark.parametrize("level", ["disallow", "disallow_explicit"])
def test_transfer_guards(call, level):
    x, out = array(), array()
    call = in_place if call is in_place else lambda x: jt.transpose(x, AXES, out=out)
    with jax.transfer_guard(level):
        got = call(x)
    assert_same_bits(got, HOST.transpose(AXES))


def test_vmap_still_gives_the_buffer_away():
    x, out = array(), array()
    jax.block_until_ready(jax.vmap(lambda x, out: jt.transpose(x, out=out))(x, out))
    assert out.is_deleted() and not x.is_deleted()


@CALLS
def test_vmap_of_a_gradient(call):
    x = jnp.stack([array(), 2 * array()])
    got = jax.vmap(jax.grad(lambda x: jnp.sum(call(x) ** 2)))(x)
    assert_same_bits(got, 2 * np.stack([HOST, 2 * HOST]))


def test_an_operand_that_was_given_away():
    x, out = array(), array()
    in_place(x)
    with pytest.raises(ValueError, match=r"out of shape .* was deleted"):
        in_place(x)
    with pytest.raises(ValueError, match=r"operand of shape \(3, 4, 4\) was deleted.*out="):
        jt.transpose(x, AXES, out=out)
    assert not out.is_deleted()


class TestOtherDevices:
    """Operands that JAX is free to move follow `out`, as `jnp.add` moves them."""

    @pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "uncommitted"])
    @pytest.mark.parametrize("axes", [(0, 2, 1), (2, 0, 1)])
    def test_one_device(self, make, axes):
        device = jax.devices("cpu")[3]
        host = small_values((3, 4, 5), "float32")
        shape = tuple(np.array(host.shape)[list(axes)])
        out = jax.block_until_ready(jax.device_put(jnp.zeros(shape), device))
        pointer = out.unsafe_buffer_pointer()
        y = jt.transpose(make(host), axes, out=out)
        assert y.devices() == {device} and y.unsafe_buffer_pointer() == pointer
        assert out.is_deleted()
        assert_same_bits(y, host.transpose(axes))

    def test_several_devices(self):
        mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:8]).reshape(4, 2), ("x", "y"))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x", "y"))
        host = small_values((8, 6, 5), "float32")
        out = jax.device_put(jnp.zeros((5, 8, 6)), sharding)
        y = jt.transpose(host, (2, 0, 1), out=out)
        assert y.sharding.is_equivalent_to(sharding, 3) and out.is_deleted()
        assert_same_bits(y, host.transpose(2, 0, 1))

    @pytest.mark.parametrize("mode", [jax.debug_nans, jax.debug_infs, jax.disable_jit])
    def test_in_debugging_modes_too(self, mode):
        first, third = jax.devices("cpu")[0], jax.devices("cpu")[3]
        out = jax.device_put(HOST, third)
        with mode(True):
            y = jt.transpose(HOST, AXES, out=out)
            assert y.devices() == {third} and not out.is_deleted()
            assert_same_bits(y, HOST.transpose(AXES))
            if mode is not jax.disable_jit:
                with pytest.raises(ValueError, match="lies on"):
                    jt.transpose(jax.device_put(HOST, first), AXES, out=out)

    def test_a_committed_operand_stays(self):
        first, second = jax.devices("cpu")[:2]
        x, out = jax.device_put(HOST, first), jax.device_put(HOST, second)
        with pytest.raises(ValueError, match="lies on"):
            jt.transpose(x, AXES, out=out)
        assert not out.is_deleted()
