"""What a compiled program exchanges between devices."""

from __future__ import annotations

import re

_COLLECTIVE = re.compile(
    r"\b(all-gather|all-reduce|all-to-all|collective-permute|collective-broadcast|reduce-scatter)"
    r"(?:-start)?\("
)


def collectives(text: str) -> list[str]:
    """The collective operations in the text of a compiled program, in its order.

    >>> collectives("%a = f32[2] all-to-all-start(%x), %b = f32[2] all-to-all-done(%a)")
    ['all-to-all']
    """
    return _COLLECTIVE.findall(text)
