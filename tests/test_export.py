"""Programs saved with `jax.export`: what they hold, and who can run them."""

import functools

import jax
import numpy as np
import pytest
from built import needs_cuda_module
from dtypes import assert_same_bits, small_values
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import device_mesh, put, shard_map
from scripts import run_python

import jax_transpose as jt

native = functools.partial(jt.transpose, axes=(2, 0, 1), kernel="native")
X = small_values((4, 6, 8), "float32")
CALL = "custom_call @jax_transpose_v1"


def saved(f, *args, platforms=("cpu",)):
    return export.export(jax.jit(f), platforms=platforms, disabled_checks=jt.export_checks())(*args)


def test_round_trip(platform_device):
    program = saved(lambda x: native(x) * 2, X, platforms=[platform_device.name])
    assert program.mlir_module().count(CALL) == 1
    loaded = export.deserialize(program.serialize())
    assert_same_bits(loaded.call(platform_device.put(X)), X.transpose(2, 0, 1) * 2)


def test_the_checks_are_needed_and_suffice():
    with pytest.raises(ValueError, match="jax_transpose"):
        export.export(jax.jit(native))(X)
    assert jt.export_checks() == [
        export.DisabledSafetyCheck.custom_call(target)
        for target in ("jax_transpose_v1", "jax_transpose_into_v1")
    ]


def test_a_program_that_writes_into_a_buffer_is_saved():
    out = np.zeros((8, 4, 6), np.float32)

    def into(x, out):
        return jt.transpose(x, (2, 0, 1), kernel="native", out=out)

    program = export.deserialize(saved(into, X, out).serialize())
    assert_same_bits(program.call(X, out), X.transpose(2, 0, 1))


def test_saved_derivatives():
    program = export.deserialize(saved(native, X).serialize(vjp_order=1))
    assert_same_bits(jax.grad(lambda x: 0.5 * (program.call(x) ** 2).sum())(X), X)


@pytest.mark.parametrize("shape", ["a, b, c", "a, 6, 8", "a, 2*a, a + b"])
def test_symbolic_shapes(shape):
    aval = jax.ShapeDtypeStruct(export.symbolic_shape(shape), np.float32)
    program = export.deserialize(saved(native, aval).serialize())
    for a, b, c in ((1, 2, 5), (3, 4, 7)):
        sizes = {"a, b, c": (a, b, c), "a, 6, 8": (a, 6, 8), "a, 2*a, a + b": (a, 2 * a, a + b)}
        x = small_values(sizes[shape], "float32")
        assert_same_bits(program.call(x), x.transpose(2, 0, 1))


@needs_cuda_module
def test_each_platform_is_lowered_on_its_own():
    """4 MiB is enough for our kernel on CPU; CUDA takes it from 8 MiB on; TPU never."""
    x = small_values((1024, 1024), "float32")
    kinds = [jt.explain(x, platform=p).implementation for p in ("cpu", "cuda", "tpu")]
    assert kinds == ["native", "xla", "xla"]
    program = saved(jt.transpose, x, platforms=["cpu", "cuda", "tpu"])
    text = program.mlir_module()
    assert text.count(CALL) == 1 and text.count("stablehlo.transpose") == 2
    assert_same_bits(program.call(x), x.T)
    forced = saved(native, X, platforms=["cpu", "cuda"])
    assert forced.mlir_module().count(CALL) == 2
    assert_same_bits(export.deserialize(forced.serialize()).call(X), X.transpose(2, 0, 1))


@needs_cuda_module
def test_kernels_that_a_platform_lacks():
    with pytest.raises(ValueError, match=r"native.*tpu"):
        saved(native, X, platforms=["cpu", "tpu"])
    with pytest.raises(ValueError, match=r"tiled.*cpu"):
        saved(functools.partial(jt.transpose, kernel="tiled"), X, platforms=["cuda", "cpu"])


@pytest.mark.gpu
def test_one_program_for_both_platforms(cuda, cpu):
    program = export.deserialize(saved(native, X, platforms=["cpu", "cuda"]).serialize())
    for target in (cuda, cpu, cuda):
        out = program.call(target.put(X))
        assert out.devices() == {target.device}
        assert_same_bits(out, X.transpose(2, 0, 1))


def test_programs_for_a_mesh_hold_no_call_of_ours():
    """A saved program cannot hold the Python functions that the partitioner calls."""
    mesh = device_mesh((8,))
    sharded = put(small_values((16, 8, 3), "float32"), mesh, P("x"))
    with pytest.raises(ValueError, match=r"'native'.*jax\.export for several devices.*'auto'"):
        export.export(jax.jit(native))(sharded)
    auto = jax.jit(functools.partial(jt.transpose, axes=(2, 0, 1)))
    program = export.export(auto)(sharded)  # no check needs disabling
    assert program.nr_devices == 8 and CALL not in program.mlir_module()
    out = jax.jit(export.deserialize(program.serialize()).call)(sharded)
    assert_same_bits(out, np.asarray(sharded).transpose(2, 0, 1))
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, P(None, "x")), 3)


def test_programs_for_a_mesh_keep_it_in_shard_map():
    mesh = device_mesh((8,))
    sharded = put(small_values((16, 8, 3), "float32"), mesh, P("x"))
    f = shard_map(native, mesh, P("x"), P(None, "x"))
    program = export.export(jax.jit(f), disabled_checks=jt.export_checks())(sharded)
    assert program.nr_devices == 8 and program.mlir_module().count(CALL) == 1
    out = jax.jit(export.deserialize(program.serialize()).call)(sharded)
    assert_same_bits(out, np.asarray(sharded).transpose(2, 0, 1))


LOAD = """
import jax
from jax import export
program = export.deserialize(open({path!r}, "rb").read())
x = np.arange(192, dtype=np.float32).reshape(4, 6, 8)
"""


def test_a_fresh_process(tmp_path):
    path = tmp_path / "program"
    path.write_bytes(saved(native, X).serialize())
    run_python(
        LOAD.format(path=str(path))
        + "import jax_transpose\n"
        + "assert (np.asarray(program.call(x)) == x.transpose(2, 0, 1)).all()\n",
        JAX_PLATFORMS="cpu",
    )


def test_a_process_that_did_not_import_us(tmp_path):
    """The error names our target; importing the package afterwards is enough."""
    path = tmp_path / "program"
    path.write_bytes(saved(native, X).serialize())
    out = run_python(
        LOAD.format(path=str(path))
        + """
try:
    program.call(x)
except Exception as error:
    print(error)
else:
    raise AssertionError("the call ran without us")
import jax_transpose
assert (np.asarray(program.call(x)) == x.transpose(2, 0, 1)).all()
""",
        JAX_PLATFORMS="cpu",
    )
    assert "jax_transpose_v1" in out and "handler" in out
