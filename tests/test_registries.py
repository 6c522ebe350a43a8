"""Every registry of rules in which JAX has `lax.transpose_p`, and what ours has there."""

import contextlib
import functools
import importlib
import inspect
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax import lax
from jax.extend.core import Primitive
from scripts import run_python

import jax_transpose as jt
from jax_transpose._into import transpose_in_place_p, transpose_into_p

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
#: `primitive_batchers`, where ours do.
ELSEWHERE = {"jax._src.interpreters.batching.fancy_primitive_batchers"}
#: Where a call with ``out=`` has no rule: kernels and sparse arrays hold values, and no buffers
#: that could be given away; padding (JAX 0.6) is for extents that are no buffer's.
NO_BUFFERS = ("jax._src.pallas.", "jax.experimental.sparse.", ".partial_eval.padding_rules")


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
    theirs = {name: rules for name, rules in registries() if lax.transpose_p in rules}
    looked_at = " ".join(theirs)
    parts = ("jet", "sparse", "roofline", "triton", "mosaic", "fuser", "mlir", "ad.", "batching")
    assert [part for part in parts if part not in looked_at] == []

    def missing(primitive):
        return {name for name, rules in theirs.items() if primitive not in rules}

    assert missing(jt.transpose_p) <= ELSEWHERE
    for primitive in (transpose_into_p, transpose_in_place_p):
        named = {name for name in missing(primitive) if not any(p in name for p in NO_BUFFERS)}
        assert named <= ELSEWHERE


LOADED_AFTER_TRACING = {
    "sparse": """
        from jax.experimental import sparse
        moved = sparse.sparsify(f)(sparse.BCOO.fromdense(x))
        np.testing.assert_array_equal(moved.todense(), 2 * X.T)
        """,
    "roofline": """
        from jax.experimental import roofline
        used = [roofline.roofline(g)(x)[1] for g in (f, lambda x: jax.numpy.transpose(x) * 2)]
        assert used[0] == used[1]
        from jax.experimental.roofline.roofline import _rooflines
        assert jt.transpose_p in _rooflines
        """,
    "mosaic.lowering": """
        from jax.experimental import pallas as pl
        def body(x, out):
            out[...] = jax.core.eval_jaxpr(jaxpr.jaxpr, (), x[...])[0]
        shape = jax.ShapeDtypeStruct(X.T.shape, X.dtype)
        call = jax.jit(pl.pallas_call(body, out_shape=shape))
        text = call.trace(x).lower(lowering_platforms=("tpu",)).as_text()
        assert "tpu_custom_call" in text and "jax_transpose_v1" not in text
        """,
}


@pytest.mark.parametrize("part", LOADED_AFTER_TRACING)
def test_programs_traced_before_the_part_was_loaded(part):
    body = """
        import sys, jax, jax_transpose as jt
        x = jax.numpy.asarray(X)
        f = jax.jit(lambda x: jt.transpose(x) * 2)
        f(x)
        jaxpr = jax.make_jaxpr(jt.transpose)(x)
        """
    late = f'assert not any(".{part}" in name for name in sys.modules), "loaded before"\n'
    run_python(textwrap.dedent(body) + late + textwrap.dedent(LOADED_AFTER_TRACING[part]))


def test_a_registry_that_changed_breaks_no_import():
    run_python("""
        import sys, types, warnings, jax, jax_transpose
        from jax_transpose import _compat, _imports
        def fail(module):
            raise KeyError("renamed")
        _imports.when_imported("wave", fail)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import wave
        assert wave.open and "no rules in wave" in str(caught[0].message), caught
        sys.modules["jax._src.pallas.fuser.block_spec"] = types.SimpleNamespace(
            __spec__=None, eval_rules=[])
        _compat.complete_rules(jax_transpose.transpose_p, jax.lax.transpose_p, lambda rule: rule)
        """)


def test_modules_are_loaded_as_without_us():
    run_python("""
        import importlib, inspect, sys, jax, jax_transpose
        from jax_transpose import _imports
        waiting = set(_imports._waiting)
        found = importlib.util.find_spec("jax.experimental.sparse.transform")
        assert "sparse_rules_bcoo" in found.loader.get_source(found.name)
        from jax.experimental import sparse, pallas
        from jax._src.pallas.mosaic import lowering
        assert "jax._src.pallas.mosaic.lowering" in waiting
        from jax.experimental import jet
        assert type(lowering.__loader__) is type(jet.__loader__) is type(lowering.__spec__.loader)
        assert "lowering_rules" in inspect.getsource(lowering)
        try:
            import jax._src.pallas.nothing
        except ModuleNotFoundError as error:
            assert error.name == "jax._src.pallas.nothing"
        else:
            raise AssertionError
        """)


def test_importing_us_loads_no_optional_part():
    run_python("""
        import sys, jax_transpose as jt
        jt.transpose(X)
        from jax_transpose import _imports
        parts = ("sparse.transform", "roofline", "triton.lowering", "mosaic.lowering", "block_spec")
        assert all(any(part in name for name in _imports._waiting) for part in parts)
        assert not [name for name in sys.modules if name.endswith(parts)]
        """)


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


@KERNEL_IN_PALLAS
def test_inside_a_pallas_kernel_for_triton_without_a_gpu(kernel):
    triton = pytest.importorskip("jax.experimental.pallas.triton")
    try:
        gpu = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", None, "gpu")
        mesh = jax.sharding.AbstractMesh((), (), abstract_device=gpu)
    except (AttributeError, TypeError):
        pytest.skip("this JAX lowers for no GPU that is not there")
    x = jax.ShapeDtypeStruct((64, 128), np.float32)

    def lowered(transpose):
        f = jax.jit(pallas_call(transpose, x.shape, compiler_params=triton.CompilerParams()))
        with jax.sharding.use_abstract_mesh(mesh):
            return f.trace(x).lower(lowering_platforms=("cuda",)).as_text()

    ours, theirs = lowered(functools.partial(jt.transpose, kernel=kernel)), lowered(jnp.transpose)
    assert "triton" in ours and CALL not in ours
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


@KERNEL_IN_PALLAS
def test_fused_into_the_operand_of_a_pallas_kernel(kernel):
    """Which block of x a block of the result needs, and what becomes of it."""
    pytest.importorskip("jax._src.pallas.fuser.block_spec")
    from jax._src.pallas.fuser import block_spec
    from jax.experimental import pallas as pl

    x = jnp.zeros((2, 3, 512, 256), np.float32)
    f, values, scalars = block_spec.get_fusion_values(
        lambda: jt.transpose(x, (1, 0, 3, 2), kernel=kernel)
    )
    named = "grid_len" in inspect.signature(block_spec.pull_block_spec).parameters
    evaluate, (blocks,), _ = block_spec.pull_block_spec(
        f,
        pl.BlockSpec((None, None, 64, 128), lambda *index: index),
        **({"grid_len": 4} if named else {"grid": (3, 2, 4, 4)}),
        scalar_prefetch_handler=block_spec.make_scalar_prefetch_handler(),
    )(values)
    assert blocks[0].block_shape == (None, None, 128, 64)
    assert blocks[0].index_map(0, 1, 2, 3, *scalars) == (1, 0, 3, 2)
    block = small_values((128, 64), "float32")
    assert_same_bits(evaluate((0, 0, 0, 0), scalars, (jnp.array(block),)), block.T)


def test_sparse_arrays():
    from jax.experimental import sparse

    dense = small_values((3, 4, 5), "float32") % 3
    x = sparse.BCOO.fromdense(jnp.array(dense))
    moved = sparse.sparsify(lambda x: jt.transpose(x, (2, 0, 1)) * 2)(x)
    assert isinstance(moved, sparse.BCOO)
    assert_same_bits(moved.todense(), 2 * dense.transpose(2, 0, 1))


def test_roofline(caplog):
    """A program costs what it costs with `jnp.transpose`, whichever kernel it asks for."""
    from jax.experimental import roofline

    def cost(transpose):
        f = roofline.roofline(lambda x: transpose(x) @ x)
        return f(jax.ShapeDtypeStruct((32, 32), np.float32))[1]

    for options in ({}, {"kernel": "native"}, {"out": True}):

        def ours(x, options=options):
            return jt.transpose(x, **({"out": x} if "out" in options else options))

        assert cost(ours) == cost(jnp.transpose)
    assert cost(lambda x: jt.transpose(x, out=x + 1)) == cost(lambda x: (x + 1).T)
    assert "No roofline rule" not in caplog.text
