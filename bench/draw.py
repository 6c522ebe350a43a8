"""The suite `random`: transposes drawn from a seed, of every rank, width, size and kind of extent.

A case depends on the seed, its index, the largest size and the widths alone: the first hundred of
200 cases are the cases of `--count 100`, and a shard's cases are the whole run's.
"""

from __future__ import annotations

import math
import random

from .cases import WIDTH_DTYPES, Case

RANKS = range(2, 9)
WIDTHS = tuple(WIDTH_DTYPES)
MIN_BYTES = 1 << 20
MAX_BYTES = 1 << 30

# What becomes of an extent of about n. A tiny one is drawn instead: the others share the size, so
# that one tiny extent of two makes a skinny matrix.
_KINDS = {
    "any": lambda n: n,
    "odd": lambda n: n | 1,
    "power": lambda n: 1 << (n.bit_length() - 1),
    "aligned": lambda n: n - n % 16 or n,
    "tiny": None,
}


def cases(
    seed: int, count: int, max_bytes: int = MAX_BYTES, widths: tuple[int, ...] = WIDTHS
) -> list[Case]:
    """`count` cases, array sizes log-uniform from 1 MiB to `max_bytes`.

    Ranks 2-8 and `widths` (element bytes) take turns, so that 35 cases have every pair. Raises
    ValueError where `max_bytes` leaves no room.

    >>> [case.name for case in cases(7, 2)]
    ['r7_000', 'r7_001']
    """
    if max_bytes < 2 * MIN_BYTES:
        raise ValueError(f"max_bytes={max_bytes}: random cases need at least {2 * MIN_BYTES}")
    if count < 1:
        raise ValueError(f"count={count}: at least 1")
    return [draw(seed, index, max_bytes, widths) for index in range(count)]


def draw(seed: int, index: int, max_bytes: int, widths: tuple[int, ...] = WIDTHS) -> Case:
    """The case number `index` of a seed."""
    rng = random.Random(f"{seed}/{index}")
    rank = RANKS[index % len(RANKS)]
    width = widths[index % len(widths)]
    while True:
        target = math.exp(rng.uniform(math.log(MIN_BYTES), math.log(max_bytes)))
        shape = _shape(rng, rank, target / width)
        axes = tuple(rng.sample(range(rank), rank))
        if MIN_BYTES <= math.prod(shape) * width <= max_bytes and moves(shape, axes):
            return Case(f"r{seed}_{index:03d}", shape, axes, WIDTH_DTYPES[width])


def moves(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether the axes longer than 1 change their order.

    >>> moves((4, 1, 5), (1, 0, 2)), moves((4, 1, 5), (2, 1, 0))
    (False, True)
    """
    order = [axis for axis in axes if shape[axis] > 1]
    return order != sorted(order)


def _shape(rng: random.Random, rank: int, elements: float) -> tuple[int, ...]:
    """Extents of one kind or of mixed kinds, whose product is near `elements`."""
    names = list(_KINDS)
    kinds = rng.choices(names, k=rank) if rng.random() < 0.6 else [rng.choice(names)] * rank
    last = rng.randrange(rank)  # takes what the others leave
    if kinds[last] == "tiny":
        kinds[last] = rng.choice(names[:-1])
    shape = [rng.randint(1, 9) if kind == "tiny" else 0 for kind in kinds]
    free = [dim for dim in range(rank) if not shape[dim]]
    shares = [rng.expovariate(1) + 0.3 for _ in free]
    room = math.log(max(1.0, elements / math.prod(extent or 1 for extent in shape)))
    for dim, share in zip(free, shares, strict=True):
        if dim != last:
            extent = max(2, round(math.exp(room * share / sum(shares))))
            shape[dim] = _KINDS[kinds[dim]](extent)
    rest = elements / math.prod(extent or 1 for extent in shape)
    shape[last] = _KINDS[kinds[last]](max(1, int(rest)))
    return tuple(shape)
