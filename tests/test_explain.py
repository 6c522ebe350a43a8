"""explain(), kernels(), status() and the command `python -m jax_transpose`."""

import dataclasses
import functools
import importlib.util
import re
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import needs_cuda_module, planned_platforms
from jax import export
from jax.sharding import PartitionSpec as P
from meshes import device_mesh, put
from scripts import run_python

import jax_transpose as jt
from jax_transpose import _ffi

CALL = "custom_call @jax_transpose_v1"


@planned_platforms
def test_a_plan_tells_everything(platform):
    plan = jt.explain((4096, 2048), (1, 0), "float32", platform, kernel="native")
    assert dataclasses.is_dataclass(plan)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.kernel = "naive"
    assert (plan.platform, plan.shape, plan.axes) == (platform, (4096, 2048), (1, 0))
    assert np.dtype(plan.dtype) == np.float32
    assert plan.canonical_shape == (4096, 2048) and plan.canonical_axes == (1, 0)
    assert plan.element_bytes == 4
    assert plan.implementation == "native" and plan.kernel in jt.kernels(platform)
    assert plan.bytes_moved == 2 * 4096 * 2048 * 4
    assert "minor dimensions are exchanged" in plan.reason
    rows = dict(line.split(None, 1) for line in str(plan).splitlines())
    assert rows["transpose"] == f"float32[4096, 2048] axes (1, 0) on {platform}"
    assert rows["runs"] == f"native: {plan.kernel}" and rows["because"] == plan.reason
    assert rows["moves"].startswith("67,108,864 bytes")
    assert f"{plan.grid} blocks" in rows["launch"]


@needs_cuda_module
@pytest.mark.parametrize("kind", jt.kernels("cuda"))
def test_launch_sizes_of_cuda_kinds(kind):
    shape, axes = ((64, 64, 1024), (1, 0, 2)) if kind == "rows" else ((4096, 4096), (1, 0))
    plan = jt.explain(shape, axes, "float32", "cuda", kernel=kind)
    assert plan.kernel == kind and plan.implementation == "native"
    assert plan.grid >= 1 and 32 <= plan.block <= 1024
    assert plan.vector_width in (1, 2, 4, 8, 16)


@needs_cuda_module
def test_the_vectorized_kind_is_chosen_for_large_aligned_matrices():
    plan = jt.explain((8192, 8192), (1, 0), "float32", "cuda")
    assert plan.implementation == "native"
    assert plan.vector_width == 16


@needs_cuda_module
@pytest.mark.parametrize("tile", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["tiled_unpadded", "tiled"])
def test_a_tile_asked_for_is_the_tile_planned(kind, tile):
    plan = jt.explain((1000, 1000), (1, 0), "float32", "cuda", kernel=kind, tile=tile)
    assert plan.tile == tile
    assert plan.grid >= (1000 // tile) ** 2


@planned_platforms
def test_small_arrays_go_to_xla_and_say_so(platform):
    small = jt.explain((8, 8), (1, 0), "float32", platform)
    assert small.implementation == "xla"
    assert "smaller than the platform's measured crossover" in small.reason
    by_name = jt.explain((8, 8), (1, 0), "float32", platform, kernel="native")
    assert by_name.kernel in jt.kernels(platform) and "crossover" not in by_name.reason


@planned_platforms
def test_identity_and_xla(platform):
    for shape, axes in [((5, 6), (0, 1)), ((7,), None), ((), None)]:
        plan = jt.explain(shape, axes, "float32", platform, kernel="native")
        assert plan.implementation == "identity"
    plan = jt.explain((5, 6), (1, 0), "float32", platform, kernel="xla")
    assert plan.implementation == "xla" and plan.reason == "asked for by name"
    assert jt.explain((0, 6), (1, 0), "float32", platform).bytes_moved == 0


@planned_platforms
@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_packed_types_go_to_our_kernels_where_these_win(platform, name):
    plan = jt.explain((16384, 8192), (1, 0), name, platform)
    assert (plan.implementation, plan.kernel) == ("native", "sub_byte")
    assert plan.bytes_moved == 16384 * 8192
    odd = jt.explain((16383, 8191), (1, 0), name, platform)
    assert (odd.implementation, odd.kernel) == ("native", "sub_byte")
    assert "rows are not" in odd.reason
    narrow = jt.explain((1 << 25, 3), (1, 0), name, platform)
    assert narrow.implementation == ("xla" if platform == "cuda" else "native")


@pytest.mark.parametrize("platform", ["tpu", "rocm"])
def test_platforms_without_kernels(platform):
    plan = jt.explain((4096, 4096), (1, 0), "float32", platform)
    assert plan.implementation == "xla" and platform in plan.reason
    with pytest.raises(ValueError, match=platform):
        jt.explain((4096, 4096), (1, 0), "float32", platform, kernel="native")


def test_explain_takes_arrays():
    for x in (jnp.ones((3, 4), jnp.bfloat16), np.ones((3, 4), jnp.bfloat16)):
        plan = jt.explain(x, platform="cpu")
        assert plan.shape == (3, 4) and plan.axes == (1, 0)
        assert np.dtype(plan.dtype) == jnp.bfloat16
    struct = jax.ShapeDtypeStruct((2, 3, 4), np.float16)
    assert jt.explain(struct, (-1, 0, 1), platform="cpu").axes == (2, 0, 1)
    assert jt.explain(jnp.ones((3, 4))).platform == "cpu"


def test_explain_checks_its_arguments():
    with pytest.raises(ValueError, match=r"axes.*\(2, 3\)"):
        jt.explain((2, 3), (0, 2), "float32", "cpu")
    with pytest.raises(ValueError, match=r"kernel.*fastest"):
        jt.explain((2, 3), (1, 0), "float32", "cpu", kernel="fastest")
    with pytest.raises(ValueError, match=r"tile.*7"):
        jt.explain((2, 3), (1, 0), "float32", "cpu", kernel="native", tile=7)
    with pytest.raises(TypeError):
        jt.explain((2, 3), (1, 0), "no such type", "cpu")


@pytest.mark.parametrize("kernel", ["auto", "native", "xla", "naive"])
@pytest.mark.parametrize(
    "shape, axes",
    [
        ((8, 8), (1, 0)),
        ((4096, 4096), (1, 0)),
        ((64, 512, 8, 64), (0, 2, 1, 3)),
        ((60, 70, 81), (1, 2, 0)),
        ((3, 70, 81, 5), (2, 0, 3, 1)),
        ((1, 9000, 1), (2, 1, 0)),
        ((3, 4), (0, 1)),
        ((1 << 22, 3), (1, 0)),
    ],
)
def test_explain_agrees_with_the_lowering(platform_device, kernel, shape, axes):
    plan = jt.explain(shape, axes, "float32", platform_device.name, kernel=kernel)
    x = jax.ShapeDtypeStruct(shape, np.float32)
    text = jax.jit(lambda x: jt.transpose(x, axes, kernel=kernel)).lower(x).as_text()
    assert (CALL in text) == (plan.implementation == "native")


def test_auto_decides_on_the_shape_after_vmap():
    """A batch of small matrices is one large operand."""
    auto = jax.jit(jax.vmap(jt.transpose))
    small = jax.ShapeDtypeStruct((2, 8, 8), np.float32)
    large = jax.ShapeDtypeStruct((1 << 12, 64, 64), np.float32)
    for x in (small, large):
        plan = jt.explain(x, (0, 2, 1), platform="cpu")
        assert (CALL in auto.lower(x).as_text()) == (plan.implementation == "native")
    assert CALL not in auto.lower(small).as_text()


def test_status():
    on = jt.status("cpu")
    assert on and on.available is True
    for platform in ("tpu", "rocm"):
        off = jt.status(platform)
        assert not off and off.available is False and platform in off.reason


class TestCodeForOtherDevices:
    """A build whose code one of the GPUs here cannot run."""

    WHY = "this build holds code for 80-real; the device is sm_90: rebuild"

    @pytest.fixture(autouse=True)
    def gpus(self, monkeypatch):
        gpus = [
            SimpleNamespace(local_hardware_id=i, device_kind=f"GPU {i}", platform="gpu")
            for i in range(2)
        ]
        module = SimpleNamespace(device_count=lambda: (2, ""), architectures="80-real")
        monkeypatch.setattr(_ffi, "_cuda_module", module)
        monkeypatch.setattr(_ffi, "gpu_devices", lambda: gpus)
        monkeypatch.setattr(_ffi, "_device_can_run", lambda i: (i == 0, self.WHY))

    def test_status_says_so(self):
        status = jt.status("cuda")
        assert not status and self.WHY in status.reason and "GPU 1" in status.reason

    @pytest.mark.parametrize("out", [None, "buffer", "in_place"])
    def test_auto_leaves_it_to_xla(self, out):
        plan = jt.explain((8192, 8192), (1, 0), "float32", "cuda", out=out)
        assert plan.implementation == "xla" and self.WHY in plan.reason

    @pytest.mark.parametrize("out", [None, "buffer", "in_place"])
    def test_native_is_an_error(self, out):
        with pytest.raises(ValueError, match=r"'native'.*GPU 1.*80-real.*rebuild"):
            jt.explain((8192, 8192), (1, 0), "float32", "cuda", out=out, kernel="native")

    def test_programs_for_other_machines_ask_no_device_here(self):
        f = jax.jit(lambda x: jt.transpose(x, kernel="native"))
        x = jax.ShapeDtypeStruct((8192, 8192), np.float32)
        save = functools.partial(export.export, disabled_checks=jt.export_checks())
        assert CALL in save(f, platforms=["cuda"])(x).mlir_module()

    def test_a_device_that_can_is_no_obstacle(self, monkeypatch):
        monkeypatch.setattr(_ffi, "_device_can_run", lambda i: (True, ""))
        assert jt.status("cuda")
        assert jt.explain((8192, 8192), (1, 0), "float32", "cuda").implementation == "native"


def test_gpu_is_jaxs_name_for_cuda():
    assert jt.status("gpu") == jt.status("cuda")
    assert jt.kernels("gpu") == jt.kernels("cuda") != ()
    for kernel in ("auto", "xla"):
        gpu = jt.explain((513, 8191), (1, 0), platform="gpu", kernel=kernel)
        assert gpu == jt.explain((513, 8191), (1, 0), platform="cuda", kernel=kernel)
        assert gpu.platform == "cuda"


@pytest.mark.parametrize("version, name", [("PJRT ROCm 6.1", "rocm"), ("cuda 13000", "cuda")])
def test_gpu_is_the_gpu_that_is_there(monkeypatch, version, name):
    gpu = SimpleNamespace(client=SimpleNamespace(platform_version=version), platform="gpu")
    monkeypatch.setattr(jax, "devices", lambda *_: [gpu])
    assert _ffi.platform_name("gpu") == name
    assert (jt.kernels("gpu") == ()) == (name == "rocm")


def test_a_probe_that_failed_is_asked_again(monkeypatch):
    def busy(_):
        raise RuntimeError("no thread")

    answers = iter([busy, lambda _: (False, "out of memory"), lambda _: (True, "")])
    monkeypatch.setattr(_ffi, "_able", set())
    module = SimpleNamespace(can_run=lambda i: next(answers)(i))
    monkeypatch.setattr(_ffi, "_cuda_module", module)
    assert [_ffi._device_can_run(0)[0] for _ in range(4)] == [False, False, True, True]


class TestPlacesOfArrays:
    """What lowering leaves to XLA because of where an array lies, `explain` leaves to XLA."""

    @pytest.fixture(autouse=True)
    def kernels(self, monkeypatch):
        monkeypatch.setattr(_ffi, "has_module", lambda platform: _ffi.Status(True, "pretended"))
        monkeypatch.setattr(_ffi, "gpu_devices", lambda: [])

    @pytest.mark.parametrize("out", [None, "buffer", "in_place"])
    def test_host_memory(self, out):
        device = jax.devices("cpu")[0]
        if "pinned_host" not in {memory.kind for memory in device.addressable_memories()}:
            pytest.skip("this JAX has one memory on a CPU")
        sharding = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
        x = jax.ShapeDtypeStruct((8192, 8192), np.float32, sharding=sharding)
        plan = jt.explain(x, platform="cuda", out=out)
        assert plan.implementation == "xla" and "host memory" in plan.reason
        with pytest.raises(ValueError, match=r"'native'.*host memory"):
            jt.explain(x, platform="cuda", out=out, kernel="native")
        assert jt.explain(x, platform="cpu", out=out).implementation == "native"

    def test_partial_sums_on_a_partly_explicit_mesh(self):
        try:
            spec = P("y", None, unreduced={"x"})
        except TypeError:
            pytest.skip("this JAX has no unreduced types")
        kinds = jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto
        devices = np.array(jax.devices("cpu")[:8]).reshape(2, 4)
        mesh = jax.sharding.Mesh(devices, ("x", "y"), axis_types=kinds)
        sharding = jax.sharding.NamedSharding(mesh, spec)
        x = jax.ShapeDtypeStruct((8192, 4096), np.float32, sharding=sharding)
        plan = jt.explain(x, platform="cpu")
        assert plan.implementation == "xla" and "partial sums" in plan.reason


@pytest.mark.parametrize("name", ["cdua", "CPU", "", "nvidia", "cuda:0", None, []])
def test_unknown_platforms(name):
    asked = [jt.status, jt.kernels]
    if name is not None:  # which is the default backend
        asked.append(lambda name: jt.explain((8, 8), platform=name))
    message = rf"platform={re.escape(repr(name))}.*'cpu', 'cuda', 'gpu'"
    for ask in asked:
        with pytest.raises(ValueError, match=message):
            ask(name)


@pytest.mark.parametrize("dtype", [object, "foo", "S4", "datetime64[s]", np.dtype("f4,i4"), 7])
def test_dtypes_that_are_none_of_jaxs(dtype):
    with pytest.raises(TypeError, match=r"dtype=.*allowed"):
        jt.explain((8, 8), dtype=dtype)


class TestSharded:
    """Of a sharded array a device holds a part, and that is what its kernel moves."""

    SHAPE, SHARD, AXES = (512, 1024, 6), (128, 1024, 3), (2, 0, 1)

    def array(self):
        return put(np.zeros(self.SHAPE, np.float32), device_mesh((4, 2)), P("x", None, "y"))

    def check(self, plan):
        assert (plan.shape, plan.array_shape) == (self.SHARD, self.SHAPE)
        one = jt.explain(self.SHARD, self.AXES, "float32", "cpu")
        assert plan.bytes_moved == one.bytes_moved == 2 * 4 * 128 * 1024 * 3
        assert (plan.kernel, plan.grid) == (one.kernel, one.grid)
        assert "shard of" in str(plan) and "512" in str(plan) and "shard of" not in str(one)

    def test_arrays(self):
        self.check(jt.explain(self.array(), self.AXES, platform="cpu"))

    def test_abstract_arrays(self):
        x = self.array()
        aval = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
        self.check(jt.explain(aval, self.AXES, platform="cpu"))

    def test_keys(self):
        keys = put(jax.random.split(jax.random.key(0), 16).reshape(8, 2), device_mesh((4,)), P("x"))
        plan = jt.explain(keys, platform="cpu")
        assert (plan.shape, plan.array_shape) == ((2, 2, 2), (8, 2, 2))
        assert plan.bytes_moved == 2 * 4 * 2 * 2 * 2

    def test_replicas_are_whole(self):
        x = put(np.zeros((16, 8), np.float32), device_mesh((8,)), P())
        plan = jt.explain(x, platform="cpu")
        assert plan.shape == (16, 8) and plan.array_shape is None


def test_status_of_cuda_tells_why():
    """Held against what can be known without the package."""
    status = jt.status("cuda")
    if importlib.util.find_spec("jax_transpose._cuda") is None:
        assert not status and "built without CUDA" in status.reason
        return
    try:
        devices = jax.devices("cuda")
    except RuntimeError:
        assert not status and "CUDA device" in status.reason
    else:
        assert str(len(devices)) in status.reason


def test_a_build_without_the_cuda_module_says_so():
    run_python(
        """
        import sys
        class Hide:  # as if the module had not been built
            def find_spec(name, path=None, target=None):
                if name == "jax_transpose._cuda":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Hide)
        import jax_transpose as jt
        status = jt.status("cuda")
        assert not status and "built without CUDA" in status.reason, status
        assert "vectorized" in jt.kernels("cuda")
        plan = jt.explain((8192, 8192), (1, 0), "float32", "cuda")
        assert plan.implementation == "xla" and status.reason in plan.reason, plan
        try:
            jt.explain((8192, 8192), (1, 0), "float32", "cuda", kernel="native")
        except ValueError as error:
            assert status.reason in str(error), error
        else:
            raise AssertionError("native must be an error")
        assert (np.asarray(jt.transpose(X, kernel="native")) == X.T).all()
        """,
        JAX_PLATFORMS="cpu",
    )


def test_command_line():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "jax_transpose"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for word in (jt.__version__, jax.__version__, "cpu", "cuda", *jt.kernels("cpu")):
        assert word in done.stdout, done.stdout
    assert all(kind in done.stdout for kind in jt.kernels("cuda"))
