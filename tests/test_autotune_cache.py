"""The file of measured choices: shared, versioned, and never trusted."""

import json
import subprocess
import sys
import textwrap

import pytest

from jax_transpose import _autotune
from jax_transpose._autotune import Cache, Choice

TILED = Choice("tiled", 32, 12.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "autotune.json"


def test_a_choice_outlives_the_process(path):
    assert Cache(lambda: path).get("a") is None
    Cache(lambda: path).put("a", TILED)
    assert Cache(lambda: path).get("a") == TILED


def test_choices_of_others_are_kept(path):
    first, second = Cache(lambda: path), Cache(lambda: path)
    assert first.get("b") is None
    second.put("b", TILED)
    first.put("a", Choice("rows", 0, 1.0))
    fresh = Cache(lambda: path)
    assert fresh.get("a").kernel == "rows"
    assert fresh.get("b") == TILED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 999, "entries": {}}',
        '{"version": 1, "entries": {"a": ["tiled", 32, 1.0]}}',
        '{"version": %d}',
        '{"version": %d, "entries": {"a": ["tiled"]}}',
        '{"version": %d, "entries": {"a": 3}}',
        '{"version": %d, "entries": []}',
    ],
)
def test_a_corrupt_or_foreign_file_is_ignored_with_a_warning(path, text):
    path.parent.mkdir()
    path.write_text(text.replace("%d", str(_autotune.VERSION)))
    cache = Cache(lambda: path)
    with pytest.warns(UserWarning, match="ignored"):
        assert cache.get("a") is None
    cache.put("a", TILED)
    assert Cache(lambda: path).get("a") == TILED


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(lambda: tmp_path / "file" / "autotune.json")
    with pytest.warns(UserWarning, match="autotune cache"):
        cache.put("a", TILED)
    assert cache.get("a") == TILED


def test_the_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_TRANSPOSE_CACHE_DIR", str(tmp_path))
    assert _autotune.cache_file() == tmp_path / "autotune.json"
    monkeypatch.delenv("JAX_TRANSPOSE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert _autotune.cache_file() == tmp_path / "xdg" / "jax_transpose" / "autotune.json"


def test_several_processes_write_at_once(path):
    code = textwrap.dedent(
        f"""
        import pathlib, sys
        from jax_transpose._autotune import Cache, Choice
        cache = Cache(lambda: pathlib.Path({str(path)!r}))
        for i in range(25):
            cache.put(f"{{sys.argv[1]}}-{{i}}", Choice("tiled", 32, float(i)))
        """
    )
    writers = [subprocess.Popen([sys.executable, "-P", "-c", code, str(n)]) for n in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    entries = json.loads(path.read_text())["entries"]
    assert sorted(entries) == sorted(f"{n}-{i}" for n in range(3) for i in range(25))
