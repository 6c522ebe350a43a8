"""`python -m bench sharded`: right programs pass, wrong ones are found."""

import jax
import pytest

pytest.importorskip("rich")

from bench import compare, sharded

CASE = sharded.Sharded("small", (1, 64, 48), (0, 2, 1), "float32")


def runner(devices=4):
    return sharded.Runner("cpu", "native", 1, jax.devices("cpu")[:devices])


def test_records_and_tables():
    run = runner()
    records = [run.sharded(CASE), run.distributed(64)]
    assert [r["status"] for r in records] == ["ok", "ok"]
    assert records[0]["shape"] == [4, 64, 48]
    assert records[0]["collectives"] == {"ours": [], "jnp": []}
    assert all(found == ["all-to-all"] for found in records[1]["collectives"].values())
    assert all(value > 0 for r in records for value in (*r["us"].values(), *r["gbs"].values()))
    assert [table.row_count for table in sharded.tables(records, 4)] == [1, 1]
    assert "byte-exact" in sharded.last_line(records)


def test_wrong_bytes_are_found(monkeypatch):
    right = sharded.jax_transpose.transpose
    monkeypatch.setattr(sharded.jax_transpose, "transpose", lambda *a, **k: right(*a, **k) + 1)
    record = runner().sharded(CASE)
    assert record["status"] == "wrong" and record["wrong_elements"]["jnp"] == 0
    assert "WRONG" in sharded.last_line([record])


def test_needless_exchanges_are_found(monkeypatch):
    right = sharded.jax_transpose.transpose
    everywhere = jax.sharding.NamedSharding(runner().mesh, jax.sharding.PartitionSpec())

    def gathered(x, *args, **kwargs):
        x = jax.lax.with_sharding_constraint(x, everywhere) if x.shape[0] > 1 else x
        return right(x, *args, **kwargs)

    monkeypatch.setattr(sharded.jax_transpose, "transpose", gathered)
    record = runner().sharded(CASE)
    assert record["collectives"]["ours"] == ["all-gather"] and record["status"] == "wrong"


def test_compare_tells_sides_apart():
    run = runner()
    records = [run.distributed(side) for side in (64, 128)]
    document = {
        "kind": "sharded",
        "devices": 4,
        "environment": {"device": "x"},
        "records": records,
    }
    small, large = records
    faster = {**large, "gbs": {"ours": large["gbs"]["ours"] * 2}}
    found = compare.compare({**document, "records": [small, faster]}, document)
    assert found["same_device"] and found["compared"] == 2
    assert found["slower"] == [("rows to rows 128x128 float32", 0.5)]
    assert not compare.compare({**document, "devices": 2}, document)["same_device"]


def test_one_device_is_too_few():
    with pytest.raises(ValueError, match="at least two"):
        runner(devices=1)
