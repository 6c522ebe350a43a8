"""`kernel="autotune"`: what is measured, when, and what becomes of it."""

import math
import warnings
from types import SimpleNamespace

import dtypes
import jax
import numpy as np
import pytest
from jax import export
from meshes import device_mesh, put, shard_map

import jax_transpose as jt
from jax_transpose import _autotune, _decide, _ffi, _into, _primitive

SHAPE, AXES = (33, 4096, 1024), (0, 2, 1)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache in a file of its own."""
    fresh = _autotune.Cache(lambda: tmp_path / "autotune.json")
    monkeypatch.setattr(_autotune, "cache", fresh)
    return fresh


@pytest.fixture
def pretend_gpu(monkeypatch):
    """Calls of the measuring function, on a machine that need not have a GPU."""
    calls = []

    def measure(shape, permutation, element_bytes, candidates, device):
        calls.append((shape, permutation, element_bytes, list(candidates)))
        return [2.0 + i if kind != "tiled" else 1.0 + i for i, (kind, _) in enumerate(candidates)]

    monkeypatch.setattr(_autotune, "device", lambda: SimpleNamespace(device_kind="Some GPU"))
    monkeypatch.setattr(_ffi, "can_run", lambda platform: _ffi.Status(True, "pretended"))
    monkeypatch.setattr(_decide, "can_run", lambda platform: _ffi.Status(True, "pretended"))
    monkeypatch.setattr(_ffi, "measure", measure)
    return calls


def test_the_fastest_candidate_is_kept_and_used(cache, pretend_gpu):
    before = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune")
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    plan = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune")
    assert plan.kernel == "tiled" != before.kernel
    assert "measured" in plan.reason


def test_what_was_measured_steers_autotune_alone(cache, pretend_gpu):
    asked = [dict(kernel="auto"), dict(kernel="native"), dict(kernel="auto", out="buffer")]
    before = [jt.explain(SHAPE, AXES, "float32", "cuda", **options) for options in asked]
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    after = [jt.explain(SHAPE, AXES, "float32", "cuda", **options) for options in asked]
    assert after == before and all(plan.kernel != "tiled" for plan in after)


def test_a_gain_within_the_noise_leaves_the_plan(cache, pretend_gpu, monkeypatch):
    planned = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="native").kernel

    def close(shape, permutation, element_bytes, candidates, device):
        return [1.0 if kind == planned else 0.98 for kind, _ in candidates]

    monkeypatch.setattr(_ffi, "measure", close)
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    assert jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune").kernel == planned


def test_candidates_that_do_not_run_are_skipped(cache, pretend_gpu, monkeypatch):
    def few(shape, permutation, element_bytes, candidates, device):
        return [3.0 if kind == "tiled" else math.inf for kind, _ in candidates]

    monkeypatch.setattr(_ffi, "measure", few)
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    assert jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune").kernel == "tiled"


def test_where_no_candidate_runs_the_plan_stands(cache, pretend_gpu, monkeypatch):
    monkeypatch.setattr(_ffi, "measure", lambda *request: [math.inf] * len(request[3]))
    with pytest.warns(UserWarning, match="nothing ran"):
        _autotune.autotune("cuda", SHAPE, AXES, 32)
    assert not cache


def test_saved_programs_hold_no_measurement(cpu, cache, monkeypatch):
    seen = []
    monkeypatch.setattr(_primitive, "autotune", lambda *request: seen.append(request))
    f = jax.jit(lambda x: jt.transpose(x, kernel="autotune"))
    export.export(f, disabled_checks=jt.export_checks())(np.ones((7, 9), np.float32))
    assert not seen


def test_processes_of_one_job_measure_no_shards(cpu, cache, monkeypatch):
    """They must compile one program."""
    seen = []
    monkeypatch.setattr(_primitive, "autotune", lambda *request: seen.append(request))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    x = put(np.ones((16, 9), np.float32), device_mesh((8,)), jax.sharding.PartitionSpec("x"))
    jax.jit(lambda x: jt.transpose(x, kernel="autotune")).lower(x).compile()
    assert not seen


@pytest.mark.parametrize("out", [False, True])
def test_nor_what_shard_map_runs(cpu, cache, monkeypatch, out):
    seen = []
    for module in (_primitive, _into):
        monkeypatch.setattr(module, "autotune", lambda *request: seen.append(request))
    mesh, rows = device_mesh((8,)), jax.sharding.PartitionSpec("x")
    x = put(np.ones((64, 9), np.float32), mesh, rows)
    given = put(np.ones((72, 8), np.float32), mesh, rows)

    def body(x, given):
        return jt.transpose(x, kernel="autotune", out=given if out else None)

    f = shard_map(body, mesh, (rows, rows), rows)
    jax.jit(lambda x, given: f(x, given)).lower(x, given)
    assert len(seen) == 1  # one process: a shard is measured
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    jax.jit(lambda x, given: f(x, given) + 1).lower(x, given)
    assert len(seen) == 1


def test_saved_programs_for_several_devices_go_to_xla(cpu):
    """As those of "auto" do: the user asked for no kernel by name."""
    x = put(np.ones((16, 9), np.float32), device_mesh((8,)), jax.sharding.PartitionSpec("x"))
    program = export.export(jax.jit(lambda x: jt.transpose(x, kernel="autotune")))(x)
    assert "jax_transpose" not in program.mlir_module()


@pytest.mark.parametrize("out", [False, True])
def test_an_eager_call_measures_on_its_arrays_device(cache, monkeypatch, out):
    seen = []
    for module in (_primitive, _into):
        record = lambda *_: seen.append(jax.config.jax_default_device)  # noqa: E731
        monkeypatch.setattr(module, "autotune", record)
    device = jax.devices("cpu")[3]
    x, given = (jax.device_put(np.ones(s, np.float32), device) for s in ((37, 11), (11, 37)))
    jt.transpose(x, kernel="autotune", out=given if out else None)
    assert seen == [device]


@pytest.mark.gpu
def test_the_device_that_is_measured(cuda):
    """JAX's default device where it is a GPU, else the process's first GPU."""
    gpus = jax.local_devices(backend="cuda")
    with jax.default_device(jax.devices("cpu")[0]):
        assert _autotune.device() == gpus[0]
    with jax.default_device(gpus[-1]):
        assert _autotune.device() == gpus[-1]


def test_the_same_bytes_are_measured_once(cache, pretend_gpu):
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    _autotune.autotune("cuda", (11, 3, 4096, 1, 1024), (0, 1, 4, 3, 2), 32)
    assert len(pretend_gpu) == 1
    _autotune.autotune("cuda", SHAPE, AXES, 64)
    assert len(pretend_gpu) == 2


def test_a_measurement_that_fails_leaves_the_plan(cache, pretend_gpu, monkeypatch):
    def fail(*_):
        raise RuntimeError("cudaErrorMemoryAllocation")

    monkeypatch.setattr(_ffi, "measure", fail)
    with pytest.warns(UserWarning, match="left to the plan"):
        _autotune.autotune("cuda", SHAPE, AXES, 32)
    plan = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune")
    assert plan.kernel == jt.explain(SHAPE, AXES, "float32", "cuda", kernel="native").kernel


def test_nothing_is_measured_for_a_cpu_or_without_elements(cache, pretend_gpu):
    _autotune.autotune("cpu", SHAPE, AXES, 32)
    _autotune.autotune("cuda", (0, 5), (1, 0), 32)
    assert not pretend_gpu


def test_on_a_cpu_it_is_the_plans_choice(cpu, cache):
    x = dtypes.random_bits((130, 70), "float32")
    f = jax.jit(lambda x: jt.transpose(x, kernel="autotune"))
    dtypes.assert_same_bits(f(cpu.put(x)), x.T)
    assert f.lower(cpu.put(x)).as_text().count("jax_transpose_v1") == 1


@pytest.mark.gpu
def test_on_a_gpu_it_measures_and_moves_the_same_bytes(cuda, cache):
    x = dtypes.random_bits((3, 1000, 2048), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = jax.jit(lambda x: jt.transpose(x, (0, 2, 1), kernel="autotune"))
        dtypes.assert_same_bits(f(cuda.put(x)), np.transpose(x, (0, 2, 1)))
    plan = jt.explain(x.shape, (0, 2, 1), "float32", "cuda", kernel="autotune")
    assert "measured fastest" in plan.reason
    assert cache


def test_of_a_sharded_array_a_shard_is_measured(cpu, cache, monkeypatch):
    seen = []
    monkeypatch.setattr(_primitive, "autotune", lambda *request: seen.append(request))
    x = put(np.ones((16, 9), np.float32), device_mesh((8,)), jax.sharding.PartitionSpec("x"))
    lowered = jax.jit(lambda x: jt.transpose(x, kernel="autotune")).lower(x)
    assert seen == []
    lowered.compile()
    assert seen == [("cpu", (2, 9), (1, 0), 32)]


def test_the_primitive_measures_before_it_decides(cpu, cache, monkeypatch):
    seen = []
    monkeypatch.setattr(_primitive, "autotune", lambda *request: seen.append(request))
    jax.jit(lambda x: jt.transpose(x, kernel="autotune")).lower(np.ones((7, 9), np.float32))
    assert seen == [("cpu", (7, 9), (1, 0), 32)]
    jax.jit(lambda x: jt.transpose(x, kernel="native")).lower(np.ones((7, 9), np.float32))
    assert len(seen) == 1


def test_a_tile_is_a_wish_as_with_auto(cpu, cache):
    x = dtypes.random_bits((130, 70), "float32")
    dtypes.assert_same_bits(jt.transpose(cpu.put(x), kernel="autotune", tile=32), x.T)


def test_a_choice_of_another_release_is_measured_again(cache, pretend_gpu, monkeypatch):
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    monkeypatch.setattr(_autotune, "__version__", "0.0.9")
    before = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="native").kernel
    assert jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune").kernel == before
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    assert len(pretend_gpu) == 2
    assert jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune").kernel == "tiled"


def test_a_kind_that_is_unknown_counts_as_unmeasured(cache, pretend_gpu):
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    (name,) = cache._loaded()
    expected = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="native").kernel
    for kernel, tile in (("gone", 0), ("tiled", 7)):
        cache._loaded()[name] = _autotune.Choice(kernel, tile, 1.0)
        plan = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune")
        assert plan.kernel == expected


@pytest.mark.parametrize("out", [None, "buffer"])
def test_a_wished_tile_is_not_overruled(cache, pretend_gpu, out):
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    tuned = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune", out=out)
    assert tuned.kernel == "tiled" and "measured" in tuned.reason
    # Of `async_copy`, which the plan picks; what was measured has a tile of its own.
    for tile in (32, 64):
        plan = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune", tile=tile, out=out)
        assert (plan.kernel, plan.tile) == ("async_copy", tile)
        assert "measured" not in plan.reason


def test_devices_do_not_share_choices(cache, pretend_gpu, monkeypatch):
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    other = SimpleNamespace(device_kind="Another GPU")
    monkeypatch.setattr(_autotune, "device", lambda: other)
    of_the_plan = jt.explain(SHAPE, AXES, "float32", "cuda", kernel="native").kernel
    assert of_the_plan != "tiled"
    assert jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune").kernel == of_the_plan
    _autotune.autotune("cuda", SHAPE, AXES, 32)
    assert len(pretend_gpu) == 2
    assert jt.explain(SHAPE, AXES, "float32", "cuda", kernel="autotune").kernel == "tiled"


def test_permutations_do_not_share_choices(cache, pretend_gpu):
    """A 3-cycle and its inverse, and the same bytes in another order, are measured each."""
    for axes in ((2, 0, 3, 1), (1, 3, 0, 2), (3, 1, 0, 2)):
        _autotune.autotune("cuda", (40, 50, 60, 70), axes, 32)
    _autotune.autotune("cuda", (40, 50, 70, 60), (2, 0, 3, 1), 32)
    _autotune.autotune("cuda", (40, 50, 60, 70), (2, 0, 3, 1), 16)
    assert len(pretend_gpu) == 5


def test_a_wished_tile_is_not_measured_for(cpu, cache, monkeypatch):
    seen = []
    monkeypatch.setattr(_primitive, "autotune", lambda *request: seen.append(request))
    jax.jit(lambda x: jt.transpose(x, kernel="autotune", tile=32)).lower(np.ones((7, 9)))
    assert not seen
