"""How a run compares as a whole with an earlier one: a cluster can become slower pair by pair.

What a single pair lost is for verdicts to say, where it is more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from kube_rdma.model.verify.bandwidth import PairKey, RatedPair, RunComparison
from kube_rdma.verify.rules.verdicts import key


def comparison(rated: Sequence[RatedPair], before: Mapping[PairKey, float]) -> RunComparison | None:
    """The medians of both over the pairs that both have; None without an earlier run."""
    if not before:
        return None
    now = {key(pair.outcome): pair.figure for pair in rated if pair.figure is not None}
    shared = [name for name in before if name in now]
    return RunComparison(
        len(shared),
        median([before[name] for name in shared]) if shared else None,
        median([now[name] for name in shared]) if shared else None,
        len(before) - len(shared),
    )
