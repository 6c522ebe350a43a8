"""Handlers trust nothing that a saved program says: every wrong attribute or buffer is an error."""

import importlib

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from dtypes import assert_same_bits, random_bits

SHAPE, AXES = (4, 6, 3), (2, 0, 1)  # no permutation is its own inverse
RESULT = (3, 4, 6)
INT4 = np.dtype(ml_dtypes.int4)

#: (operand shape and dtype, result shape and dtype, changed attributes, what the error says)
WRONG = {
    "wider than the buffer": (SHAPE, "float32", RESULT, "float32", {"element_bits": 64}, "64.*32"),
    "narrower than the buffer": (SHAPE, "float32", RESULT, "float32", {"element_bits": 16}, "16"),
    "narrower by far": (SHAPE, "complex64", RESULT, "complex64", {"element_bits": 8}, "64 bits"),
    "packed, said to be bytes": (SHAPE, INT4, RESULT, INT4, {"element_bits": 8}, "4 bits"),
    "bytes, said to be packed": (SHAPE, "int8", RESULT, "int8", {"element_bits": 4}, "8 bits"),
    "packed by four": (SHAPE, INT4, RESULT, INT4, {"element_bits": 2}, "4 bits"),
    "wraps to 32": (SHAPE, "float32", RESULT, "float32", {"element_bits": 2**35 + 32}, "bits="),
    "negative width": (SHAPE, "float32", RESULT, "float32", {"element_bits": -32}, "bits=-32"),
    "no width": (SHAPE, "float32", RESULT, "float32", {"element_bits": 0}, "bits=0"),
    "wider result": (SHAPE, "float32", RESULT, "float64", {}, "types"),
    "narrower result": (SHAPE, "float32", RESULT, "bfloat16", {}, "types"),
    "same width, other type": (SHAPE, "float32", RESULT, "int32", {}, "types"),
    "smaller result": (SHAPE, "float32", (3, 4, 5), "float32", {}, "does not map"),
    "inverse result": (SHAPE, "float32", (6, 3, 4), "float32", {}, "does not map"),
    "flat result": (SHAPE, "float32", (72,), "float32", {}, "1 dimensions"),
    "result of more axes": (SHAPE, "float32", (*RESULT, 1), "float32", {}, "4 dimensions"),
    "axis twice": (SHAPE, "float32", RESULT, "float32", {"permutation": (2, 0, 2)}, "permutation"),
    "axis too high": (SHAPE, "float32", RESULT, "float32", {"permutation": (3, 0, 1)}, "permut"),
    "axis negative": (SHAPE, "float32", RESULT, "float32", {"permutation": (-1, 0, 1)}, "permut"),
    "wraps to an axis": (
        (SHAPE, "float32", RESULT, "float32", {"permutation": (2, 2**32, 1)}, "permutation")
    ),
    "axis too few": (SHAPE, "float32", RESULT, "float32", {"permutation": (1, 0)}, "permutation"),
    "no axes": (SHAPE, "float32", RESULT, "float32", {"permutation": ()}, "permutation"),
    "axes of a scalar": ((), "float32", (), "float32", {"permutation": (0,)}, "permutation"),
    "unknown kernel": (SHAPE, "float32", RESULT, "float32", {"kernel": "gone"}, "'gone'"),
    "kernel of no name": (SHAPE, "float32", RESULT, "float32", {"kernel": ""}, "kernel"),
    "kernel of a long name": (SHAPE, "float32", RESULT, "float32", {"kernel": "k" * 99}, "kernel"),
    "no tile of any": (SHAPE, "float32", RESULT, "float32", {"tile": 7}, "tile=7"),
    "negative tile": (SHAPE, "float32", RESULT, "float32", {"tile": -32}, "tile=-32"),
    "wraps to 32 rows": (SHAPE, "float32", RESULT, "float32", {"tile": 2**32 + 32}, "tile=429"),
    "wraps to no tile": (SHAPE, "float32", RESULT, "float32", {"tile": 2**32}, "tile=429"),
    "tile of packed": (SHAPE, INT4, RESULT, INT4, {"tile": 2**32 + 32}, "tile=429"),
    "kernel of packed": (SHAPE, INT4, RESULT, INT4, {"kernel": "naive"}, "naive"),
    "tile of a kernel without": (
        (SHAPE, "float32", RESULT, "float32", {"kernel": "naive", "tile": 32}, "no tile")
    ),
}
#: The same where the platform is part of it.
WRONG_BY_PLATFORM = {
    "cpu": {"kernel": "vectorized"},
    "cuda": {"kernel": "blocked"},
}


def bits_of(dtype):
    return 4 if dtype == INT4 else 8 * np.dtype(dtype).itemsize


def call(device, operand, result, given=None, **changes):
    """The result of a handler: of the second one where a buffer is `given`."""
    attributes = {
        "permutation": AXES,
        "element_bits": bits_of(operand.dtype),
        "kernel": "auto",
        "tile": 0,
    } | changes
    attributes["permutation"] = np.array(attributes["permutation"], np.int64)
    for name in ("element_bits", "tile"):
        attributes[name] = np.int64(attributes[name])
    operands = [jax.device_put(operand, device)]
    target = "jax_transpose_v1"
    if given is not None:
        operands.append(jax.device_put(given, device))
        target = "jax_transpose_into_v1"
    run = jax.jit(lambda *operands: jax.ffi.ffi_call(target, result)(*operands, **attributes))
    return jax.block_until_ready(run(*operands))


def struct(shape, dtype):
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


@pytest.fixture
def x64():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        yield


@pytest.mark.parametrize("into", [False, True], ids=["fresh", "into"])
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_the_buffers_is_an_error(platform_device, x64, case, into):
    shape, dtype, result_shape, result_dtype, changes, message = case
    result = struct(result_shape, result_dtype)
    operand = jnp.zeros(shape, dtype)
    given = jnp.zeros(result.shape, result.dtype) if into else None
    with pytest.raises(Exception, match=f"INVALID_ARGUMENT.*jax_transpose: .*{message}"):
        call(platform_device.device, operand, result, given, **changes)


@pytest.mark.parametrize("into", [False, True], ids=["fresh", "into"])
def test_a_kernel_of_another_platform_is_an_error(platform_device, into):
    changes = WRONG_BY_PLATFORM[platform_device.name]
    given = jnp.zeros(RESULT, "float32") if into else None
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*does not exist on platform"):
        call(
            platform_device.device,
            jnp.zeros(SHAPE, "float32"),
            struct(RESULT, "float32"),
            given,
            **changes,
        )


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((3, 4, 5), "float32"),
        ((3, 4), "float32"),
        (SHAPE, "float32"),
        (RESULT, "int32"),
        (RESULT, "bfloat16"),
        ((), "float32"),
    ],
)
def test_the_given_buffer_must_be_as_the_result(platform_device, shape, dtype):
    operand, given = jnp.zeros(SHAPE, "float32"), jnp.zeros(shape, dtype)
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*second operand"):
        call(platform_device.device, operand, struct(RESULT, "float32"), given)


@pytest.mark.parametrize("into", [False, True], ids=["fresh", "into"])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "float16", "float32", "complex64", "complex128", INT4], ids=str
)
def test_what_does_fit_runs(platform_device, x64, dtype, into):
    x = random_bits(SHAPE, dtype) if dtype != INT4 else np.arange(72).reshape(SHAPE).astype(INT4)
    given = jnp.zeros(RESULT, dtype) if into else None
    got = call(platform_device.device, x, struct(RESULT, dtype), given)
    assert_same_bits(got, np.transpose(x, AXES))


def test_memory_that_runs_out_while_planning_is_an_error(platform_device):
    module = importlib.import_module(
        {"cpu": "jax_transpose._cpu", "cuda": "jax_transpose._cuda"}[platform_device.name]
    )
    for extent, into in ((11, False), (13, True)):  # a plan each, as plans are remembered
        x = random_bits((5, 7, extent), "float32")
        result = struct((extent, 5, 7), "float32")
        given = jnp.zeros(result.shape, result.dtype) if into else None
        module._force_planning_failure(True)
        try:
            with pytest.raises(Exception, match=r"RESOURCE_EXHAUSTED.*out of host"):
                call(platform_device.device, x, result, given)
        finally:
            module._force_planning_failure(False)
        assert_same_bits(call(platform_device.device, x, result, given), x.transpose(AXES))
