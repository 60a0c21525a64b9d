"""Rates pairs, names whose fault bad ones are, and compares a run with an earlier one.

One bad card of a node with eight is in an eighth of the node's pairs, and in all of the card's own
pairs. So pairs are counted by all possible causes: a rail, a node, a card. The widest cause
whose own pairs are nearly all bad is named. Its pairs are taken out before the next one is looked
for; in the end single pairs are left.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from statistics import median
from typing import TypeAlias

from kube_base.frozen import replace
from kube_rdma.model.verify import (
    RECENT,
    LastMeasurement,
    PairKey,
    PairOutcome,
    PairStandard,
    RatedPair,
    Rating,
    RunComparison,
    Suspect,
    SuspectKind,
    Suspects,
)

NEARLY_ALL = 0.8  # of the pairs of a cause, and of the cards of a rail
_FEWEST = 3  # pairs of which a median says something
_FEWEST_PEERS = 2  # of one pair nobody can tell which end it is
_FEWEST_CARDS = 3  # of a rail

Cause: TypeAlias = "tuple[str, ...]"  # a node, or a node and its device
Pairs: TypeAlias = "list[RatedPair]"
Causes: TypeAlias = Callable[[RatedPair], tuple[Cause, ...]]  # of a pair


def suspected(runs: Iterable[LastMeasurement], now: datetime) -> Mapping[str, Suspects]:
    """Return what recent measurements suspect, by their namespaces."""
    found = defaultdict[str, dict[frozenset[str], str]](dict)
    for one in runs:
        if now - one.at < RECENT:
            found[one.namespace].update(one.suspects)
    return found


def rate(
    outcomes: Sequence[PairOutcome],
    standard: PairStandard,
    before: Mapping[PairKey, float] | None = None,
) -> tuple[RatedPair, ...]:
    """Rate each outcome; `before` has the figures of an earlier run of the same kind."""
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
    """Return what identifies a pair across runs: its client, server and rail."""
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
        if limit is not None and (row.figure > limit if standard.latency else row.figure < limit):
            word = "more than" if standard.latency else "less than"
            why = f"{row.figure:.2f} {unit} is {word} the {limit:.2f} {what}"
            return RatedPair(outcome, Rating.SLOW, why, row.figure, limit)
    return RatedPair(outcome, Rating.WELL, "", row.figure)


def _of_line(outcome: PairOutcome, standard: PairStandard) -> float | None:
    if standard.latency or outcome.line_gbps is None:
        return None
    return outcome.line_gbps * standard.line_share


def _around(figure: float | None, standard: PairStandard) -> float | None:
    """Return the worst figure that the standard tolerates beside this one; None for None."""
    if figure is None:
        return None
    sign = 1 if standard.latency else -1
    return figure * (1 + sign * standard.tolerance)


# Whose fault bad pairs are.


def suspects(rated: Sequence[RatedPair]) -> tuple[Suspect, ...]:
    """Return suspects: cards, nodes, rails, then pairs; each kind by number of bad pairs.

    Where all pairs are bad there are none: the cause is one that all share.
    """
    if all(_is_bad(pair) for pair in rated):
        return ()  # what all share, or what was asked for
    named: list[Suspect] = []
    rails, left = _rails(rated)
    named += [_suspect(SuspectKind.RAIL, pairs, rail=rail) for rail, pairs in rails]
    bad, _ = _nearly_all_bad((card, pair) for pair in left for card in _cards(pair))
    nodes, left = _guilty(
        left,
        lambda pair: tuple((node,) for node in _titles(pair)),
        lambda node, pairs: _is_wide(node[0], pairs, bad),
    )
    named += [_suspect(SuspectKind.NODE, pairs, node=cause[0]) for cause, pairs in nodes]
    cards, left = _guilty(left, _cards, lambda *_: True)
    named += [
        _suspect(SuspectKind.CARD, pairs, node=node, device=device)
        for (node, device), pairs in cards
    ]
    named += _between(left)
    kinds = list(SuspectKind)
    return tuple(sorted(named, key=lambda each: (kinds.index(each.kind), -each.pairs)))


def _is_bad(pair: RatedPair) -> bool:
    return pair.rating is not Rating.WELL


def _titles(pair: RatedPair) -> tuple[str, str]:
    return pair.outcome.client, pair.outcome.server


def _cards(pair: RatedPair) -> tuple[Cause, Cause]:
    outcome = pair.outcome
    return (outcome.client, outcome.devices[0]), (outcome.server, outcome.devices[1])


def _rails(rated: Sequence[RatedPair]) -> tuple[list[tuple[int, Pairs]], Pairs]:
    """Return rails on which nearly all cards are bad with nearly all peers, and the other pairs.

    If all rails are bad the cause is no leaf switch, so none is returned.
    """
    by_rail: defaultdict[int, Pairs] = defaultdict(list)
    for pair in rated:
        by_rail[pair.outcome.rail].append(pair)
    bad = {rail for rail, pairs in by_rail.items() if _is_bad_rail(pairs)}
    if len(bad) == len(by_rail):
        bad = set()
    rest = [pair for pair in rated if pair.outcome.rail not in bad]
    return [(rail, by_rail[rail]) for rail in sorted(bad)], rest


def _is_bad_rail(pairs: Pairs) -> bool:
    guilty, count = _nearly_all_bad((card, pair) for pair in pairs for card in _cards(pair))
    return count >= _FEWEST_CARDS and len(guilty) >= NEARLY_ALL * count


def _is_wide(node: str, pairs: Pairs, bad: Collection[Hashable]) -> bool:
    """Decide whether nearly all cards of a node are bad, and more than one.

    Pairs alone do not show that: of few pairs one bad card may have nearly all. Pairs
    with another node's card in `bad` count only for a rail without other pairs. A good card may be
    measured again with many bad ones.
    """
    judging = [
        pair
        for pair in pairs
        if all(name == node or (name, device) not in bad for name, device in _cards(pair))
    ]
    rails = {pair.outcome.rail for pair in judging}
    judging += [pair for pair in pairs if pair.outcome.rail not in rails]
    guilty, count = _nearly_all_bad((pair.outcome.rail, pair) for pair in judging)
    return len(guilty) > 1 and len(guilty) >= NEARLY_ALL * count


def _nearly_all_bad(parts: Iterable[tuple[Hashable, RatedPair]]) -> tuple[set[Hashable], int]:
    """Return the parts whose pairs are nearly all bad, and the number of all parts."""
    every: Counter[Hashable] = Counter()
    bad: Counter[Hashable] = Counter()
    for part, pair in parts:
        every[part] += 1
        bad[part] += _is_bad(pair)
    return {part for part, count in every.items() if bad[part] >= NEARLY_ALL * count}, len(every)


def _guilty(
    rated: Sequence[RatedPair], causes: Causes, fits: Callable[[Cause, Pairs], bool]
) -> tuple[list[tuple[Cause, Pairs]], Pairs]:
    """Return causes whose pairs are nearly all bad, worst first, and pairs that none explains.

    Each pair is taken out once, which changes only the counts of its two ends.
    """
    tally = Tally(rated, causes)
    named: list[tuple[Cause, Pairs]] = []
    while (worst := tally.worst()) is not None:
        pairs = tally.pairs(worst)
        if tally.is_proven(worst) and fits(worst, pairs):
            named.append((worst, pairs))
            tally.take_out(worst)
    return named, tally.left()


def _peers(cause: Cause, pairs: Pairs) -> set[str]:
    return {title for pair in pairs for title in _titles(pair)} - {cause[0]}


class Tally:
    """Counts of all pairs and of bad pairs of each cause; explained pairs are taken out."""

    def __init__(self, rated: Sequence[RatedPair], causes: Causes) -> None:
        self._rated = rated
        self._causes = [causes(pair) for pair in rated]
        self._unexplained = [True] * len(rated)
        self._of: defaultdict[Cause, list[int]] = defaultdict(list)
        for place, ends in enumerate(self._causes):
            for cause in ends:
                self._of[cause].append(place)
        self._every = Counter({cause: len(places) for cause, places in self._of.items()})
        self._bad = Counter(
            cause
            for ends, pair in zip(self._causes, rated, strict=True)
            if _is_bad(pair)
            for cause in ends
        )
        self._mixed = sum(self._bad[cause] < count for cause, count in self._every.items())
        self.pushes = 0  # onto the heap: what the search costs beside the counting
        self._heap = [self._entry(cause) for cause in self._every]
        heapq.heapify(self._heap)

    def worst(self) -> Cause | None:
        """Return the next cause with nearly all pairs bad.

        Return None if there is none, or if no good pair is left.
        """
        while self._heap and self._mixed:
            entry = heapq.heappop(self._heap)
            cause, count = entry[2], self._every[entry[2]]
            if count and entry == self._entry(cause):
                return cause if self._bad[cause] >= NEARLY_ALL * count else None
        return None

    def pairs(self, cause: Cause) -> Pairs:
        """Return the pairs of a cause that have not been taken out."""
        return [self._rated[place] for place in self._of[cause] if self._unexplained[place]]

    def is_proven(self, cause: Cause) -> bool:
        """Decide whether a cause has two peers left, or one that is well with other peers.

        One such peer suffices for a card that is in the ring beside two bad ones, which explain its
        other pairs. The cause must have had two peers in all.
        """
        if len(_peers(cause, self.pairs(cause))) >= _FEWEST_PEERS:
            return True
        others = {
            end
            for place in self._of[cause]
            if self._unexplained[place]
            for end in self._causes[place]
            if end != cause
        }
        every = [self._rated[place] for place in self._of[cause]]
        are_well = all(self._bad[end] < self._every[end] for end in others)
        return are_well and len(_peers(cause, every)) >= _FEWEST_PEERS

    def take_out(self, cause: Cause) -> None:
        """Take out the pairs of a cause, which also lowers the counts of their other ends."""
        changed: set[Cause] = set()
        for place in self._of[cause]:
            if not self._unexplained[place]:
                continue
            self._unexplained[place] = False
            for end in self._causes[place]:
                was_mixed = self._bad[end] < self._every[end]
                self._every[end] -= 1
                self._bad[end] -= _is_bad(self._rated[place])
                self._mixed += (self._bad[end] < self._every[end]) - was_mixed
                changed.add(end)
        for end in changed - {cause}:
            self.pushes += 1
            heapq.heappush(self._heap, self._entry(end))

    def left(self) -> Pairs:
        """Return the pairs that no cause has explained."""
        return [
            pair for pair, is_left in zip(self._rated, self._unexplained, strict=True) if is_left
        ]

    def _entry(self, cause: Cause) -> tuple[float, int, Cause]:
        """Return a cause's key in the heap: by share of bad pairs, then by their number."""
        bad, count = self._bad[cause], self._every[cause]
        return -bad / max(count, 1), -bad, cause


def _between(left: Pairs) -> Iterator[Suspect]:
    """Yield a suspect for every two pods with bad pairs that no other cause explains."""

    def two(pair: RatedPair) -> list[str]:
        return sorted(_titles(pair))

    bad = {tuple(two(pair)) for pair in left if _is_bad(pair)}
    both = sorted((pair for pair in left if tuple(two(pair)) in bad), key=two)
    for _, group in groupby(both, two):
        pairs = list(group)
        first = next(pair for pair in pairs if _is_bad(pair)).outcome
        rails = {pair.outcome.rail for pair in pairs if _is_bad(pair)}
        device, peer_device = first.devices if len(rails) == 1 else (None, None)
        pairs = [pair for pair in pairs if device is None or pair.outcome.rail in rails]
        yield replace(
            _suspect(SuspectKind.PAIR, pairs, node=first.client, device=device),
            peer=first.server,
            peer_device=peer_device,
        )


def _suspect(
    kind: SuspectKind,
    pairs: Pairs,
    *,
    node: str | None = None,
    device: str | None = None,
    rail: int | None = None,
) -> Suspect:
    """Return a suspect that summarizes its bad pairs; `pairs` are all pairs of the cause."""
    bad = [pair for pair in pairs if _is_bad(pair)]
    figures = [pair.figure for pair in bad if pair.figure is not None]
    dues = [pair.due for pair in bad if pair.due is not None]
    failures = Counter(pair.why for pair in bad if pair.rating is Rating.FAILED or len(bad) == 1)
    slow = len(figures) * 2 > len(bad)
    names = Counter(name for pair in bad for name in pair.outcome.devices)
    return Suspect(
        kind,
        node=node,
        device=names.most_common(1)[0][0] if kind is SuspectKind.RAIL else device,
        rail=rail,
        pairs=len(bad),
        of=len(pairs),
        median=median(figures) if slow else None,
        due=median(dues) if slow and dues else None,
        why=failures.most_common(1)[0][0] if not slow or len(bad) == 1 else None,
    )


def comparison(rated: Sequence[RatedPair], before: Mapping[PairKey, float]) -> RunComparison | None:
    """Return the medians of two runs over their common pairs; None without earlier figures."""
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
