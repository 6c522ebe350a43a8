"""Shapes that no memory holds, abstractly: what `jnp.transpose` traces and lowers, so does ours."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_transpose as jt

#: (shape, axes, dtype, bits of an element): 2**60 bytes and more, or more axes than a plan has.
HUGE = [
    ((2**32, 2**32), (1, 0), "uint8", 8),
    ((2**31, 2**31), (1, 0), "float32", 32),
    ((2**20, 2**25, 2**21), (2, 0, 1), "bfloat16", 16),
    ((2**62, 3), (1, 0), "uint8", 8),
    ((3, 2**62, 5), (2, 0, 1), "complex64", 64),
    ((2**31, 2**32 - 1), (1, 0), "uint8", 8),
    ((2**61, 2), (1, 0), ml_dtypes.int4, 4),
    ((2**60, 2), (1, 0), "uint8", 8),
    ((2,) * 49, (*range(48, -1, -1),), "uint8", 8),
    ((5,) * 60, (*range(59, -1, -1),), "float32", 32),
]
#: One step below: a plan answers.
LARGEST = [
    ((2**58, 1, 2), (2, 1, 0), "uint8", 8),
    ((2**20, 2**20, 2**18), (2, 0, 1), "uint16", 16),
    ((2**30 - 1, 2**28 - 1), (1, 0), "float32", 32),
    ((2**28, 2**28 - 1), (1, 0), "complex128", 128),
    ((2**30 - 1, 2**30), (1, 0), ml_dtypes.int4, 4),
    ((2,) * 48, (*range(47, -1, -1),), "uint8", 8),
]
EMPTY = [
    ((2**40, 0, 2**40), (2, 0, 1), "float32"),
    ((2**62, 2**62, 0), (2, 0, 1), "uint8"),
    ((*(2**40,) * 55, 0), (*range(55, -1, -1),), "uint8"),
]
REFUSED = r"no kernel moves|more than 48 dimensions"
PLATFORMS = ["cpu", "cuda", "tpu"]


def moved(shape, bits):
    return 2 * ((math.prod(shape) * bits + 7) // 8)


@pytest.mark.parametrize("out", [None, "buffer"])
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("shape, axes, dtype, bits", HUGE)
def test_auto_leaves_them_to_xla(shape, axes, dtype, bits, platform, out):
    plan = jt.explain(shape, axes, dtype, platform, out=out)
    assert plan.implementation == "xla"
    assert plan.bytes_moved == moved(shape, bits)
    if platform == "cpu":
        assert str(shape)[:-1] in plan.reason
        with pytest.raises(ValueError, match=REFUSED):
            jt.explain(shape, axes, dtype, platform, out=out, kernel="native")
        by_name = "naive" if bits > 4 else "native"
        with pytest.raises(ValueError, match=REFUSED):
            jt.explain(shape, axes, dtype, platform, out=out, kernel=by_name)


@pytest.mark.parametrize("kernel", ["auto", "xla"])
@pytest.mark.parametrize("shape, axes, dtype, bits", HUGE)
def test_they_lower_as_jax_lowers_them(shape, axes, dtype, bits, kernel):
    x = jax.ShapeDtypeStruct(shape, dtype)
    want = jax.eval_shape(lambda x: jnp.transpose(x, axes), x)
    f = jax.jit(lambda x: jt.transpose(x, axes, kernel=kernel))
    assert jax.eval_shape(f, x) == want
    text = f.lower(x).as_text()
    assert "stablehlo.transpose" in text and "jax_transpose" not in text
    g = jax.jit(lambda x, out: jt.transpose(x, axes, kernel=kernel, out=out), donate_argnums=1)
    assert "stablehlo.transpose" in g.lower(x, want).as_text()


@pytest.mark.parametrize("shape, axes, dtype, bits", HUGE)
def test_native_says_that_it_cannot(shape, axes, dtype, bits):
    x = jax.ShapeDtypeStruct(shape, dtype)
    message = r"kernel='native' for shape .*(no kernel moves|48 dimensions)"
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda x: jt.transpose(x, axes, kernel="native")).lower(x)


@pytest.mark.parametrize("shape", [(2**32, 2**32), (2**31, 3, 2**31), (2**62, 2**62)])
def test_in_place(shape):
    axes = (*range(len(shape) - 1, -1, -1),)
    x = jax.ShapeDtypeStruct(shape, "float32")
    f = jax.jit(lambda x: jt.transpose(x, axes, out=x), donate_argnums=0)
    assert "stablehlo.transpose" in f.lower(x).as_text()
    plan = jt.explain(shape, axes, "float32", "cpu", out="in_place")
    assert (plan.implementation, plan.bytes_moved) == ("xla", moved(shape, 32))
    with pytest.raises(ValueError, match="no kernel moves"):
        jt.explain(shape, axes, "float32", "cpu", out="in_place", kernel="native")


@pytest.mark.parametrize("kernel", ["auto", "native"])
def test_an_axis_that_stays_moves_nothing(kernel):
    plan = jt.explain((2**32, 1, 2**32), (0, 2, 1), "uint8", "cpu", kernel=kernel)
    assert (plan.implementation, plan.bytes_moved) == ("identity", 0)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("shape, axes, dtype, bits", LARGEST)
def test_the_largest_have_a_plan(shape, axes, dtype, bits, platform):
    plan = _plan(platform, shape, axes, bits)
    assert plan["bytes_moved"] == moved(shape, bits)
    assert 0 < plan["grid"] <= math.prod(shape)
    width = int(8 * plan["element_bytes"])
    assert math.prod(plan["canonical_shape"]) * width == math.prod(shape) * bits


@pytest.mark.parametrize("kernel", ["naive", "tiled", "vectorized", "async_copy", "shifted"])
@pytest.mark.parametrize("shape, axes, dtype, bits", [c for c in LARGEST if c[3] >= 8])
def test_every_kind_plans_the_largest(shape, axes, dtype, bits, kernel):
    plan = _plan("cuda", shape, axes, bits, kernel)
    assert plan["bytes_moved"] == moved(shape, bits)
    assert 0 < plan["grid"] <= math.prod(shape)
    if kernel == "naive":
        assert plan["grid"] == -(-math.prod(plan["canonical_shape"]) // 256)


@pytest.mark.parametrize("kernel", ["auto", "native", "xla"])
@pytest.mark.parametrize("shape, axes, dtype", EMPTY)
def test_an_extent_of_zero_beats_all_others(shape, axes, dtype, kernel):
    plan = jt.explain(shape, axes, dtype, "cpu", kernel=kernel)
    assert plan.bytes_moved == 0
    x = jax.ShapeDtypeStruct(shape, dtype)
    f = jax.jit(lambda x: jt.transpose(x, axes, kernel=kernel))
    assert jax.eval_shape(f, x).shape == tuple(np.array(shape, object)[list(axes)])
    f.lower(x)


def test_extents_that_no_machine_counts():
    plan = jt.explain((2**64, 3), (1, 0), "float32", "cpu")
    assert (plan.implementation, plan.bytes_moved) == ("xla", 2 * 2**64 * 12)
    assert str(2**64) in plan.reason


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_the_plan_itself_refuses(platform):
    for shape in ((2**32, 2**32), (-1, 3), (2**31, 2**30)):
        with pytest.raises(ValueError, match=rf"shape \({shape[0]}, {shape[1]}\)"):
            _plan(platform, shape, (1, 0), 8)


def _plan(platform, shape, axes, bits, kernel="native"):
    # Of a platform that this build may lack.
    return jt._cpu.plan(platform, shape, axes, bits / 8, kernel, 0)
