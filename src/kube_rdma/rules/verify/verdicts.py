"""What the figures of all pairs say: which are well, which slow or failed, and whose fault it is.

A pair is held against what was asked, against the line rate, against the others of its rail and
against an earlier run. A pod with which nearly nobody is well is named itself, not its pairs: then
it is its card, cable or port; else it is what lies between the two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from kube_rdma.model.bandwidth import (
    PairKey,
    PairOutcome,
    PairStandard,
    RatedPair,
    Rating,
)

_FEWEST = 3  # pairs of which a median says something
_NEARLY_ALL = 0.8  # of a pod's pairs: then it is the pod
_FEWEST_OF_A_POD = 2  # pairs; of one nobody can tell which end it is


def rate(
    outcomes: Sequence[PairOutcome],
    standard: PairStandard,
    before: Mapping[PairKey, float] | None = None,
) -> tuple[RatedPair, ...]:
    """Each outcome with its rating; `before` has figures of an earlier run of the same kind."""
    figures: dict[int, list[float]] = defaultdict(list)
    for outcome in outcomes:
        row = outcome.standing(latency=standard.latency)
        if row is not None:
            figures[outcome.rail].append(row.figure)
    usual = {rail: median(them) for rail, them in figures.items() if len(them) >= _FEWEST}
    return tuple(
        _rated(outcome, standard, usual.get(outcome.rail), (before or {}).get(key(outcome)))
        for outcome in outcomes
    )


def key(outcome: PairOutcome) -> PairKey:
    """What stays of a pair from run to run."""
    return outcome.client, outcome.server, outcome.rail


def _rated(
    outcome: PairOutcome, standard: PairStandard, usual: float | None, before: float | None
) -> RatedPair:
    row = outcome.standing(latency=standard.latency)
    if row is None:
        return RatedPair(outcome, Rating.FAILED, outcome.failure)
    unit = "µs" if standard.latency else "Gb/s"
    for limit, what in (
        (standard.limit, "asked for"),
        (_of_line(outcome, standard), "due at its line rate"),
        (_around(usual, standard), "usual here"),
        (_around(before, standard), "what it had before"),
    ):
        if limit is not None and _is_worse(row.figure, limit, standard):
            word = "more than" if standard.latency else "less than"
            why = f"{row.figure:.2f} {unit} is {word} the {limit:.2f} {what}"
            return RatedPair(outcome, Rating.SLOW, why)
    return RatedPair(outcome, Rating.WELL)


def _is_worse(figure: float, limit: float, standard: PairStandard) -> bool:
    return figure > limit if standard.latency else figure < limit


def _of_line(outcome: PairOutcome, standard: PairStandard) -> float | None:
    if standard.latency or outcome.line_gbps is None:
        return None
    return outcome.line_gbps * standard.line_share


def _around(figure: float | None, standard: PairStandard) -> float | None:
    """How bad a figure may be beside this one."""
    if figure is None:
        return None
    sign = 1 if standard.latency else -1
    return figure * (1 + sign * standard.tolerance)


def suspects(rated: Sequence[RatedPair]) -> tuple[str, ...]:
    """The pods with which nearly nobody is well, the worst first."""
    left = list(rated)
    named: list[str] = []
    while True:
        every: Counter[str] = Counter()
        ill: Counter[str] = Counter()
        for pair in left:
            ends = {pair.outcome.client, pair.outcome.server}
            every.update(ends)
            ill.update(ends if pair.rating is not Rating.WELL else ())
        guilty = [
            (ill[pod] / every[pod], ill[pod], pod)
            for pod in sorted(every)
            if every[pod] >= _FEWEST_OF_A_POD and ill[pod] >= _NEARLY_ALL * every[pod]
        ]
        if not guilty or all(share == 1 for share in _shares(every, ill)):
            return tuple(named)
        worst = max(guilty, key=lambda entry: entry[:2])[2]
        named.append(worst)
        left = [p for p in left if worst not in (p.outcome.client, p.outcome.server)]


def _shares(every: Counter[str], ill: Counter[str]) -> list[float]:
    """By pod, how many of its pairs are not well."""
    return [ill[pod] / every[pod] for pod in every]
