"""The steps of an attach at which a driver is broken, and how it is broken there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Fault(StrEnum):
    """What happens to a driver."""

    NONE = "none"
    FROZEN = "frozen"  # no process of it runs for FROZEN_SECONDS
    KILLED = "killed"  # SIGKILL
    MEMORY = "memory"  # the kernel ends it, for it has more memory than its limit
    AWAY = "api-away"  # its node does not reach the API server for AWAY_SECONDS


BREAKING = (Fault.FROZEN, Fault.KILLED, Fault.MEMORY, Fault.AWAY)
FROZEN_SECONDS = 3
AWAY_SECONDS = 10
RESTARTS = (Fault.KILLED, Fault.MEMORY)  # a new driver starts

# Those of both ways, as stopping_agent.py has them, in their order; the middle ones are Steps of
# the plan in the kernel.
ATTACH = (
    "asked",
    "begun",
    "addressed",
    "planned",
    "MakeLink",
    "SetLink",
    "AddAddress",
    "made",
    "told",
    "complete",
)


@dataclass(frozen=True, slots=True)
class Way:
    """How pods ask for their NIC: on which node of the lab, through which steps."""

    name: str
    node: str
    steps: tuple[str, ...]

    def only(self, steps: Sequence[str]) -> Way:
        """The same with these of its steps; all when none is named."""
        return replace(self, steps=tuple(one for one in self.steps if not steps or one in steps))


CLAIMS = Way("claims", "node-1", ("prepare", "prepared", *ATTACH))
SHARES = Way("shares", "node-2", ("allocate", "allocated", *ATTACH, "start", "started"))
HOOK = Way("hook", "node-1", ("hook", "hooked"))


@dataclass(frozen=True, slots=True)
class Plan:
    """One wave: a fault at a step, and how many pods are on their way."""

    way: Way
    fault: Fault
    step: str
    pods: int


def plans(way: Way, faults: Sequence[Fault], pods: int) -> tuple[Plan, ...]:
    """All waves of a way, `pods` in all, as evenly as it goes; the first is without a fault.

    Each has a pod at least. A round has every step once, with another fault each time, so a run
    that is ended has something of everything.
    """
    cells: list[tuple[Fault, str]] = [(Fault.NONE, "-")]
    for turn in range(len(faults)):
        for number, step in enumerate(way.steps):
            cells.append((faults[(number + turn) % len(faults)], step))
    size, more = divmod(pods, len(cells))
    return tuple(
        Plan(way, fault, step, max(1, size + (number < more)))
        for number, (fault, step) in enumerate(cells)
    )
