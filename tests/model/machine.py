"""A node of the world: a disk that survives, an agent that does not, and the tasks under way.

A task runs one operation of ipam/rules/agent or ipam/rules/reclaim; each turn performs one effect
of it, or delivers the answer of an effect that was performed earlier. A crash drops all tasks where
they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kube_base.errors import KubeError
from kube_base.frozen import replace
from kube_rdma.ipam.rules.effects import Effect, Effects, IpamAgentState
from kube_rdma.model import ipam

NOTHING = object()


@dataclass
class Task:
    """An operation, the effect it waits for, and what to do with its result or error."""

    what: str
    operation: Effects[Any]
    done: Callable[[Any], None]
    effect: Effect | None = None
    answer: Any = NOTHING  # performed, not yet delivered
    wakes: float = 0.0
    over: bool = False

    def begin(self) -> None:
        """Run up to the first effect."""
        self._go(lambda: next(self.operation))

    def send(self, answer: Any) -> None:
        """Deliver the result of the effect."""
        self._go(lambda: self.operation.send(answer))

    def throw(self, error: KubeError) -> None:
        """Deliver that the effect failed."""
        self._go(lambda: self.operation.throw(error))

    def _go(self, step: Callable[[], Effect]) -> None:
        self.answer = NOTHING
        self.wakes = 0.0
        try:
            self.effect = step()
        except StopIteration as stop:
            self.over = True
            self.done(stop.value)
        except KubeError as error:
            self.over = True
            self.done(error)


@dataclass
class Machine:
    """One node: what its disk holds, and its agent, if that runs."""

    name: ipam.NodeName
    journal: ipam.JournalId
    boot: ipam.BootId
    offset: float  # of its clock, which begins again with each boot
    disk: dict[ipam.ContainerId, ipam.AllocationRecord] = field(default_factory=dict)
    cache: dict[ipam.ContainerId, ipam.AllocationRecord | None] = field(
        default_factory=dict
    )  # not yet on the disk
    up: bool = True
    cut_off: bool = False
    serving: bool = True  # its Node object exists, without the out-of-service taint
    besieged: float = 0.0  # cut off at least until then
    agent: IpamAgentState | None = None
    tasks: list[Task] = field(default_factory=list)
    ready: bool = False
    next_renew: float = 0.0
    next_tick: float = 0.0
    next_news: float = 0.0
    is_old: bool = False  # an earlier release: it sees all blocks, and writes no label
    renewed: int = 0  # the store's era in which it last renewed its lease
    reported: int = 0  # the latest status of pools that it saw
    shown: dict[ipam.BlockKey, ipam.Block] = field(default_factory=dict)  # what its watch showed
    heard: int = 0  # how much of the store's log
    era: int = 0  # of the store that it watches
    shown_version: int = 0  # the version up to which its watch showed everything
    high: int = 0  # the highest version that it saw
    unaware: bool = False  # the store or the machine went back, and its agent does not know
    reconnects: float = 0.0  # when its watch hears of that, unless it is cut off
    rewound: bool = False  # it was restored with its memory, and its agent does not know

    def read(self, block: ipam.Block | None) -> ipam.Block | None:
        """A block as its agent reads it: an earlier release looks at no label."""
        return replace(block, is_labelled=True) if block and self.is_old else block

    def crash(self) -> None:
        """The agent is gone: what it had in memory, too."""
        self.agent = None
        self.tasks = []
        self.cache = {}
        self.ready, self.reported = False, 0
        self.unaware = self.rewound = False

    def running(self, what: str) -> bool:
        """A task of this name is under way."""
        return any(task.what == what for task in self.tasks)
