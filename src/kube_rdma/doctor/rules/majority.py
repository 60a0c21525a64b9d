"""What most of some things have in common, so that the odd one out can be named.

doctor/rules/flow_control asks it about the ports of a node, doctor/rules/outliers about the cards
of a fleet. Of three nobody knows surely which one is right, so nothing is said of fewer than four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kube_base.frozen import Frozen

FEWEST = 4  # things that are compared
SHARE = 0.75  # of them that agree


class Majority(Frozen):
    """The value that `agreeing` of `every` have."""

    value: str
    agreeing: int
    every: int


def majority(values: Iterable[str]) -> Majority | None:
    """What at least three quarters of at least four have; None where there is no such value."""
    counts = Counter(values)
    every = counts.total()
    if every < FEWEST:
        return None
    value, agreeing = counts.most_common(1)[0]
    return Majority(value, agreeing, every) if agreeing >= every * SHARE else None
