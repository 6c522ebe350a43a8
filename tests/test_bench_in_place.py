"""`python -m bench in_place`: right bytes pass, wrong ones are found, one run against another."""

import pytest
from bench_documents import past

pytest.importorskip("rich")

from bench import compare, in_place, report

WORDS = ["in_place", "--sizes", "24,23", "--dtype", "f32,u8", "--repeat", "2"]
MATRICES = [(side, dtype) for side in (24, 23) for dtype in ("float32", "uint8")]


def test_sides_and_dtypes(bench_run, capsys):
    status, document = bench_run(*WORDS)
    assert status == 0 and document["kind"] == "in_place" and document["repeat"] == 2
    assert [(r["side"], r["dtype"]) for r in document["records"]] == MATRICES
    for record in document["records"]:
        assert list(record["gbs"]) == ["in place", "out=", "copy"]
        assert min(record["gbs"].values()) > 0 and record["wrong"] == []
    assert "4 of 4 cases byte-exact" in capsys.readouterr().out


@pytest.mark.parametrize("column", ["in place", "out="])
def test_wrong_bytes_are_the_exit_status(bench_run, monkeypatch, capsys, column):
    right = in_place.jax_transpose.transpose

    def wrong(x, out):
        spoil = x.shape == (24, 24) and (out is x) == (column == "in place")
        return right(x, out=out) + spoil

    monkeypatch.setattr(in_place.jax_transpose, "transpose", wrong)
    status, document = bench_run(*WORDS)
    assert status == 1
    assert [r["wrong"] for r in document["records"]] == [[column], [column], [], []]
    text = capsys.readouterr().out
    assert f"WRONG BYTES: 24² float32: {column}" in text and "2 of 4 cases byte-exact" in text


@pytest.mark.parametrize("column", ["in place", "out="])
@pytest.mark.parametrize("speed, flagged", [(0.96, True), (0.98, False)])
def test_compare_flags_our_columns(bench_run, column, speed, flagged):
    _, document = bench_run(*WORDS)
    found = compare.compare(past(document, 1 / speed, column, side=23), document)
    assert found["compared"] == 8
    slower = [(f"23², {column} {dtype}", speed) for dtype in ("float32", "uint8")]
    assert found["slower"] == (slower if flagged else [])


def test_compare_leaves_the_copy_alone(bench_run):
    _, document = bench_run(*WORDS)
    assert compare.compare(past(document, 2, column="copy"), document)["slower"] == []


@pytest.mark.parametrize("factor, expected", [(1e3, 3), (1e-3, 0)])
def test_a_regression_is_the_exit_status(bench_run, tmp_path, capsys, factor, expected):
    _, document = bench_run(*WORDS)
    report.write_json(str(tmp_path / "old.json"), past(document, factor))
    assert bench_run(*WORDS, "--compare", tmp_path / "old.json")[0] == expected
    text = capsys.readouterr().out
    assert ("REGRESSION 24², in place float32" in text) == bool(expected)
    assert ("no case slower by more than 3%" in text) == (not expected)
