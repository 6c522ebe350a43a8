"""What `jax.export` has to be told about our custom calls."""

from __future__ import annotations

from jax.export import DisabledSafetyCheck

from jax_transpose._ffi import INTO_TARGET, TARGET


def export_checks() -> list[DisabledSafetyCheck]:
    """The safety checks to disable so that `jax.export` saves programs with our custom calls.

    JAX saves only custom calls whose meaning never changes. Ours holds its version in its name: a
    saved program either finds the handler that it was written for, or fails and names it.

    Returns:
      One check per custom-call target, for `disabled_checks` of `jax.export.export`.

    >>> import jax, jax.numpy as jnp, jax_transpose
    >>> from jax import export
    >>> f = jax.jit(lambda x: jax_transpose.transpose(x, kernel="native"))
    >>> saved = export.export(f, disabled_checks=export_checks())(jnp.zeros((2, 3)))
    >>> saved.call(jnp.zeros((2, 3))).shape
    (3, 2)
    """
    return [DisabledSafetyCheck.custom_call(target) for target in (TARGET, INTO_TARGET)]
