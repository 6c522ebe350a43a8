"""What `jax.numpy`'s functions take, ours take; and programs blame the caller's source lines."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from scripts import run_python

import jax_transpose as jt

NAMES = ("transpose", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis")
HOST = small_values((2, 3, 4), "float32")


@pytest.mark.parametrize("name", NAMES)
def test_signatures(name):
    """Ours begin with theirs: names, kinds and defaults."""
    theirs = inspect.signature(getattr(jnp, name)).parameters.values()
    ours = inspect.signature(getattr(jt, name)).parameters.values()
    expected = [(p.name, p.kind, p.default) for p in theirs]
    assert [(p.name, p.kind, p.default) for p in ours][: len(expected)] == expected
    assert all(p.kind is p.KEYWORD_ONLY for p in list(ours)[len(expected) :])


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("transpose", {}),
        ("transpose", {"axes": (2, 0, 1)}),
        ("swapaxes", {"axis1": 0, "axis2": -1}),
        ("moveaxis", {"source": 0, "destination": 2}),
    ],
)
def test_the_operand_by_name(name, arguments):
    expected = getattr(jnp, name)(a=HOST, **arguments)
    assert_same_bits(getattr(jt, name)(a=HOST, **arguments), np.asarray(expected))


AXES = {
    "list": [2, 0, 1],
    "negative": (-1, 0, -2),
    "numpy": np.array([2, 0, 1]),
    "numpy_int8": np.array([2, 0, 1], np.int8),
    "numpy_scalars": tuple(np.array([2, 0, 1], np.uint16)),
    "jax": jnp.array([2, 0, 1]),
    "bools": (2, False, True),
}


@pytest.mark.parametrize("form", AXES)
def test_forms_of_axes(form):
    axes = AXES[form]
    expected = HOST.transpose([int(axis) for axis in axes])
    for function in (jt.transpose, jt.permute_dims):
        assert_same_bits(function(HOST, axes), expected)


def test_axes_that_can_be_read_once():
    assert_same_bits(jt.transpose(HOST, (i for i in (2, 0, 1))), HOST.transpose(2, 0, 1))
    moved = jt.moveaxis(HOST, iter([0, 1]), iter([1, 2]))
    assert_same_bits(moved, np.moveaxis(HOST, (0, 1), (1, 2)))


@pytest.mark.parametrize(
    "source, destination",
    [
        (0, 2),
        (np.int64(0), jnp.int32(2)),
        ([0, 1], (2, 0)),
        (range(2), range(1, 3)),
        (np.array([0, 2]), np.array([1, 0])),
        (np.array(1), -1),
        ((), ()),
    ],
)
def test_forms_of_moveaxis(source, destination):
    expected = np.asarray(jnp.moveaxis(HOST, source, destination))
    assert_same_bits(jt.moveaxis(HOST, source, destination), expected)


@pytest.mark.parametrize("kernel", ["auto", "native"])
@pytest.mark.parametrize("rank", [9, 33, 63, 64, 65, 70])
def test_ranks(platform_device, rank, kernel):
    """NumPy stops at 64 axes (older releases at 32), JAX does not."""
    shape = tuple(3 if axis in (0, rank // 2, rank - 1) else 1 for axis in range(rank))
    data = small_values((3, 3, 3), "float32")
    f = jax.jit(lambda x: jt.transpose(x.reshape(shape), kernel=kernel).reshape(3, 3, 3))
    assert_same_bits(f(platform_device.put(data)), data.transpose(2, 1, 0))


def test_more_long_axes_than_a_plan_has(platform_device):
    """No such array fits a device, but programs of it are traced and lowered."""
    big = jax.ShapeDtypeStruct((2,) * 50, np.uint8)
    with jax.default_device(platform_device.device):
        assert jax.jit(jnp.transpose).lower(big).as_text()
        assert jax.jit(jt.transpose).lower(big).as_text()
    assert jt.explain((2,) * 50, dtype="uint8").implementation == "xla"
    with pytest.raises(ValueError, match="48 dimensions"):
        jax.jit(lambda x: jt.transpose(x, kernel="native")).lower(big)


def our_line(x):
    return jt.transpose(x, kernel="native")  # THE LINE


def our_in_place_line(x):
    return jt.transpose(x, out=x)  # THE LINE


@pytest.mark.parametrize("call", [our_line, our_in_place_line])
def test_source_lines_are_the_callers(call):
    lines, first = inspect.getsourcelines(call)
    line = first + next(i for i, text in enumerate(lines) if "THE LINE" in text)
    x = jnp.ones((5, 5))
    text = jax.make_jaxpr(call)(x).pretty_print(source_info=True)
    assert f"{__file__}:{line}" in text and jt.__file__.removesuffix("__init__.py") not in text
    text = jax.jit(call).lower(x).compile().as_text()
    assert "source_line" in text or "stack_frame" in text
    assert "jax_transpose/_" not in text


def test_typed():
    """Type checkers read the package's own annotations (PEP 561)."""
    run_python(
        """
        import importlib.resources
        assert importlib.resources.files("jax_transpose").joinpath("py.typed").is_file()
        """
    )
