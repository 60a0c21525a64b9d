"""Fewer measurements than all: a ring names a bad card in two or three rounds, a star tries one.

    ring   each card with the next one of its rail and with the one before, all rails at once
    star   the first pod with each other one, all rails at once

In a ring a bad card is bad with both neighbours, and each of them is well with its other one. A
rail of an even number of cards needs two rounds for that, of an odd number three. The client of a
pair is the one that stands first in the ring, so a pair is called the same in the next run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from kube_rdma.model.verify.bandwidth import PairedPod, Pairing
from kube_rdma.verify.rules.rounds import Turn, measurements, turns


def turns_of(
    pairing: Pairing, pods: Sequence[PairedPod], *, both_ways: bool = False
) -> Iterable[Turn]:
    """What is measured at once, turn by turn; no device is in a turn twice."""
    if pairing is Pairing.ALL:
        return turns(pods, both_ways=both_ways)
    chosen = _ring(pods) if pairing is Pairing.RING else _star(pods)
    plan = [turn for wanted in chosen for turn in apart(wanted)]
    if both_ways:
        plan += [[(server, client, rail) for client, server, rail in turn] for turn in plan]
    return plan


def planned(pairing: Pairing, pods: Sequence[PairedPod], *, both_ways: bool = False) -> int:
    """How many measurements these turns have."""
    if pairing is Pairing.ALL:
        return measurements(pods, both_ways=both_ways)
    return sum(map(len, turns_of(pairing, pods, both_ways=both_ways)))


def apart(wanted: Turn) -> list[Turn]:
    """The same in as many turns as it needs so that no device is in a turn twice.

    A pod may have a device on two rails: two networks on one card.
    """
    plan: list[Turn] = []
    busy: list[set[tuple[str, str]]] = []
    for client, server, rail in wanted:
        ends = {(pod.title, pod.by_rail[rail].name) for pod in (client, server)}
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
    """The links of a ring in rounds in which each member has one at most."""
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
