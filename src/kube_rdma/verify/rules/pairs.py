"""Schedules measurements: who meets whom, what is repeated, and when a check is due.

    all    everybody with everybody, one rail at a time
    ring   each card with the next one of its rail and with the one before, all rails at once
    star   the first pod with each other one, all rails at once

In a ring a bad card is bad with both neighbours, and each neighbour is well with its other one. A
rail of an even number of cards needs two rounds for that at most, of an odd number three. The
client of a pair is the card before the other in the ring, so a pair has the same name in the next
run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from kube_rdma.model.verify import BandwidthHistory, PairedPod, Pairing, RatedPair, Rating

T = TypeVar("T")
Turn: TypeAlias = "list[tuple[PairedPod, PairedPod, int]]"  # client, server, rail


def rounds(pods: Sequence[T], *, both_ways: bool = False) -> list[list[tuple[T, T]]]:
    """Return rounds of pairs, client and server, in which any two pods meet once.

    With `both_ways` they meet once more with exchanged roles.
    """
    places: list[T | None] = [*pods] if len(pods) % 2 == 0 else [*pods, None]
    plan = []
    for number in range(len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        plan.append(
            [
                (near, far) if (number + index) % 2 == 0 else (far, near)
                for index, (near, far) in enumerate(facing)
                if near is not None and far is not None
            ]
        )
        places = [places[0], places[-1], *places[1:-1]]
    if both_ways:
        plan += [[(server, client) for client, server in pairs] for pairs in plan]
    return plan


def turns(pods: Sequence[PairedPod], *, both_ways: bool = False) -> Iterator[Turn]:
    """Yield the turns of all pairs: client, server and rail of measurements that run together."""
    for pairs in rounds(pods, both_ways=both_ways):
        shared = [(near, far, near.by_rail.keys() & far.by_rail.keys()) for near, far in pairs]
        for rail in sorted(set().union(*(rails for _, _, rails in shared))):
            yield [(near, far, rail) for near, far, rails in shared if rail in rails]


def measurements(pods: Sequence[PairedPod], *, both_ways: bool = False) -> int:
    """Return the number of measurements of all pairs, without listing them."""
    counts = Counter(rail for pod in pods for rail in pod.by_rail)
    total = sum(count * (count - 1) // 2 for count in counts.values())
    return 2 * total if both_ways else total


def turns_of(
    pairing: Pairing, pods: Sequence[PairedPod], *, both_ways: bool = False
) -> Iterable[Turn]:
    """Return the turns of measurements that run together; no device is twice in one turn."""
    if pairing is Pairing.ALL:
        return turns(pods, both_ways=both_ways)
    chosen = _ring(pods) if pairing is Pairing.RING else _star(pods)
    plan = [turn for wanted in chosen for turn in apart(wanted)]
    if both_ways:
        plan += [[(server, client, rail) for client, server, rail in turn] for turn in plan]
    return plan


def planned(pairing: Pairing, pods: Sequence[PairedPod], *, both_ways: bool) -> int:
    """Return the number of measurements that `turns_of` plans."""
    if pairing is Pairing.ALL:
        return measurements(pods, both_ways=both_ways)
    return sum(map(len, turns_of(pairing, pods, both_ways=both_ways)))


def apart(wanted: Turn) -> list[Turn]:
    """Spread the pairs of a turn over several turns, so that no card is in one twice.

    A pod may have one device on two rails, by two networks on one card, and pods of one node may
    have the same device, or functions of one card.
    """
    plan: list[Turn] = []
    busy: list[set[tuple[str, str]]] = []
    for client, server, rail in wanted:
        ends = {pod.card(rail) for pod in (client, server)}
        free = next((place for place, taken in enumerate(busy) if not taken & ends), len(plan))
        if free == len(plan):
            plan.append([])
            busy.append(set())
        plan[free].append((client, server, rail))
        busy[free] |= ends
    return plan


def _ring(pods: Sequence[PairedPod]) -> list[Turn]:
    members: defaultdict[int, list[PairedPod]] = defaultdict(list)
    for pod in pods:
        for rail in pod.by_rail:
            members[rail].append(pod)
    rounds: list[Turn] = [[], [], []]
    for rail, those in sorted(members.items()):
        for number, links in enumerate(_rounds(len(those))):
            rounds[number] += [(those[first], those[second], rail) for first, second in links]
    return rounds


def _rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of links in a ring of `count` members, each member once in a round at most."""
    if count < 2:
        return
    links = [(place, (place + 1) % count) for place in range(count if count > 2 else 1)]
    even = links if len(links) % 2 == 0 else links[:-1]
    yield from (part for part in (even[0::2], even[1::2], links[len(even) :]) if part)


def _star(pods: Sequence[PairedPod]) -> list[Turn]:
    centre, others = pods[:1], pods[1:]
    return [
        [(first, other, rail) for rail in sorted(first.by_rail.keys() & other.by_rail.keys())]
        for first in centre
        for other in others
    ]


# Retries: cards that were well with nobody, each measured against a good card if there is any.

RailCard: TypeAlias = "tuple[str, int]"  # a pod's title and a rail


def retries(rated: Sequence[RatedPair], pods: Sequence[PairedPod]) -> list[Turn]:
    """Return turns that measure suspect cards again, with good ones where their rails have any."""
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
    """Counts of good and bad measurements of each card, and the pods that it was measured with."""

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
        """Return the cards with bad measurements and no good one."""
        return [card for card in self._bad if not self._well[card]]

    def partner(self, title: str, rail: int) -> str | None:
        """Return a pod to measure a suspect card with again, on its rail; None without one.

        If the rail has good cards, only these count. The one chosen least often comes first.
        """
        card = title, rail
        if self._again[card]:
            return None  # it was the partner of another one
        new = [other for other in self._titles[rail] if other not in {title, *self._met[card]}]
        good = [other for other in new if self._well[other, rail]]
        if any(self._well[other, rail] for other in self._titles[rail]):
            new = good
        return min(new, key=lambda other: self._rank((other, rail)), default=None)

    def measured_again(self, suspect: RailCard, partner: RailCard) -> None:
        """Record that two cards are to be measured once more, with each other."""
        self._meet(suspect, partner)
        self._again.update((suspect, partner))

    def _rank(self, card: RailCard) -> tuple[int, int]:
        return self._again[card], self._bad[card]

    def _meet(self, first: RailCard, second: RailCard) -> None:
        self._met[first].add(second[0])
        self._met[second].add(first[0])


# Times of BandwidthChecks.

AGAIN = timedelta(minutes=5)  # after a run that something hindered: a missing right, no pod


def due(
    generation: int, every: int | None, history: BandwidthHistory | None, now: datetime
) -> datetime | None:
    """Return the time of the next run, which may have passed; None when there is none.

    A changed check is due at once, and so is one whose run was interrupted.
    """
    if history is None or history.generation != generation or history.ended is None:
        return now
    if history.refused:
        return None
    times = []
    try:
        if history.hindered:
            times.append(history.ended + AGAIN)
        if every is not None:
            times.append(max(history.ended, history.began + timedelta(seconds=every)))
    except OverflowError:  # no controller wrote such a time
        return now
    return min(times, default=None)
