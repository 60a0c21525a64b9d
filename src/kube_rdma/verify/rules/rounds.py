"""Who measures with whom and when: everybody with everybody, nobody with two at once.

N pods need N-1 rounds of N/2 pairs, N rounds if N is odd, for one rests in each: the circle method
of tournaments. A turn is the part of a round that is done without a pause: one rail of its pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias, TypeVar

from kube_rdma.model.verify.bandwidth import PairedPod

T = TypeVar("T")
Turn: TypeAlias = "list[tuple[PairedPod, PairedPod, int]]"  # client, server, rail


def rounds(pods: Sequence[T], *, both_ways: bool = False) -> list[list[tuple[T, T]]]:
    """Rounds of pairs, client and server, in which every two meet once.

    With `both_ways` once more with their parts exchanged.
    """
    seats: list[T | None] = [*pods] if len(pods) % 2 == 0 else [*pods, None]
    plan = []
    for number in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        plan.append(
            [
                (near, far) if (number + place) % 2 == 0 else (far, near)
                for place, (near, far) in enumerate(facing)
                if near is not None and far is not None
            ]
        )
        seats = [seats[0], seats[-1], *seats[1:-1]]
    if both_ways:
        plan += [[(server, client) for client, server in pairs] for pairs in plan]
    return plan


def turns(pods: Sequence[PairedPod], *, both_ways: bool = False) -> Iterator[Turn]:
    """What is measured at once: client, server and rail of each pair of a round."""
    for pairs in rounds(pods, both_ways=both_ways):
        shared = [(near, far, near.by_rail.keys() & far.by_rail.keys()) for near, far in pairs]
        for rail in sorted(set().union(*(rails for _, _, rails in shared))):
            yield [(near, far, rail) for near, far, rails in shared if rail in rails]


def measurements(pods: Sequence[PairedPod], *, both_ways: bool = False) -> int:
    """How many all turns have, without making them: every two pods of a rail."""
    counts = Counter(rail for pod in pods for rail in pod.by_rail)
    total = sum(count * (count - 1) // 2 for count in counts.values())
    return 2 * total if both_ways else total
