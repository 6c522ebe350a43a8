"""`python -m bench small`: what is timed, in which process, and what it says."""

import json
import time
import types

import jax
import numpy as np
import pytest
from scripts import run_python

from bench import small, timing


@pytest.fixture
def quick(monkeypatch):
    """Few samples."""
    monkeypatch.setattr(small, "_SECONDS", 0)
    monkeypatch.setattr(small, "_MIN_SAMPLES", 3)


def test_a_record_has_every_program_and_kernel(quick, cpu):
    (record,) = small.measure("float32", [16], "cpu")
    assert set(record["wall_us"]) == {"one", "chain", "loop"}
    for program, us in record["wall_us"].items():
        assert set(us) == {"auto", "native", "xla"} and min(us.values()) > 0
        assert record["auto_over_xla"]["wall"][program] == pytest.approx(
            us["auto"] / us["xla"], abs=1e-4
        )
        assert record["native_minus_xla_us"][program] == pytest.approx(
            us["native"] - us["xla"], abs=1e-3
        )


@pytest.mark.parametrize("n, implementation", [(8, "xla"), (256, "native")])
def test_auto_is_shared_only_with_the_same_program(quick, cpu, n, implementation):
    (record,) = small.measure("uint8", [n], "cpu")
    assert record["auto"] == implementation
    for program, twin in record["same_program"].items():
        assert twin == implementation
        assert record["wall_us"][program]["auto"] == record["wall_us"][program][twin]
    assert (implementation == "native") or set(record["same_program"]) == set(small.PROGRAMS)


def test_wrong_bytes_stop_the_run(quick, cpu, monkeypatch):
    function = small.function

    def wrong(program, kernel):
        f = function(program, kernel)
        spoil = program == "chain" and kernel == "native"
        if spoil:
            return lambda *xs: tuple(y + 1 for y in f(*xs))
        return lambda *xs: f(*xs)

    monkeypatch.setattr(small, "function", wrong)
    with pytest.raises(AssertionError, match="wrong bytes: chain of 8x8 uint8, kernel native"):
        list(small.measure("uint8", [8], "cpu"))


# Both signs of every difference: who is ahead must not matter.
@pytest.mark.parametrize(
    "auto, xla, spread, why",
    [
        *((1.0, 1.04, 0.0, "close"), (1.04, 1.0, 0.0, "close")),
        *((1.0, 1.06, 0.0, None), (1.06, 1.0, 0.0, None)),
        *((1.0, 1.5, 0.11, "spread"), (1.5, 1.0, 0.11, "spread")),
    ],
)
def test_programs_in_doubt_are_timed_again(cpu, monkeypatch, auto, xla, spread, why):
    asked = []

    def interleaved(compiled, arguments, more=1):
        asked.append(more)
        times = {"auto": auto, "native": auto, "xla": xla}
        if more != 1:
            times = {"auto": 7.0, "native": 7.0, "xla": 5.0}
        return {name: timing.Timing(times[name], "wall", spread=spread) for name in compiled}

    monkeypatch.setattr(small, "interleaved", interleaved)
    (record,) = small.measure("uint8", [256], "cpu")
    assert asked == ([1, 2] * 3 if why else [1] * 3)
    assert record["retimed"] == (dict.fromkeys(small.PROGRAMS, why) if why else {})
    ratio = 7 / 5 if why else auto / xla
    for program in small.PROGRAMS:
        assert record["auto_over_xla"]["wall"][program] == pytest.approx(ratio, abs=1e-3)
        if why:
            first = record["first_wall_us"][program]
            assert first["auto"] == first["native"]
            assert first["auto"] / first["xla"] == pytest.approx(auto / xla, abs=1e-3)
    text = small.retimed([record])
    assert ("3 of 3 programs" if why else "0 of 3 programs") in text


def test_one_program_is_not_compared_with_itself(quick, cpu):
    (record,) = small.measure("uint8", [8], "cpu")  # which `auto` leaves to XLA
    assert record["retimed"] == {} and record["first_wall_us"] == {}


def test_medians_ignore_a_pause(monkeypatch):
    """A host that stalls now and then, and a program twice as slow as the other."""
    clock = [0.0]
    monkeypatch.setattr(small, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    calls = {"fast": 0, "slow": 0}

    class Out:
        def block_until_ready(self):
            return self

    def program(name, cost):
        def call(_):
            calls[name] += 1
            clock[0] += cost + (1.0 if calls[name] % 5 == 0 else 0)
            return Out()

        return call

    both = {"fast": program("fast", 1e-3), "slow": program("slow", 2e-3)}
    found = small.interleaved(both, [None])
    seconds = {name: timing_.seconds for name, timing_ in found.items()}
    assert seconds == {"fast": pytest.approx(1e-3), "slow": pytest.approx(2e-3)}
    assert calls["fast"] == calls["slow"] >= small._MIN_SAMPLES


def test_device_times_are_those_of_one_transpose(cpu, monkeypatch):
    x = jax.numpy.ones((4, 4))
    arguments = {"one": [x], "chain": [x] * small.PROGRAMS["chain"], "loop": [x]}

    def measure(programs, repeat):
        assert {p.repeat for p in programs} == set(small._TRACED_CALLS.values())
        return {p.key: timing.Timing(800e-6, "cupti") for p in programs}

    monkeypatch.setattr(timing, "measure_device", measure)
    compiled, _ = small._compile(4, "float32", arguments)
    device, source = small._device_times(compiled, arguments)
    assert source == ["cupti"]
    for program, us in {"one": 800, "chain": 80, "loop": 2}.items():
        assert device[program]["xla"] == pytest.approx(us)


def test_no_size_begins_after_the_deadline(quick, cpu, monkeypatch):
    now = iter(range(0, 1000, 10))
    clocks = types.SimpleNamespace(monotonic=lambda: next(now), perf_counter=time.perf_counter)
    monkeypatch.setattr(small, "time", clocks)
    records = list(small.measure("uint8", [8, 9, 10, 11], "cpu", deadline=35))
    assert [record["n"] for record in records] == [8, 9]


def test_the_worst_is_the_largest_over_all_modes():
    ratios = {"wall": {"one": 1.0, "loop": 1.2}, "device": {"one": 0.9}}
    record = {"n": 64, "dtype": "uint8", "mode": "default", "auto_over_xla": ratios}
    graphs = {**record, "mode": "graphs", "auto_over_xla": {"wall": {"one": 1.3}, "device": {}}}
    assert small.worst([record, graphs], 2) == [
        ("64² uint8 one (graphs, wall)", 1.3),
        ("64² uint8 loop (default, wall)", 1.2),
    ]


def test_graphs_are_a_process_with_the_flag(tmp_path):
    out = tmp_path / "small.json"
    run_python(
        f"""
        import sys
        sys.path.insert(0, {str(small.Path(small.__file__).parents[1])!r})
        from bench.__main__ import main
        words = "small --modes default,graphs --sizes 8 --dtype uint8 --json"
        sys.exit(main([*words.split(), {str(out)!r}]))
        """,
        JAX_PLATFORMS="cpu",
    )
    document = json.loads(out.read_text())
    assert document["complete"]
    assert [record["mode"] for record in document["records"]] == ["default", "graphs"]
    assert all(np.isfinite(ratio) for _, ratio in document["worst"])


def test_a_process_that_fails_is_told(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nowhere")
    with pytest.raises(RuntimeError, match="nowhere"):
        small.with_graphs(["uint8"], [8], None)
