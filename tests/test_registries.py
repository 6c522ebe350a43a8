"""Every registry of rules in which JAX has `lax.transpose_p`, and what ours has there."""

import contextlib
import functools
import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax import lax
from jax.extend.core import Primitive

import jax_transpose as jt

CALL = "jax_transpose_v1"
#: Parts of JAX that hold rules and are loaded on demand.
PARTS = (
    "jax.experimental.checkify",
    "jax.experimental.jet",
    "jax.experimental.key_reuse",
    "jax.experimental.pallas",
    "jax.experimental.pallas.fuser",
    "jax.experimental.pallas.mosaic_gpu",
    "jax.experimental.pallas.tpu",
    "jax.experimental.pallas.triton",
    "jax.experimental.roofline",
    "jax.experimental.sparse",
    "jax._src.pallas.fuser.block_spec",
    "jax._src.pallas.mosaic.lowering",
    "jax._src.pallas.mosaic_gpu.lowering",
    "jax._src.pallas.triton.lowering",
    "jax._src.state.discharge",
)
#: Newer JAX gives its own primitives batching rules here; those of others stand in
#: `primitive_batchers`, where ours does.
ELSEWHERE = {"jax._src.interpreters.batching.fancy_primitive_batchers"}


def registries():
    """Name and content of every dict of primitives and set of primitives in a loaded JAX module."""

    def primitives(x):
        return isinstance(x, (dict, set, frozenset)) and any(isinstance(k, Primitive) for k in x)

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "jax" or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if primitives(value):
                yield f"{name}.{attribute}", value
            elif isinstance(value, dict):
                yield from (
                    (f"{name}.{attribute}[{key}]", rules)
                    for key, rules in list(value.items())
                    if primitives(rules)
                )


def test_ours_has_an_entry_wherever_jaxs_has_one():
    for part in PARTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(part)
    jt.transpose(np.ones((2, 3)))
    theirs = {name: rules for name, rules in registries() if lax.transpose_p in rules}
    missing = {name for name, rules in theirs.items() if jt.transpose_p not in rules}
    assert missing <= ELSEWHERE
    looked_at = " ".join(theirs)
    parts = ("jet", "sparse", "roofline", "triton", "mosaic", "fuser", "mlir", "ad.", "batching")
    assert [part for part in parts if part not in looked_at] == []


KERNEL_IN_PALLAS = pytest.mark.parametrize("kernel", ["auto", "xla"])


def pallas_call(transpose, shape, **options):
    from jax.experimental import pallas as pl

    def body(x, out):
        out[...] = transpose(x[...])

    result = jax.ShapeDtypeStruct(shape[::-1], np.float32)
    return pl.pallas_call(body, out_shape=result, **options)


@KERNEL_IN_PALLAS
def test_inside_an_interpreted_pallas_kernel(kernel):
    x = small_values((32, 64), "float32")
    f = pallas_call(functools.partial(jt.transpose, kernel=kernel), x.shape, interpret=True)
    assert_same_bits(f(x), x.T)


@KERNEL_IN_PALLAS
def test_inside_a_pallas_kernel_for_mosaic(kernel):
    """The compiler gets what it gets for `jnp.transpose`."""
    x = jax.ShapeDtypeStruct((128, 128), np.float32)

    def lowered(transpose):
        f = jax.jit(pallas_call(transpose, x.shape, name="moved"))
        return f.trace(x).lower(lowering_platforms=("tpu",)).as_text()

    ours, theirs = lowered(functools.partial(jt.transpose, kernel=kernel)), lowered(jnp.transpose)
    assert "tpu_custom_call" in ours and CALL not in ours
    assert ours.count("stablehlo.") == theirs.count("stablehlo.")


@pytest.mark.gpu
@KERNEL_IN_PALLAS
def test_inside_a_pallas_kernel_for_triton(cuda, kernel):
    triton = pytest.importorskip("jax.experimental.pallas.triton")
    x = small_values((64, 128), "float32")
    for transpose in (jnp.transpose, functools.partial(jt.transpose, kernel=kernel)):
        f = pallas_call(transpose, x.shape, compiler_params=triton.CompilerParams())
        assert_same_bits(jax.jit(f)(cuda.put(x)), x.T)


def test_our_kernels_do_not_run_within_a_kernel():
    f = pallas_call(functools.partial(jt.transpose, kernel="native"), (128, 128))
    x = jax.ShapeDtypeStruct((128, 128), np.float32)
    with pytest.raises(Exception, match=r"kernel='native'.*within another kernel"):
        jax.jit(f).trace(x).lower(lowering_platforms=("tpu",))


def test_sparse_arrays():
    from jax.experimental import sparse

    dense = small_values((3, 4, 5), "float32") % 3
    x = sparse.BCOO.fromdense(jnp.array(dense))
    moved = sparse.sparsify(lambda x: jt.transpose(x, (2, 0, 1)) * 2)(x)
    assert isinstance(moved, sparse.BCOO)
    assert_same_bits(moved.todense(), 2 * dense.transpose(2, 0, 1))


def test_roofline():
    from jax.experimental import roofline

    def count(transpose):
        f = roofline.roofline(lambda x: transpose(x) @ x)
        _, result = f(jax.ShapeDtypeStruct((64, 32), np.float32))
        return result

    assert count(jt.transpose) == count(jnp.transpose)
