"""Programs over several devices: each device transposes its own shard, and nothing is exchanged.

XLA's partitioner does not look into a custom call: it would gather the operand on every device. A
custom-partitioned function tells it that axes keep their shards when they change places, and what
to run on one shard. Shardy reads `_rule`, the older GSPMD partitioner asks `_infer_sharding`; for
what runs on a shard both call `partition`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.xla_metadata import set_xla_metadata

from jax_transpose import _compat
from jax_transpose._ffi import TARGET


def partitioned(primitive: Any) -> Callable:
    """`primitive` as a function ``(x, permutation, kernel, tile)`` that XLA can partition."""

    def whole(x, permutation, kernel, tile):
        return primitive.bind(x, permutation=permutation, kernel=kernel, tile=tile)

    def partition(permutation, kernel, tile, mesh, operands, result):
        source, target = operands[0].sharding, result.sharding
        rank = len(permutation)
        if _compat.shard_count(target, rank) > _compat.shard_count(source, rank):
            # The result is split further than the operand: less to transpose, the rest is a slice.
            source = _compat.permute_sharding(target, np.argsort(permutation))
        shard = partial(whole, permutation=permutation, kernel=kernel, tile=tile)
        return mesh, shard, _compat.permute_sharding(source, permutation), (source,)

    split = custom_partitioning(whole, static_argnums=(1, 2, 3))
    split.def_partition(
        partition,
        infer_sharding_from_operands=_infer_sharding,
        sharding_rule=_rule,
        # Splits along a part of a mesh axis (after a reshape) have no NamedSharding.
        decode_shardings=False,
    )

    def transpose(x, permutation, kernel, tile):
        # All else that names the arguments is a pointer, which the persistent compilation cache can
        # be told to leave out of its keys (docs/sharding.md).
        with set_xla_metadata(**{TARGET: f"{permutation} {kernel} {tile}"}):
            return split(x, permutation, kernel, tile)

    return transpose


def shard_by_shard(f: Callable, source: Any, target: Any) -> Callable:
    """`f` over each device's shard of an explicit mesh, also where shards are partial sums.

    A custom-partitioned function cannot tell XLA that its result is not summed up yet.
    """
    return jax.shard_map(f, mesh=source.mesh, in_specs=source.spec, out_specs=target.spec)


def _infer_sharding(permutation, kernel, tile, mesh, operands, result):
    return _compat.permute_sharding(operands[0].sharding, permutation)


def _rule(permutation, kernel, tile, mesh, operands, results) -> str:
    names = [f"d{axis}" for axis in range(len(permutation))]
    return f"{' '.join(names)} -> {' '.join(names[axis] for axis in permutation)}"
