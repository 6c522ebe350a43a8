"""Benchmarks of `jax_transpose` against `jnp.transpose`, a plain copy and other libraries.

Run `python -m bench` from the clone; `python -m bench --help` lists the options.
"""
