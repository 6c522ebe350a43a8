"""Signatures, accepted forms and errors, held against jax.numpy."""

import re

import dtypes
import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

import jax_transpose as jt

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

SAME_AS_JNP = [
    ("transpose", (), {}),
    ("transpose", (None,), {}),
    ("transpose", ((2, 0, 1),), {}),
    ("transpose", (), {"axes": [2, 0, 1]}),
    ("transpose", (np.array([2, 0, 1], np.int32),), {}),
    ("transpose", (tuple(np.int64(a) for a in (2, 0, 1)),), {}),
    ("transpose", ((-1, -2, -3),), {}),
    ("transpose", ((-1, 0, 1),), {}),
    ("transpose", ((0, 1, 2),), {}),
    ("permute_dims", ((1, 2, 0),), {}),
    ("permute_dims", (), {"axes": (2, 1, 0)}),
    ("matrix_transpose", (), {}),
    ("swapaxes", (0, 2), {}),
    ("swapaxes", (-1, np.int64(1)), {}),
    ("swapaxes", (1, 1), {}),
    ("swapaxes", (), {"axis1": 0, "axis2": -1}),
    ("moveaxis", (0, -1), {}),
    ("moveaxis", ((0, 2), (1, 0)), {}),
    ("moveaxis", ([-1, 0], [0, 1]), {}),
    ("moveaxis", (), {"source": 2, "destination": 0}),
]


@pytest.mark.parametrize("name, args, kwargs", SAME_AS_JNP)
@pytest.mark.parametrize("kernel", ["auto", "native", "xla"])
def test_same_as_jnp(name, args, kwargs, kernel):
    want = getattr(jnp, name)(X, *args, **kwargs)
    got = getattr(jt, name)(X, *args, kernel=kernel, **kwargs)
    assert isinstance(got, jax.Array)
    dtypes.assert_same_bits(got, want)


@pytest.mark.parametrize("x", [3.0, True, 2j, np.float16(1), np.zeros((0, 2), np.int8)])
def test_scalars_and_numpy_inputs_give_the_type_of_jnp(x):
    want, got = jnp.transpose(x), jt.transpose(x)
    assert jax.typeof(got) == jax.typeof(want)
    dtypes.assert_same_bits(got, want)


def test_objects_that_offer_a_jax_array_are_accepted():
    class Wrapped:
        def __jax_array__(self):
            return jnp.asarray(X)

    dtypes.assert_same_bits(jax.jit(lambda: jt.transpose(Wrapped()))(), X.T)


@pytest.mark.parametrize("x", [[[1, 2], [3, 4]], ((1.0,),), "ab", None, object()])
@pytest.mark.parametrize("name", ["transpose", "matrix_transpose"])
def test_what_jnp_rejects_as_an_array_is_rejected(name, x):
    with pytest.raises(TypeError):
        getattr(jnp, name)(x)
    with pytest.raises(TypeError):
        getattr(jt, name)(x)


@pytest.mark.parametrize("dtype", ["object", "datetime64[s]", "U3", "V5"])
def test_numpy_dtypes_that_jax_lacks_are_rejected(dtype):
    with pytest.raises(TypeError):
        jt.transpose(np.zeros((2, 3), dtype))


BAD_AXES = [(0, 1, 2, 3), (1, 0), (0, 0, 1), (0, 1, 3), (0, 1, -4), (0.0, 1, 2), (0, -3, 1), ()]


def _eager(f):
    return f(X)


def _jit(f):
    return jax.jit(f)(X)


def _eval_shape(f):
    return jax.eval_shape(f, X)


def _vmap(f):
    return jax.eval_shape(jax.vmap(f), jnp.stack([X, X]))


RUNNERS = pytest.mark.parametrize("run", [_eager, _jit, _eval_shape, _vmap])


@RUNNERS
@pytest.mark.parametrize("axes", BAD_AXES)
@pytest.mark.parametrize("kernel", ["auto", "native", "xla"])
def test_bad_axes_raise_at_trace_time(run, axes, kernel):
    with pytest.raises((ValueError, TypeError)) as caught:
        run(lambda x: jt.transpose(x, axes, kernel=kernel))
    message = str(caught.value)
    assert "axes" in message and "(2, 3, 4)" in message, message
    assert all(str(a) in message for a in axes), message


@RUNNERS
@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: jt.swapaxes(x, 0, 3), ("axis2", "3", "(2, 3, 4)")),
        (lambda x: jt.swapaxes(x, -4, 0), ("axis1", "-4", "(2, 3, 4)")),
        (lambda x: jt.swapaxes(x, 0.0, 1), ("axis1", "0.0")),
        (lambda x: jt.moveaxis(x, 3, 0), ("source", "3", "(2, 3, 4)")),
        (lambda x: jt.moveaxis(x, 0, -4), ("destination", "-4", "(2, 3, 4)")),
        (lambda x: jt.moveaxis(x, (0, 0), (0, 1)), ("source", "0")),
        (lambda x: jt.moveaxis(x, (0, 1), (1, 1)), ("destination", "1")),
        (lambda x: jt.moveaxis(x, (0, 1), (1,)), ("source", "destination")),
        (lambda x: jt.matrix_transpose(x[0, 0]), ("(4,)",)),
        (lambda x: jt.permute_dims(x, (0, 1)), ("axes", "(2, 3, 4)")),
    ],
)
def test_bad_arguments_are_named(run, call, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        run(call)
    assert all(word in str(caught.value) for word in words), str(caught.value)


FUNCTIONS = {
    "transpose": lambda **kw: jt.transpose(X, **kw),
    "permute_dims": lambda **kw: jt.permute_dims(X, (2, 1, 0), **kw),
    "matrix_transpose": lambda **kw: jt.matrix_transpose(X, **kw),
    "swapaxes": lambda **kw: jt.swapaxes(X, 0, 1, **kw),
    "moveaxis": lambda **kw: jt.moveaxis(X, 0, 1, **kw),
}


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)
def test_unknown_kernels_and_tiles(call):
    with pytest.raises(ValueError, match=r"kernel.*'fastest'.*native"):
        jax.eval_shape(lambda: call(kernel="fastest"))
    with pytest.raises((TypeError, ValueError), match="kernel"):
        jax.eval_shape(lambda: call(kernel=3))
    for bad in (7, -8, 0, 48, 256):
        with pytest.raises(ValueError, match=rf"tile.*{bad}.*\b8\b"):
            jax.eval_shape(lambda bad=bad: call(kernel="native", tile=bad))
    with pytest.raises((TypeError, ValueError), match="tile"):
        jax.eval_shape(lambda: call(tile="32"))


def test_keyword_only_options():
    with pytest.raises(TypeError):
        jt.transpose(X, (2, 1, 0), "native")


@pytest.mark.parametrize("kind", sorted(set(jt.kernels("cuda")) - set(jt.kernels("cpu"))))
def test_a_kind_of_another_platform_is_an_error_when_lowered(kind):
    f = jax.jit(lambda x: jt.transpose(x, kernel=kind))
    assert jax.eval_shape(f, X).shape == (4, 3, 2)
    with pytest.raises(ValueError, match=rf"(?s){kind}.*cpu|cpu.*{kind}"):
        f.lower(X)
    with pytest.raises(ValueError, match=kind):
        jt.transpose(X, kernel=kind)


@pytest.mark.parametrize("axes", [(0, 1, 2), (-3, -2, -1)])
@pytest.mark.parametrize("kernel", ["auto", "native", "xla"])
def test_eager_identity_returns_its_operand(axes, kernel):
    x = jnp.asarray(X)
    assert jt.transpose(x, axes, kernel=kernel) is x
    assert jt.swapaxes(x, 1, -2, kernel=kernel) is x
    assert jt.moveaxis(x, 0, 0, kernel=kernel) is x


def test_eager_double_transpose():
    x = jnp.asarray(X)
    dtypes.assert_same_bits(jt.transpose(jt.transpose(x)), X)


def test_public_names():
    assert set(jt.kernels("cpu")) >= {"naive", "blocked"}
    assert set(jt.kernels("cuda")) >= {
        *("naive", "tiled_unpadded", "tiled", "vectorized", "async_copy"),
    }
    assert jt.kernels("tpu") == jt.kernels("rocm") == ()
    assert re.match(r"\d+\.\d+", jt.__version__)
    assert isinstance(jt.transpose_p, jax.extend.core.Primitive)
