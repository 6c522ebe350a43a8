"""What this build of the package holds."""

import importlib.util

import pytest

#: Plans of CUDA kernels need the CUDA module, though neither a GPU nor a driver.
needs_cuda_module = pytest.mark.skipif(
    importlib.util.find_spec("jax_transpose._cuda") is None, reason="built without CUDA"
)

#: Parametrises `platform` over those whose kernels this build can plan.
planned_platforms = pytest.mark.parametrize(
    "platform", ["cpu", pytest.param("cuda", marks=needs_cuda_module)]
)
