"""The build's choice of GPU architectures, by CMake alone: it needs no CUDA."""

import pathlib
import shutil
import subprocess

import pytest

CMAKE = shutil.which("cmake")
FILE = pathlib.Path(__file__).parents[1] / "csrc" / "cuda" / "architectures.cmake"

pytestmark = pytest.mark.skipif(CMAKE is None, reason="no cmake on PATH")


def choose(tmp_path, requested, toolkit="13.0", **variables):
    """Exit status and what is printed: the architectures, or the error on one line."""
    script = tmp_path / "choose.cmake"
    sets = "".join(f'set({name} "{value}")\n' for name, value in variables.items())
    script.write_text(
        f'{sets}include("{FILE}")\n'
        f'jax_transpose_cuda_architectures(CHOSEN "{requested}" "{toolkit}")\n'
        'message("chosen=${CHOSEN}")\n'
    )
    done = subprocess.run([CMAKE, "-P", script], capture_output=True, text=True, timeout=60)
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "requested, toolkit, chosen",
    [
        ("", "12.0", "80-real;90"),
        ("", "12.8", "80-real;90;100-real;120"),
        ("", "13.0", "80-real;90;100-real;120"),
        ("90-real", "13.0", "90-real"),
        ("80;90a-real;120f-virtual", "13.0", "80;90a-real;120f-virtual"),
    ],
)
def test_numbers(tmp_path, requested, toolkit, chosen):
    assert choose(tmp_path, requested, toolkit) == (0, f"chosen={chosen}")


def test_words_become_the_architectures_that_they_stand_for(tmp_path):
    known = {
        "CMAKE_CUDA_ARCHITECTURES_NATIVE": "90-real",
        "CMAKE_CUDA_ARCHITECTURES_ALL": "50-real;75-real;80-real;86-real;120",
        "CMAKE_CUDA_ARCHITECTURES_ALL_MAJOR": "50-real;70-real;80-real;90-real;100-real;120",
    }
    assert choose(tmp_path, "native", **known) == (0, "chosen=90-real")
    assert choose(tmp_path, "all", **known) == (0, "chosen=80-real;86-real;120")
    assert choose(tmp_path, "all-major", **known) == (0, "chosen=80-real;90-real;100-real;120")


@pytest.mark.parametrize("requested", ["native", "75", "70-real;90", "sm_90", "90-ptx", "fast"])
def test_what_is_not_possible_is_an_error(tmp_path, requested):
    status, text = choose(tmp_path, requested)
    assert status != 0 and "allowed:" in text
    assert any(f"'{part}'" in text for part in requested.split(";"))


def test_native_without_a_gpu(tmp_path):
    status, text = choose(
        tmp_path, "native", CMAKE_CUDA_ARCHITECTURES_NATIVE="No CUDA devices found.-real"
    )
    assert status != 0 and "'native'" in text and "needs an NVIDIA GPU" in text


def test_an_old_card_is_no_native_target(tmp_path):
    status, text = choose(tmp_path, "native", CMAKE_CUDA_ARCHITECTURES_NATIVE="75-real")
    assert status != 0 and "75-real" in text and "8.0" in text
