"""One measurement more for each card that was well with nobody: against a card that is well.

Behind a ring or a star (verify/rules/neighbours), in which a card has one or two measurements. Of
two bad cards beside each other both are bad with whoever they met; a card between two bad ones is
bad with both of them too. What either has with a card that is well tells them apart. Where a rail
has no such card, two that were well with nobody are measured with each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from kube_rdma.model.verify.bandwidth import PairedPod, RatedPair, Rating
from kube_rdma.verify.rules.neighbours import apart
from kube_rdma.verify.rules.rounds import Turn

RailCard: TypeAlias = "tuple[str, int]"  # a pod's title and a rail


def retries(rated: Sequence[RatedPair], pods: Sequence[PairedPod]) -> list[Turn]:
    """What is measured once more, and with whom, in as few turns as may be."""
    results = _CardTally(rated)
    by_title = {pod.title: pod for pod in pods}
    wanted: Turn = []
    for title, rail in results.suspects():
        partner = results.partner(title, rail)
        if partner is not None:
            results.measured_again((title, rail), (partner, rail))
            wanted.append((by_title[title], by_title[partner], rail))
    return apart(wanted)


class _CardTally:
    """How each card did, and with whom."""

    def __init__(self, rated: Sequence[RatedPair]) -> None:
        self._well: Counter[RailCard] = Counter()
        self._bad: Counter[RailCard] = Counter()
        self._met: defaultdict[RailCard, set[str]] = defaultdict(set)
        self._again: Counter[RailCard] = Counter()  # measurements that a card is chosen for
        self._titles: defaultdict[int, dict[str, None]] = defaultdict(dict)  # of a rail, in order
        for pair in rated:
            outcome = pair.outcome
            counts = self._well if pair.rating is Rating.WELL else self._bad
            ends = (outcome.client, outcome.rail), (outcome.server, outcome.rail)
            counts.update(ends)
            self._meet(*ends)
            self._titles[outcome.rail].update({title: None for title, _ in ends})

    def suspects(self) -> list[RailCard]:
        """Cards that are bad with all whom they met."""
        return [card for card in self._bad if not self._well[card]]

    def partner(self, title: str, rail: int) -> str | None:
        """A card that is well, mostly with all, and chosen least often; else another suspect."""
        card = title, rail
        if self._again[card]:
            return None  # it was the partner of another one
        new = [other for other in self._titles[rail] if other not in {title, *self._met[card]}]
        good = [other for other in new if self._well[other, rail]]
        if any(self._well[other, rail] for other in self._titles[rail]):
            new = good
        return min(new, key=lambda other: self._rank((other, rail)), default=None)

    def measured_again(self, suspect: RailCard, partner: RailCard) -> None:
        """The two have a measurement more."""
        self._meet(suspect, partner)
        self._again.update((suspect, partner))

    def _rank(self, card: RailCard) -> tuple[int, int]:
        return self._again[card], self._bad[card]

    def _meet(self, first: RailCard, second: RailCard) -> None:
        self._met[first].add(second[0])
        self._met[second].add(first[0])
