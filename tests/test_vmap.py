"""Our batching rule: right for any axes, and one custom call with nothing around it."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values

import jax_transpose as jt

CALL = "custom_call @jax_transpose_v1"
native = functools.partial(jt.transpose, kernel="native")


def lowered(f, *args):
    """StableHLO text of `f` lowered for the current default device."""
    return jax.jit(f).lower(*args).as_text()


def by_hand(x, axes, in_axis, out_axis):
    """What vmap must give: numpy transposes each slice, then stacks the results."""
    rows = [np.take(x, i, axis=in_axis).transpose(axes) for i in range(x.shape[in_axis])]
    return np.stack(rows, axis=out_axis)


def test_all_in_and_out_axes_at_rank_4(platform_device):
    x = small_values((2, 3, 4, 5), "float32")
    runs = [
        (axes, i, o)
        for axes in itertools.permutations(range(3))
        for i in range(4)
        for o in (*range(4), -1, -4)
    ]

    @jax.jit
    def run(x):
        return [
            jax.vmap(functools.partial(native, axes=axes), in_axes=i, out_axes=o)(x)
            for axes, i, o in runs
        ]

    for (axes, i, o), out in zip(runs, run(platform_device.put(x)), strict=True):
        assert_same_bits(out, by_hand(x, axes, i, o % 4), f"{axes} in {i} out {o}")


@pytest.mark.parametrize("in_axis", [0, 1, 2, 3, -1, -3])
@pytest.mark.parametrize("kernel", ["native", "naive"])
def test_one_custom_call_and_no_transpose(in_axis, kernel):
    f = functools.partial(jt.transpose, axes=(2, 0, 1), kernel=kernel)
    text = lowered(jax.vmap(f, in_axes=in_axis), small_values((2, 3, 4, 5), "float32"))
    assert text.count(CALL) == 1
    assert "stablehlo.transpose" not in text


def test_nested(platform_device):
    x = small_values((2, 3, 4, 5), "float32")
    pairs = list(itertools.product((0, 1, -1), (0, 1, 2, 3, -2)))

    @jax.jit
    def run(x):
        return [jax.vmap(jax.vmap(native, in_axes=i), in_axes=o)(x) for i, o in pairs]

    for (i, o), out in zip(pairs, run(platform_device.put(x)), strict=True):
        outer = np.moveaxis(x, o, 0)
        want = np.stack([by_hand(rows, (1, 0), i, 0) for rows in outer])
        assert_same_bits(out, want, f"inner {i} outer {o}")


@pytest.mark.parametrize("inner, outer", [(0, 0), (1, 0), (0, 3), (2, 1), (-1, 2)])
def test_nested_is_one_custom_call(inner, outer):
    f = jax.vmap(jax.vmap(native, in_axes=inner), in_axes=outer)
    text = lowered(f, small_values((2, 3, 4, 5), "float32"))
    assert text.count(CALL) == 1
    assert "stablehlo.transpose" not in text


@pytest.mark.parametrize("in_axis, out_axis", [(1, 0), (-2, 0), (1, 2), (1, -1), (0, 1)])
def test_eager(in_axis, out_axis):
    x = small_values((3, 8, 5), "float32")
    out = jax.vmap(native, in_axes=in_axis, out_axes=out_axis)(x)
    assert_same_bits(out, by_hand(x, (1, 0), in_axis, out_axis % 3))


def test_unbatched_operands():
    x, y = small_values((3, 8, 5), "float32"), small_values((3, 5), "float32")
    f = jax.vmap(lambda x, y: native(x) + native(y), in_axes=(1, None))
    assert_same_bits(jax.jit(f)(x, y), x.transpose(1, 2, 0) + y.T)
    only_y = jax.vmap(lambda x, y: native(y), in_axes=(1, None), out_axes=None)
    assert_same_bits(jax.jit(only_y)(x, y), y.T)


def test_batch_of_scalars_and_of_identities():
    x = small_values((2, 3, 4), "float32")
    assert_same_bits(jax.vmap(jax.vmap(jax.vmap(native)))(x), x)
    same = jax.vmap(lambda x: native(x, (0, 1)), in_axes=2, out_axes=2)
    assert_same_bits(jax.jit(same)(x), x)


def test_spmd_axis_name():
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:4]), ("data",))
    x = small_values((4, 3, 5), "float32")
    f = jax.vmap(native, spmd_axis_name="data")
    text = lowered(f, x)
    assert text.count(CALL) == 1 and "stablehlo.transpose" not in text
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    assert_same_bits(jax.jit(f)(jax.device_put(x, spec)), x.transpose(0, 2, 1))


def test_kernel_and_tile_survive_batching():
    text = lowered(jax.vmap(functools.partial(jt.transpose, kernel="xla")), jnp.ones((2, 3, 4)))
    assert CALL not in text and "stablehlo.transpose" in text
    jaxpr = jax.make_jaxpr(jax.vmap(functools.partial(jt.transpose, kernel="naive"), in_axes=2))
    params = jaxpr(jnp.ones((2, 3, 4))).eqns[0].params
    assert params["kernel"] == "naive" and params["permutation"] == (2, 1, 0)


@pytest.mark.parametrize(
    "name, args, axes",
    [
        ("swapaxes", (0, 2), (0, 3, 2, 1)),
        ("moveaxis", (0, -1), (0, 2, 3, 1)),
        ("matrix_transpose", (), (0, 1, 3, 2)),
        ("permute_dims", ((-1, 0, 1),), (0, 3, 1, 2)),
    ],
)
def test_the_other_functions(name, args, axes):
    x = small_values((2, 3, 4, 5), "float32")
    f = jax.vmap(lambda x: getattr(jt, name)(x, *args, kernel="native"), in_axes=-1)
    text = lowered(f, np.moveaxis(x, 0, -1))
    assert text.count(CALL) == 1 and "stablehlo.transpose" not in text
    assert_same_bits(jax.jit(f)(np.moveaxis(x, 0, -1)), x.transpose(axes))
