"""`python -m bench cpu` on a suite of two small cases, and one run against another."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from bench_documents import past

pytest.importorskip("rich")

from bench import compare, report

CLONE = pathlib.Path(__file__).resolve().parents[1]
CASES = [
    {"name": "square", "shape": [96, 96], "axes": [1, 0], "dtype": "float32"},
    {"name": "skinny", "shape": [500, 3], "axes": [1, 0], "dtype": "complex128"},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the command in a process of its own, whose cores and devices it chooses."""
    folder = tmp_path_factory.mktemp("cpu")
    suite = folder / "two.json"
    suite.write_text(json.dumps({"cases": CASES}))

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "bench", "cpu", "--suite", suite, "--repeat", "2", *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(CLONE), *filter(None, sys.path)]),
            },
            capture_output=True,
            text=True,
            timeout=120,
            cwd=folder,
        )

    return call


@pytest.fixture(scope="module")
def document(run, tmp_path_factory):
    """What --json wrote."""
    result = tmp_path_factory.mktemp("result") / "out.json"
    done = run("--json", result)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 cases byte-exact" in done.stdout
    return report.read_json(str(result))


def test_columns_and_bytes(document):
    assert document["threads"] >= 1
    square, skinny = document["records"]
    always = {"memcpy", "stream", "resident", "call", "jnp", "out=", "numpy"}
    assert always | {"in place"} <= set(square["gbs"])
    assert always <= set(skinny["gbs"]) and "in place" not in skinny["gbs"]
    assert all(speed > 0 for record in (square, skinny) for speed in record["gbs"].values())
    assert not square["wrong"] and not skinny["wrong"]


@pytest.mark.parametrize("column", ["resident", "call", "out=", "in place"])
@pytest.mark.parametrize("speed, flagged", [(0.96, True), (0.98, False)])
def test_compare_flags_our_columns(document, column, speed, flagged):
    found = compare.compare(past(document, 1 / speed, column, name="square"), document)
    # Four columns of the square matrix, three of the other.
    assert found["same_device"] and found["compared"] == 7
    assert found["slower"] == ([(f"square, {column} float32", speed)] if flagged else [])


@pytest.mark.parametrize("column", ["memcpy", "stream", "jnp", "numpy"])
def test_compare_leaves_others_alone(document, column):
    assert compare.compare(past(document, 2, column=column), document)["slower"] == []


def test_other_threads_are_another_device(document):
    other = {**document, "threads": document["threads"] + 1}
    assert not compare.compare(other, document)["same_device"]


@pytest.mark.parametrize("factor, status", [(1e3, 3), (1e-3, 0)])
def test_a_regression_is_the_exit_status(run, document, tmp_path, factor, status):
    report.write_json(str(tmp_path / "old.json"), past(document, factor))
    done = run("--compare", tmp_path / "old.json")
    assert done.returncode == status, done.stderr
    assert ("REGRESSION skinny, out= complex128" in done.stdout) == bool(status)
    assert ("no case slower by more than 3%" in done.stdout) == (not status)


def test_threads(run, tmp_path):
    cores = len(os.sched_getaffinity(0))
    done = run("--threads", "1", "--json", tmp_path / "one.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "one.json").read_text())["threads"] == 1
    for threads in (0, cores + 1):
        done = run("--threads", str(threads))
        assert done.returncode == 2 and f"--threads {threads}: 1 to {cores}" in done.stderr
