"""`python -m bench cpu` on a suite of two small cases."""

import json
import os
import pathlib
import subprocess
import sys

CLONE = pathlib.Path(__file__).resolve().parents[1]


def test_columns_and_bytes(tmp_path):
    suite, result = tmp_path / "two.json", tmp_path / "out.json"
    cases = [
        {"name": "square", "shape": [96, 96], "axes": [1, 0], "dtype": "float32"},
        {"name": "skinny", "shape": [500, 3], "axes": [1, 0], "dtype": "complex128"},
    ]
    suite.write_text(json.dumps({"cases": cases}))
    done = subprocess.run(
        [sys.executable, "-m", "bench", "cpu", "--suite", suite, "--repeat", "2", "--json", result],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(CLONE), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 cases byte-exact" in done.stdout
    document = json.loads(result.read_text())
    assert document["threads"] >= 1
    square, skinny = document["records"]
    always = {"memcpy", "stream", "resident", "call", "jnp", "out=", "numpy"}
    assert always | {"in place"} <= set(square["gbs"])
    assert always <= set(skinny["gbs"]) and "in place" not in skinny["gbs"]
    assert all(speed > 0 for record in (square, skinny) for speed in record["gbs"].values())
    assert not square["wrong"] and not skinny["wrong"]
