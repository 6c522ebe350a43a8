"""Control flow, tracing modes, compilation: everything but vmap and derivatives."""

import functools

import dtypes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values

import jax_transpose as jt

CALL = "custom_call @jax_transpose_v1"
native = functools.partial(jt.transpose, kernel="native")


def test_control_flow(platform_device):
    x = platform_device.put(small_values((3, 3), "float32"))
    xs = platform_device.put(small_values((4, 3, 5), "float32"))
    host, rows = np.asarray(x), np.asarray(xs)

    @jax.jit
    def run(x, xs, flag):
        return {
            "scan carry": jax.lax.scan(lambda c, _: (native(c), None), x, length=3)[0],
            "scan xs": jax.lax.scan(lambda c, row: (c, native(row)), 0, xs)[1],
            "fori": jax.lax.fori_loop(0, 5, lambda _, c: native(c) + 1, x),
            "while": jax.lax.while_loop(lambda c: c[0, 0] < 3, lambda c: native(c) + 1, x),
            "cond": jax.lax.cond(flag, native, lambda x: x, x),
            "switch": jax.lax.switch(flag.astype(int), [lambda x: x, native], x),
            "map": jax.lax.map(native, xs),
            "grad of scan": jax.grad(
                lambda x: (jax.lax.scan(lambda c, _: (native(c), None), x, length=3)[0] * x).sum()
            )(x),
        }

    out = run(x, xs, True)
    for name in ("scan carry", "cond", "switch"):
        assert_same_bits(out[name], host.T, name)
    for name in ("scan xs", "map"):
        assert_same_bits(out[name], rows.transpose(0, 2, 1), name)
    assert_same_bits(out["fori"], host.T + 5)
    assert_same_bits(out["while"], host.T + 3)
    assert_same_bits(out["grad of scan"], 2 * host.T)
    assert_same_bits(run(x, xs, False)["cond"], host)


def test_vmapped_control_flow():
    x = small_values((2, 3, 3), "float32")
    flags = np.array([True, False])
    f = jax.vmap(lambda flag, x: jax.lax.cond(flag, native, lambda x: x, x))
    assert_same_bits(jax.jit(f)(flags, x), np.stack([x[0].T, x[1]]))
    scan = jax.vmap(lambda x: jax.lax.scan(lambda c, _: (native(c), None), x, length=3)[0])
    assert_same_bits(jax.jit(scan)(x), x.transpose(0, 2, 1))


def test_disable_jit(platform_device):
    x = platform_device.put(small_values((3, 4), "float32"))
    host = np.asarray(x)
    with jax.disable_jit():
        assert_same_bits(jax.jit(native)(x), host.T)
        assert_same_bits(jax.vmap(native)(x.reshape(3, 2, 2)), host.reshape(3, 2, 2).swapaxes(1, 2))
        assert_same_bits(jax.jvp(native, (x,), (x,))[1], host.T)
        assert_same_bits(jax.grad(lambda x: (native(x) * host.T).sum())(x), host)


def test_checking_leaks():
    x = jnp.ones((3, 4))
    with jax.checking_leaks():
        jax.jit(native)(x)
        jax.jit(jax.vmap(native))(jnp.ones((2, 3, 4)))
        jax.jit(jax.grad(lambda x: native(x).sum()))(x)
        jax.jit(lambda x: jax.jvp(native, (x,), (x,)))(x)
        jax.lax.scan(lambda c, _: (native(c), None), jnp.ones((2, 2)), length=2)


def test_debug_nans():
    clean = jnp.ones((3, 4))
    dirty = clean.at[1, 2].set(jnp.nan)
    with jax.debug_nans(True):
        for f in (native, jax.jit(native)):
            assert f(clean).shape == (4, 3)
            with pytest.raises(FloatingPointError):
                f(dirty)
        assert jax.vmap(native)(clean.reshape(3, 2, 2)).shape == (3, 2, 2)
        assert jax.jvp(native, (clean,), (clean,))[1].shape == (4, 3)


@pytest.mark.parametrize("kernel", ["auto", "native", "xla"])
def test_weak_types_are_kept(kernel):
    f = functools.partial(jt.transpose, kernel=kernel)
    for scalar in (1.0, 2, 3j):
        for run in (f, jax.jit(f)):
            assert run(scalar).weak_type
    assert not f(jnp.ones((2, 3))).weak_type
    broadcast = jax.jit(lambda: f(jnp.broadcast_to(1.0, (2, 3))))()
    assert broadcast.weak_type and broadcast.shape == (3, 2)
    mixed = jax.jit(lambda s, h: f(s) * h)(2.0, jnp.ones((2, 3), jnp.bfloat16))
    assert mixed.dtype == jnp.bfloat16


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "axes",
    [(2, 0, 1), [2, 0, 1], np.array([2, 0, 1], np.int32), tuple(map(np.int64, (2, 0, 1)))],
    ids=["tuple", "list", "array", "numpy ints"],
)
def test_with_64_bit_mode_on_and_off(platform_device, wide, axes):
    x = small_values((2, 3, 4), "float32")
    with dtypes.x64(wide):
        out = jax.jit(lambda x: native(x, axes))(platform_device.put(x))
    assert_same_bits(out, x.transpose(2, 0, 1))


def test_ahead_of_time(platform_device):
    x = platform_device.put(small_values((3, 4), "float32"))
    lowered = jax.jit(native).lower(jax.ShapeDtypeStruct((3, 4), np.float32))
    assert lowered.as_text().count(CALL) == 1
    compiled = lowered.compile()
    assert_same_bits(compiled(x), np.asarray(x).T)
    with pytest.raises(TypeError):
        compiled(jnp.ones((4, 3)))


@pytest.mark.parametrize("name", dtypes.BYTE_DTYPES)
def test_eval_shape(name):
    with dtypes.x64_if_needed(name):
        x = jax.ShapeDtypeStruct((2, 0, 4), dtypes.numpy_dtype(name))
        out = jax.eval_shape(lambda x: native(x, (2, 0, 1)), x)
    assert out.shape == (4, 2, 0) and out.dtype == x.dtype


def test_kernel_choice_shows_in_the_lowered_text(platform_device):
    x = platform_device.put(small_values((2, 3, 4), "float32"))

    def text(kernel, axes=(2, 0, 1)):
        return jax.jit(lambda x: jt.transpose(x, axes, kernel=kernel)).lower(x).as_text()

    for kernel in ("native", *platform_device.kinds):
        assert text(kernel).count(CALL) == 1
        assert "stablehlo.transpose" not in text(kernel)
    assert CALL not in text("xla")
    assert text("xla").count("stablehlo.transpose") == 1
    assert CALL not in text("native", (0, 1, 2))


def test_one_equation_with_python_ints():
    f = functools.partial(native, axes=np.array([-1, 0, 1]))
    (equation,) = jax.make_jaxpr(f)(jnp.ones((2, 3, 4))).eqns
    assert equation.primitive is jt.transpose_p
    assert equation.params["permutation"] == (2, 0, 1)
    assert all(type(a) is int for a in equation.params["permutation"])


@pytest.fixture(scope="module")
def compilations():
    """A list that grows by one entry with every XLA compilation."""
    seen = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None
    )
    return seen


def test_equal_permutations_compile_once(compilations):
    x = jax.block_until_ready(jax.device_put(small_values((13, 6, 2), "float32")))
    forms = [
        *([2, 0, 1], (2, 0, 1), [-1, 0, 1], np.array([2, 0, 1]), np.array([-1, -3, 1], np.int8)),
        [np.int64(2), np.int32(0), 1],
    ]
    for run in (native, jax.jit(lambda x, f=native: f(x, (2, 0, 1)))):
        before = len(compilations)
        for _ in range(20):
            for axes in forms:
                run(x, axes) if run is native else run(x)
        assert len(compilations) == before + 1
    before = len(compilations)
    native(x, (1, 0, 2))
    assert len(compilations) == before + 1


def test_new_shapes_after_the_first(platform_device):
    f = jax.jit(native)
    for n in (3, 4, 3):
        x = small_values((n, 2), "float32")
        assert_same_bits(f(platform_device.put(x)), x.T)


def test_many_transposes_in_one_program(platform_device):
    x = small_values((2, 3, 4), "float32")

    def chain(x):
        for _ in range(7):
            x = native(x, (2, 0, 1))
        return x

    assert_same_bits(jax.jit(chain)(platform_device.put(x)), x.transpose(2, 0, 1))


def test_custom_derivatives_around_it():
    @jax.custom_vjp
    def f(x):
        return native(x)

    f.defvjp(lambda x: (native(x), None), lambda _, ct: (native(ct) * 2,))
    x = small_values((2, 3), "float32")
    assert_same_bits(jax.grad(lambda x: f(x).sum())(x), np.full((2, 3), 2, np.float32))


def test_pytree_and_static_use_with_partial():
    f = jax.jit(jt.transpose, static_argnames=("axes", "kernel", "tile"))
    x = small_values((2, 3), "float32")
    assert_same_bits(f(x, axes=(1, 0), kernel="native"), x.T)
