"""What is lowered where there is no plan to ask, and what a handler makes of bad attributes."""

import jax
import numpy as np
import pytest
from jax import export

import jax_transpose as jt

CALL = "jax_transpose_v1"


def exported(kernel, platform, shape="b, 3, 4"):
    aval = jax.ShapeDtypeStruct(export.symbolic_shape(shape), np.float32)
    f = jax.jit(lambda x: jt.transpose(x, (2, 0, 1), kernel=kernel))
    return export.export(f, platforms=[platform], disabled_checks=jt.export_checks())(aval)


@pytest.mark.parametrize("kernel", ["auto", "native", "autotune", "blocked"])
def test_symbolic_shapes_take_our_call(kernel):
    program = exported(kernel, "cpu")
    assert CALL in program.mlir_module()
    for b in (1, 7):
        x = np.random.default_rng(b).random((b, 3, 4), np.float32)
        np.testing.assert_array_equal(program.call(x), x.transpose(2, 0, 1))


def test_symbolic_shapes_on_a_platform_without_kernels():
    assert CALL not in exported("auto", "tpu").mlir_module()
    for kernel in ("native", "blocked"):
        with pytest.raises(ValueError, match="tpu"):
            exported(kernel, "tpu")


def test_symbolic_shapes_and_a_kind_of_another_platform():
    with pytest.raises(ValueError, match=r"tiled.*cpu"):
        exported("tiled", "cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"permutation": np.array([0, 0], np.int64)},
        {"permutation": np.array([1, 2], np.int64)},
        {"permutation": np.array([1, 0, 2], np.int64)},
        {"kernel": "gone"},
        {"element_bits": np.int64(24)},
        {"element_bits": np.int64(0)},
    ],
    ids=str,
)
def test_attributes_that_no_lowering_writes_are_errors(change):
    good = {
        "permutation": np.array([1, 0], np.int64),
        "element_bits": np.int64(32),
        "kernel": "auto",
        "tile": np.int64(0),
    }
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    call = jax.ffi.ffi_call(CALL, jax.ShapeDtypeStruct((3, 3), np.float32))
    with jax.default_device(jax.devices("cpu")[0]):
        np.testing.assert_array_equal(call(x, **good), x.T)
        with pytest.raises(Exception, match="jax_transpose"):
            jax.block_until_ready(call(x, **(good | change)))
