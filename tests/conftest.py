"""Fixtures shared by every test: devices, the `gpu` marker and the hypothesis profile."""

import json
import os
import pathlib
import sys

# `python -m pytest` puts the checkout first on the path, where the package lies without
# its compiled modules: the installed one must win. (bench is still found, at the end.)
_ROOT = str(pathlib.Path(__file__).resolve().parents[1])
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != _ROOT] + [_ROOT]

# Both variables are read when the first backend starts, hence before `import jax`.
# Eight host devices make sharding testable anywhere. Without preallocation the
# sub-processes of the GPU tests find memory left on the card.
_FLAG = "--xla_force_host_platform_device_count"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=8".strip()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import functools  # noqa: E402
from typing import NamedTuple  # noqa: E402

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

import jax_transpose  # noqa: E402

_PROFILE = dict(
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        # The device fixtures hold no state that an example could spoil.
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.register_profile("quick", max_examples=30, derandomize=True, **_PROFILE)
hypothesis.settings.register_profile("thorough", max_examples=1000, **_PROFILE)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


class Target(NamedTuple):
    """A device under test, by the platform name that jax_transpose gives it."""

    name: str
    device: jax.Device

    @property
    def kinds(self):
        """Kernel kinds of this platform, e.g. ``("naive", "blocked")``."""
        return jax_transpose.kernels(self.name)

    def put(self, x):
        """Commit `x` to the device, so that whatever consumes it runs there."""
        return jax.device_put(x, self.device)


@functools.cache
def _why_no_gpu():
    """Empty when CUDA tests can run here, else the reason why they cannot."""
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        return f"no CUDA device: {error}"
    status = jax_transpose.status("cuda")
    return "" if status else f"CUDA kernels are off: {status.reason}"


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "gpu: needs a CUDA device and the CUDA module; "
        "JAX_TRANSPOSE_REQUIRE_GPU=1 turns the skip into a failure",
    )


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and (reason := _why_no_gpu()):
        required = os.environ.get("JAX_TRANSPOSE_REQUIRE_GPU", "0") not in ("", "0")
        (pytest.fail if required else pytest.skip)(reason)


@pytest.fixture(autouse=True)
def _host_by_default(request):
    """Tests without the `gpu` marker run on the CPU, also on a machine with a GPU."""
    if request.node.get_closest_marker("gpu"):
        yield
    else:
        with jax.default_device(jax.devices("cpu")[0]):
            yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def platform_device(request):
    """The same test body on the CPU and, marked `gpu`, on the first CUDA device."""
    target = Target(request.param, jax.devices(request.param)[0])
    with jax.default_device(target.device):
        yield target


@pytest.fixture
def cuda():
    """The first CUDA device; for tests that carry the `gpu` marker."""
    return Target("cuda", jax.devices("cuda")[0])


@pytest.fixture
def cpu():
    """The first CPU device."""
    return Target("cpu", jax.devices("cpu")[0])


@pytest.fixture
def bench_run(monkeypatch, tmp_path):
    """Runs `python -m bench` on the CPU; gives the exit status and what --json wrote."""
    from bench import timing  # not every environment of the tests has its needs
    from bench.__main__ import main

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(timing, "settle", lambda platform: None)
    x64 = jax.config.jax_enable_x64

    def call(*arguments, out="out.json"):
        status = main([*map(str, arguments), "--json", str(tmp_path / out)])
        return status, json.loads((tmp_path / out).read_text())

    yield call
    jax.config.update("jax_enable_x64", x64)
