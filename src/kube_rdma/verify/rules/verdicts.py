"""What the figure of a pair is worth: it is well, slow, or failed.

A pair is held against what was asked, against the line rate, against the others of its rail and
against an earlier run. Whose fault it is, all pairs say together (suspects).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from kube_rdma.model.verify.bandwidth import PairKey, PairOutcome, PairStandard, RatedPair, Rating

_FEWEST = 3  # pairs of which a median says something


def rate(
    outcomes: Sequence[PairOutcome],
    standard: PairStandard,
    before: Mapping[PairKey, float] | None = None,
) -> tuple[RatedPair, ...]:
    """Each outcome with its rating; `before` has figures of an earlier run of the same kind."""
    figures: dict[int, list[float]] = defaultdict(list)
    for outcome in outcomes:
        row = outcome.standing(latency=standard.latency)
        if row is not None and math.isfinite(row.figure):
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
    if row is None or not math.isfinite(row.figure):
        return RatedPair(outcome, Rating.FAILED, outcome.failure or "its figure is not a number")
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
            return RatedPair(outcome, Rating.SLOW, why, row.figure, limit)
    return RatedPair(outcome, Rating.WELL, "", row.figure)


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
