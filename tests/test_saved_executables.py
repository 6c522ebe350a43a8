"""Compiled programs that outlive their process: JAX's cache on disk, and serialized executables."""

import pytest
from scripts import run_python

COMPILE = """
import jax
import jax_transpose as jt
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))

def compiled(permutation, x):
    "Runs one program; tells whether it was found on disk."
    events.clear()
    out = jax.jit(lambda x: jt.transpose(x, permutation, kernel="native"))(x)
    assert (np.asarray(out) == np.asarray(x).transpose(permutation)).all()
    found = [name.rpartition("/")[2] for name in events]
    return [name for name in found if name in ("cache_hits", "cache_misses")]

cube = np.arange(512, dtype=np.float32).reshape(8, 8, 8)
"""

ONE_DEVICE = "print(compiled((1, 2, 0), cube) + compiled((2, 0, 1), cube))"
EIGHT_DEVICES = """
jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)
x = jax.device_put(cube, NamedSharding(Mesh(jax.devices(), "x"), P("x")))
print(compiled((1, 2, 0), x) + compiled((2, 0, 1), x))
"""


@pytest.mark.parametrize("program", [ONE_DEVICE, EIGHT_DEVICES], ids=["one", "eight"])
def test_the_persistent_cache_serves_other_processes(tmp_path, program):
    """Both permutations have the same shapes: the second must not find the first one's program."""
    environment = dict(
        JAX_PLATFORMS="cpu",
        JAX_COMPILATION_CACHE_DIR=str(tmp_path),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
        JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    )
    runs = [run_python(COMPILE + program, **environment).strip() for _ in range(2)]
    assert runs == [str(["cache_misses"] * 2), str(["cache_hits"] * 2)]


SAVE = """
import pickle, jax
from jax.experimental import serialize_executable
import jax_transpose as jt
compiled = jax.jit(lambda x: jt.transpose(x, kernel="native") + 1).lower(X).compile()
with open({path!r}, "wb") as file:
    pickle.dump(serialize_executable.serialize(compiled), file)
"""

LOAD = """
import pickle, jax
from jax.experimental import serialize_executable
import jax_transpose
with open({path!r}, "rb") as file:
    loaded = serialize_executable.deserialize_and_load(*pickle.load(file))
assert (np.asarray(loaded(X)) == X.T + 1).all()
"""


def test_serialized_executables(tmp_path, platform_device):
    path = str(tmp_path / "executable")
    # One device: older JAX takes a loaded executable for one that spans all of them.
    environment = dict(
        XLA_FLAGS="", CUDA_VISIBLE_DEVICES="0", JAX_PLATFORMS=f"{platform_device.name},cpu"
    )
    run_python(SAVE.format(path=path), **environment)
    run_python(LOAD.format(path=path), **environment)
