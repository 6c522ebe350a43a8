"""shard_map, pmap, meshes that are manual in part, and devices used one at a time."""

import concurrent.futures
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dtypes import assert_same_bits, small_values
from jax.sharding import PartitionSpec as P
from meshes import CALL, collectives, compile_text, device_mesh, put, shard_map

import jax_transpose as jt

native = functools.partial(jt.transpose, kernel="native")

KERNELS = pytest.mark.parametrize("kernel", ["auto", "native"])


@KERNELS
def test_shard_map_checks_varying_axes(kernel):
    mesh = device_mesh((8,))
    x = small_values((8, 6, 6), "float32")
    sharded = put(x, mesh, P("x"))

    def twice(x):
        step = functools.partial(jt.transpose, axes=(0, 2, 1), kernel=kernel)
        return jax.lax.scan(lambda c, _: (step(c), None), x, length=2)[0]

    f = jax.jit(shard_map(twice, mesh, P("x"), P("x")))
    assert_same_bits(f(sharded), x)
    grad = jax.jit(jax.grad(lambda x: (f(x) * x).sum()))
    assert_same_bits(grad(sharded), 2 * x)


@KERNELS
def test_shard_map_with_a_collective(kernel):
    mesh = device_mesh((8,))
    x = small_values((8, 3), "float32")

    def f(x):  # (1, 3) on every device -> (3, 1), summed over the devices
        return jax.lax.psum(jt.transpose(x, kernel=kernel), "x")

    out = jax.jit(shard_map(f, mesh, P("x", None), P()))(x)
    assert_same_bits(out, x.sum(axis=0)[:, None])


def test_shard_map_runs_our_kernel_on_blocks():
    mesh = device_mesh((4, 2))
    x = small_values((8, 6, 4), "float32")
    f = functools.partial(native, axes=(2, 0, 1))
    run = shard_map(f, mesh, P("x", "y"), P(None, "x", "y"))
    text = compile_text(run, put(x, mesh, P("x", "y")))
    assert text.count(CALL) == 1 and collectives(text) == []
    assert_same_bits(jax.jit(run)(x), x.transpose(2, 0, 1))


@pytest.mark.parametrize("shape, ours", [((4, 2), 0), ((8, 1), 1)], ids=str)
def test_partly_manual_shard_map(shape, ours):
    """XLA's transpose where it will split the body further, our kernel where it cannot."""
    mesh = device_mesh(shape)
    x = small_values((8, 600, 400), "float32")
    sharded = put(x, mesh, P("x", "y"))

    def program(kernel):
        f = functools.partial(jt.transpose, axes=(2, 0, 1), kernel=kernel)
        return jax.jit(shard_map(f, mesh, P("x"), P(None, "x"), manual=["x"]))

    run = program("auto")
    assert_same_bits(run(sharded), x.transpose(2, 0, 1))
    assert run.lower(sharded).compile().as_text().count(CALL) == ours
    for kernel in ("native", "blocked"):
        if ours:
            assert program(kernel).lower(sharded).compile().as_text().count(CALL) == 1
        else:
            with pytest.raises(ValueError, match=rf"kernel='{kernel}'.*shard_map.*'auto', 'xla'"):
                program(kernel).lower(sharded)


def test_pmap():
    x = small_values((8, 5, 7), "float32")
    assert_same_bits(jax.pmap(native)(x), x.transpose(0, 2, 1))
    grad = jax.pmap(jax.grad(lambda x: 0.5 * jnp.sum(native(x) ** 2)))
    assert_same_bits(grad(x), x)


def test_one_device_of_many_still_takes_our_kernel():
    device = jax.devices("cpu")[3]
    x = jax.device_put(small_values((5, 7), "float32"), device)
    f = jax.jit(functools.partial(jt.transpose, kernel="native"))
    out = f(x)
    assert out.devices() == {device}
    assert_same_bits(out, np.asarray(x).T)
    assert f.lower(x).compile().as_text().count(CALL) == 1
    assert_same_bits(jt.transpose(x, kernel="native"), np.asarray(x).T)


def test_replicated_operands():
    x = small_values((5, 7), "float32")
    replicated = put(x, device_mesh((8,)), P())
    out = jax.jit(lambda x: jt.transpose(x, kernel="native") + 1)(replicated)
    assert_same_bits(out, x.T + 1)
    assert len(out.devices()) == 8
    assert_same_bits(jnp.sum(out), (x + 1).sum())


def drive(devices, kinds, calls):
    """Sixteen threads, each of which makes `calls` calls on `devices` in turn."""
    xs = [small_values((64 + 8 * i, 96 - i), "float32") + i for i in range(4)]
    fs = [jax.jit(functools.partial(jt.transpose, kernel=kind)) for kind in kinds]

    def work(thread):
        # Every thread meets every device, shape and kind, each from another place on.
        turns = itertools.islice(itertools.cycle(itertools.product(devices, xs, fs)), thread, None)
        for device, x, f in itertools.islice(turns, calls):
            out = f(jax.device_put(x, device))
            assert out.devices() == {device}
            assert_same_bits(out, x.T)
        return True

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_sixteen_threads_and_eight_devices():
    """Plans and buffers of one device must not serve another."""
    drive(jax.devices("cpu")[:8], ["native", *jt.kernels("cpu")], calls=200)


def test_threads_that_share_a_mesh():
    """Sharded programs from several threads, compiled while others run."""
    mesh = device_mesh((8,))

    def work(thread):
        x = small_values((8 + 8 * thread, 24), "float32")
        f = jax.jit(lambda x: native(x) + thread)
        for _ in range(5):
            assert_same_bits(f(put(x, mesh, P("x"))), x.T + thread)
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
