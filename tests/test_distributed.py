"""The code of docs/sharding.md: distributed transposes, in one process and in two."""

import concurrent.futures
import pathlib
import re
import socket

import jax
import jax.numpy as jnp
import pytest
from dtypes import assert_same_bits, small_values
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import CALL, check_sharded, device_mesh, put
from scripts import run_python

import jax_transpose as jt

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "sharding.md"
SHARDED, ROWS, TWO, SAVED = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run_block(block):
    """The names that a block of the page leaves behind."""
    names = {}
    exec(block, names)
    return names


def test_the_first_example():
    run_python(SHARDED, JAX_PLATFORMS="cpu")


def test_the_example_of_a_saved_program():
    saved = run_block(SAVED)["saved"]
    x = small_values((3, 256), "float32")
    assert_same_bits(saved.call(x), x.T)


def by_hand(mesh):
    return lambda x: run_block(ROWS)["transpose_rows"](x, mesh)


def by_partitioner(transpose):
    return lambda mesh: transpose


WAYS = {
    "by hand": by_hand,
    "by the partitioner": by_partitioner(lambda x: jt.transpose(x, kernel="native")),
    "jnp.transpose": by_partitioner(jnp.transpose),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("shape", [(512, 256), (256, 1024)], ids=str)
def test_rows_to_rows_is_one_exchange(shape, devices, way):
    """Ours costs the same communication as jnp.transpose: one all-to-all."""
    mesh = device_mesh((devices,))
    rows = NamedSharding(mesh, P("x"))
    x = small_values(shape, "float32")
    transpose = WAYS[way](mesh)

    def f(x):
        return jax.lax.with_sharding_constraint(transpose(x), rows)

    text = check_sharded(f, x.T, put(x, mesh, P("x")), rows, exchanges=["all-to-all"])
    assert (CALL in text) == (way != "jnp.transpose")


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


CHECK = """
    # Every process holds half of the shards, and no transpose needs the other half.
    assert jax.process_count() == 2 and len(y.addressable_shards) == 2
    f = jax.jit(lambda x: jt.transpose(x, kernel="native"))
    text = f.lower(x).compile().as_text()
    assert "jax_transpose_v1" in text and "all-" not in text
    for shard in f(x).addressable_shards:
        assert (np.asarray(shard.data) == host.T[shard.index]).all()
    print("right")
"""


def test_two_processes():
    address = f"localhost:{free_port()}"
    script = ROWS + TWO.replace("\nmain(", CHECK + "\nmain(")

    def start(process):
        return run_python(
            script.replace("*sys.argv[1:]", f"{process}, {address!r}"),
            JAX_PLATFORMS="cpu",
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
        )

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert all(out.strip().endswith("right") for out in pool.map(start, range(2)))
