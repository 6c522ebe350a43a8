"""Two GPUs of one host: sharded programs, the distributed transpose, and threads."""

import functools

import jax
import pytest
from dtypes import assert_same_bits, small_values
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import CALL, check_sharded, device_mesh, moved_spec, put, shard_map
from test_distributed import WAYS
from test_multi_device import drive
from test_sharding import PERMUTATIONS, SHAPE, TRANSFORMS

import jax_transpose as jt
from jax_transpose import _autotune

pytestmark = pytest.mark.gpu

native = functools.partial(jt.transpose, kernel="native")


@pytest.fixture
def mesh():
    if len(jax.devices("cuda")) < 2:
        pytest.skip("one GPU only")
    return device_mesh((2,), platform="cuda")


@pytest.mark.parametrize("axes", PERMUTATIONS, ids=str)
@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P(None, None, "x"), P()], ids=str)
def test_sharded_operands(mesh, spec, axes):
    x = small_values(SHAPE, "float32")
    text = check_sharded(
        functools.partial(native, axes=axes),
        x.transpose(axes),
        put(x, mesh, spec),
        NamedSharding(mesh, moved_spec(spec, axes)),
    )
    assert CALL in text


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(mesh, name):
    transform, transposed = TRANSFORMS[name]
    x, sharding = small_values((8, 16, 16), "float32"), NamedSharding(mesh, P("x"))
    f = transform(functools.partial(native, axes=(0, 2, 1)))
    result = x.transpose(0, 2, 1) if transposed else x
    assert CALL in check_sharded(f, result, put(x, mesh, P("x")), sharding)


def test_auto_on_large_shards(mesh):
    x = small_values((2, 2048, 2047), "float32")
    sharding = NamedSharding(mesh, P("x"))
    assert jt.explain(x[:1], (0, 2, 1), platform="cuda").implementation == "native"
    f = functools.partial(jt.transpose, axes=(0, 2, 1))
    assert CALL in check_sharded(f, x.transpose(0, 2, 1), put(x, mesh, P("x")), sharding)


def test_autotune_measures_a_shard(mesh, tmp_path, monkeypatch):
    """While XLA compiles: the partitioner asks for the program of one shard."""
    cache = _autotune.Cache(lambda: tmp_path / "autotune.json")
    monkeypatch.setattr(_autotune, "cache", cache)
    x = small_values((2, 1000, 500), "float32")
    f = functools.partial(jt.transpose, axes=(0, 2, 1), kernel="autotune")
    sharding = NamedSharding(mesh, P("x"))
    assert CALL in check_sharded(f, x.transpose(0, 2, 1), put(x, mesh, P("x")), sharding)
    (name,) = _autotune.parse((tmp_path / "autotune.json").read_text())
    assert "|1000x500|" in name


def test_shard_map_and_pmap(mesh):
    x = small_values((2, 64, 48), "float32")
    expected = x.transpose(0, 2, 1)
    f = functools.partial(native, axes=(0, 2, 1))
    sharding = NamedSharding(mesh, P("x"))
    blocks = shard_map(f, mesh, P("x"), P("x"))
    assert CALL in check_sharded(blocks, expected, put(x, mesh, P("x")), sharding)
    assert_same_bits(jax.pmap(native, devices=list(mesh.devices))(x), expected)


@pytest.mark.parametrize("way", WAYS)
def test_rows_to_rows_is_one_exchange(mesh, way):
    rows = NamedSharding(mesh, P("x"))
    x = small_values((4096, 2048), "float32")
    transpose = WAYS[way](mesh)

    def f(x):
        return jax.lax.with_sharding_constraint(transpose(x), rows)

    check_sharded(f, x.T, put(x, mesh, P("x")), rows, exchanges=["all-to-all"])


def test_sixteen_threads(mesh):
    drive(list(mesh.devices), ["native", *jt.kernels("cuda")], calls=1000)
