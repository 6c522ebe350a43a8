"""Array transposes for JAX at copy speed.

Hand-written CUDA and CPU kernels behind a JAX primitive, so that ``jit``, ``vmap``, ``grad`` and
the other transformations use them as if they were part of JAX.

>>> import jax.numpy as jnp, jax_transpose
>>> jax_transpose.transpose(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
(4, 2, 3)
"""

import importlib
import os

__version__ = "0.1.0"

try:
    importlib.import_module("jax_transpose._cpu")
except ModuleNotFoundError as error:
    raise ImportError(
        f"jax_transpose: there is no compiled module beside {__file__}. If that is a folder "
        "of sources, install it with `pip install -e .`, or leave it to use another installation"
    ) from error

from jax_transpose import _compat
from jax_transpose._api import matrix_transpose, moveaxis, permute_dims, swapaxes, transpose
from jax_transpose._decide import kernels
from jax_transpose._explain import Plan, explain
from jax_transpose._export import export_checks
from jax_transpose._ffi import Status, status
from jax_transpose._primitive import transpose_p

# With the separator, so that no other package whose name begins like ours is meant.
_compat.hide_frames(os.path.join(os.path.dirname(__file__), ""))

__all__ = [
    "Plan",
    "Status",
    "__version__",
    "explain",
    "export_checks",
    "kernels",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "status",
    "swapaxes",
    "transpose",
    "transpose_p",
]
