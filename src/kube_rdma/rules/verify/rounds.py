"""Who measures with whom and when: everybody with everybody, nobody with two at once.

N pods need N-1 rounds of N/2 pairs, N rounds if N is odd, for one rests in each: the circle method
of tournaments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


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
