"""`python -m bench`: suites by width, partial runs, joined runs, comparison and plots."""

import doctest
import importlib
import itertools
import json
import pkgutil
import time
import types

import jax
import numpy as np
import pytest

import bench
from bench import compare, operands, report, suite, timing, verify
from bench.cases import Case

CASES = [
    {"name": "plain", "shape": [33, 65], "axes": [1, 0], "dtype": "float32"},
    {"name": "batched", "shape": [5, 16, 31], "axes": [0, 2, 1], "dtype": "bfloat16"},
    {"name": "rows", "shape": [7, 6, 64], "axes": [1, 0, 2], "dtype": "uint8"},
]


@pytest.fixture
def run(bench_run, tmp_path):
    """`bench_run`, where the word tiny is the suite of CASES."""
    tiny = tmp_path / "tiny.json"
    tiny.write_text(json.dumps({"cases": CASES}))

    def call(*arguments, out="out.json"):
        return bench_run(*(tiny if word == "tiny" else word for word in arguments), out=out)

    return call


@pytest.mark.parametrize(
    "width, dtype",
    [(1, "uint8"), (2, "bfloat16"), (4, "float32"), (8, "float64"), (16, "complex128")],
)
def test_a_suite_in_every_width(run, tmp_path, width, dtype):
    picture = tmp_path / f"w{width}.png"
    status, document = run(
        *f"--suite tiny --width {width} --repeat 1 --peers numpy --plot {picture}".split()
    )
    assert status == 0
    assert document["width"] == width and document["complete"]
    for raw, record in zip(CASES, document["records"], strict=True):
        assert record["dtype"] == dtype and record["status"] == "ok"
        assert record["bytes"] == width * np.prod(raw["shape"])
        assert {"ours", "jnp", "copy", "numpy"} <= set(record["gbs"])
        assert set(record["ratio"]) == {"jnp", "copy", "peer"}
    total = document["summary"]
    for against in ("jnp", "copy", "peer"):
        ratios = [record["ratio"][against] for record in document["records"]]
        assert total["geomean"][against] == pytest.approx(np.exp(np.mean(np.log(ratios))), abs=2e-4)
        worst = total[f"worst_five_over_{against}"]
        assert [ratio for _, ratio in worst] == sorted(ratios)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_random_reports_the_worst_ten_with_their_kernels(run, tmp_path, capsys):
    picture = tmp_path / "random.png"
    status, document = run(
        *f"random --seed 5 --count 12 --max-bytes 2M --repeat 1 --plot {picture}".split()
    )
    assert status == 0 and document["suite"] == "random"
    assert (document["seed"], document["count"]) == (5, 12)
    text = capsys.readouterr().out
    table = text[text.index("the 10 lowest") :]
    rows = [line for line in table.splitlines() if "r5_" in line and "│" in line]
    assert len(rows) == 10
    for row, record in zip(rows, report.worst(document["records"], "jnp"), strict=False):
        assert record["name"] in row and record["plan"]["kernel"] in row
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_time_limit_keeps_what_ran_and_says_how_to_go_on(run, monkeypatch, capsys):
    # Seen by the runner, every case takes 1000 s.
    now = itertools.count(time.monotonic(), 1000)
    monkeypatch.setattr(suite, "time", types.SimpleNamespace(monotonic=lambda: next(now)))
    arguments = "--suite tiny --repeat 1 --start 1 --time-limit 2500"
    status, document = run(*arguments.split())
    assert status == 0 and not document["complete"]
    assert [record["name"] for record in document["records"]] == ["batched"]
    assert "--start 2" in capsys.readouterr().out


def test_a_killed_run_leaves_the_cases_before(run, tmp_path, monkeypatch):
    finish = suite.Runner._finish

    def killed(self, item, *timings):
        if item.case.name == "rows":
            raise KeyboardInterrupt
        finish(self, item, *timings)

    monkeypatch.setattr(suite.Runner, "_finish", killed)
    with pytest.raises(KeyboardInterrupt):
        run("--suite", "tiny", "--repeat", "1")
    document = report.read_json(str(tmp_path / "out.json"))
    assert [record["name"] for record in document["records"]] == ["plain", "batched"]
    assert not document["complete"]


def test_parts_are_joined(run, tmp_path):
    first = run("--suite", "tiny", "--repeat", "1", "--shard", "1/2", out="a.json")[1]
    second = run("--suite", "tiny", "--repeat", "1", "--start", "1", out="b.json")[1]
    assert [len(d["records"]) for d in (first, second)] == [1, 2]
    status, whole = run("report", tmp_path / "a.json", tmp_path / "b.json")
    assert status == 0 and whole["complete"]
    assert whole["records"] == first["records"] + second["records"]
    assert whole["summary"]["cases"] == 3


def test_runs_of_different_widths_are_not_joined(run, tmp_path, capsys):
    for width in (1, 2):
        run("--suite", "tiny", "--width", width, "--repeat", "1", out=f"{width}.json")
    with pytest.raises(SystemExit):
        run("report", tmp_path / "1.json", tmp_path / "2.json")
    assert "differ in width" in capsys.readouterr().err


def slowed(document, name, factor):
    """The document of a faster past: `name` at 1/factor of the speed, all else the same."""
    records = [
        {**r, "gbs": {**r["gbs"], "ours": r["gbs"]["ours"] / (factor if r["name"] == name else 1)}}
        for r in document["records"]
    ]
    return {**document, "records": records}


@pytest.mark.parametrize("factor, slower", [(0.96, ["rows uint8"]), (0.98, [])])
def test_compare_flags_more_than_three_per_cent(run, factor, slower):
    _, document = run("--suite", "tiny", "--repeat", "1")
    found = compare.compare(slowed(document, "rows", factor), document)
    assert found["compared"] == 3
    assert [name for name, _ in found["slower"]] == slower


def test_a_regression_is_the_exit_status(run, tmp_path, capsys):
    _, document = run("--suite", "tiny", "--repeat", "1", out="new.json")
    for name, factor in (("old", 1e-3), ("older", 1e3)):
        past = slowed(document, "rows", factor)
        report.write_json(str(tmp_path / f"{name}.json"), past)
    common = ["report", tmp_path / "new.json", "--compare"]
    assert run(*common, tmp_path / "old.json")[0] == 3
    assert "REGRESSION rows uint8" in capsys.readouterr().out
    assert run(*common, tmp_path / "older.json")[0] == 0


def test_another_width_is_another_case(run):
    _, one = run("--suite", "tiny", "--width", "1", "--repeat", "1")
    _, two = run("--suite", "tiny", "--width", "2", "--repeat", "1")
    assert compare.compare(one, two)["compared"] == 0


def fake_timings(monkeypatch, *turns):
    """`timing.measure` gives the timings of `turns` by the end of a key; returns what was asked."""
    asked = []

    def measure(programs, platform, repeat):
        asked.append((sorted(p.key.split("_")[-1] for p in programs), repeat))
        for program in programs:
            program.run(0)
        turn = turns[len(asked) - 1]
        return {p.key: turn.get(p.key.split("_")[-1], timing.Timing(1.0, "wall")) for p in programs}

    monkeypatch.setattr(timing, "measure", measure)
    return asked


def seconds(ours, jnp, spread=0.0):
    return {
        "ours": timing.Timing(ours, "wall", spread=spread),
        "jnp": timing.Timing(jnp, "wall", spread=spread),
    }


# Every pair with its mirror image: who is ahead must not matter.
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(
    "pair, spread, why",
    [
        ((1.0, 1.04), 0.0, "close"),
        ((1.0, 1.0), 0.0, "close"),
        ((1.0, 1.06), 0.0, None),
        ((1.0, 1.5), 0.0, None),
        ((1.0, 1.5), 0.09, None),
        ((1.0, 1.5), 0.11, "spread"),
    ],
)
def test_cases_in_doubt_are_timed_again_whoever_is_ahead(monkeypatch, swap, pair, spread, why):
    ours, jnp = reversed(pair) if swap else pair
    asked = fake_timings(monkeypatch, seconds(ours, jnp, spread), seconds(3.0, 2.0))
    runner = suite.Runner("cpu", "native", [], repeat=4)
    (record,) = runner.run([Case("a", (64, 64), (1, 0), "float32")], lambda record: None)
    everything = ["copy", "jnp", "ours"]
    assert asked == [(everything, 4), (everything, 8)][: 2 if why else 1]
    assert record.get("retimed") == why
    if why:
        assert record["first_us"] == {"ours": ours * 1e6, "jnp": jnp * 1e6, "copy": 1e6}
        assert (record["us"]["ours"], record["us"]["jnp"]) == (3e6, 2e6)
        assert record["ratio"]["jnp"] == pytest.approx(2 / 3, abs=1e-4)
    else:
        assert "first_us" not in record
        assert record["ratio"]["jnp"] == pytest.approx(jnp / ours, rel=1e-3)


def test_a_report_says_what_was_timed_twice(run, monkeypatch, capsys):
    fake_timings(monkeypatch, seconds(1.0, 2.0), seconds(1.0, 1.0), seconds(2.0, 1.0), {}, {})
    status, document = run("--suite", "tiny", "--kernel", "native", "--repeat", "1")
    assert status == 0 and document["summary"]["retimed"] == ["batched", "rows"]
    text = " ".join(capsys.readouterr().out.split())
    # The first is clear. The second ties, then is half as fast; the third ties twice.
    assert "(ours and jnp.transpose within 5% of each other, or quartiles more" in text
    assert "2 of 3 cases; their ours/jnp by the first timing: 1.000 (geomean)" in text
    assert "by the second: 0.707" in text


def test_spread_is_that_of_the_samples(monkeypatch):
    """One program's calls take 1 and 2 ms in turns, the other's 1 ms."""
    clock, calls = [0.0], {"even": 0, "uneven": 0}
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))

    def program(name):
        def call(_):
            calls[name] += 1
            clock[0] += 2e-3 if name == "uneven" and calls[name] % 2 else 1e-3

        return timing.Program(name, call, wait=lambda out: out)

    found = timing.measure_cpu([program("even"), program("uneven")], 8)
    assert found["even"].spread == pytest.approx(0, abs=1e-9)
    assert found["uneven"].spread == pytest.approx(1 / 1.5, abs=1e-3)


@pytest.mark.parametrize("dtype", ["bool", "int4", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("compiled", [False, True])
def test_large_arrays_are_compared_on_the_device(monkeypatch, dtype, compiled):
    monkeypatch.setattr(verify, "HOST_BYTES", -1)
    monkeypatch.setattr(verify, "host_wrong", None)
    x = operands.make(Case("x", (6, 4), (1, 0), dtype), seed=1)
    bits = np.array(x.T)
    y = jax.numpy.asarray(bits)
    bits[2, 3] = not bits[2, 3] if dtype == "bool" else bits[2, 3] + bits.dtype.type(1)
    spoiled = jax.numpy.asarray(bits)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    by_xla = (lambda: x.T) if compiled else None
    assert verify.wrong_elements(x, y, (1, 0), by_xla=by_xla) == 0
    assert verify.wrong_elements(x, spoiled, (1, 0), by_xla=by_xla) == 1
    assert verify.wrong_elements(x, y.T, (1, 0), by_xla=by_xla) == 24


@pytest.mark.parametrize(
    "words", ["report", "suite x.json", "--shard 3/2", "--max-bytes 1X", "--suite nowhere"]
)
def test_bad_options_are_refused(run, words):
    with pytest.raises(SystemExit, match="2"):
        run(*words.split())


@pytest.mark.parametrize(
    "name", [m.name for m in pkgutil.walk_packages(bench.__path__, "bench.") if m.name[-2:] != "__"]
)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
