"""Which timings are taken once more, by a rule that does not know who is ahead.

A second look at those alone where we seem slower would correct bad luck and keep good luck.
"""

from __future__ import annotations

from .timing import Timing

CLOSE = 0.05  # of the faster one: two timings that differ by no more may change places
SPREAD = 0.1  # of the median: an interquartile range above it is noise
MORE = 2  # times as many calls the second time
RULE = f"within {CLOSE:.0%} of each other, or quartiles more than {SPREAD:.0%} apart"


def reason(first: Timing, second: Timing) -> str | None:
    """Why two timings that are compared are taken once more: "close", "spread" or not.

    >>> reason(Timing(1.0, "wall"), Timing(1.04, "wall"))
    'close'
    >>> reason(Timing(1.0, "wall", spread=0.2), Timing(9.0, "wall"))
    'spread'
    >>> reason(Timing(1.0, "wall"), Timing(1.06, "wall")) is None
    True
    """
    fast, slow = sorted((first.seconds, second.seconds))
    if slow <= (1 + CLOSE) * fast:
        return "close"
    return "spread" if max(first.spread, second.spread) > SPREAD else None
