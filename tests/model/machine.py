"""A node of the world: a disk that survives, an agent that does not, and the tasks under way.

A task is one generator of ip_serve or ip_patrol; each turn performs one act of it, or delivers the
answer of an act that was performed earlier. A crash drops all tasks where they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kube_base.errors import KubeError
from kube_rdma.model.ipam import Block, Booking, BootId, Cell, ContainerId, JournalId, NodeName
from kube_rdma.rules.ipam.effects import Act, IpamAgentState, Talk

NOTHING = object()


@dataclass
class Task:
    """A generator, the act it waits for, and what to do with its result or error."""

    what: str
    talk: Talk[Any]
    done: Callable[[Any], None]
    act: Act | None = None
    answer: Any = NOTHING  # performed, not yet delivered
    wakes: float = 0.0
    over: bool = False

    def begin(self) -> None:
        """Run up to the first act."""
        self._go(lambda: next(self.talk))

    def send(self, answer: Any) -> None:
        """Deliver the result of the act."""
        self._go(lambda: self.talk.send(answer))

    def throw(self, error: KubeError) -> None:
        """Deliver that the act could not be done."""
        self._go(lambda: self.talk.throw(error))

    def _go(self, step: Callable[[], Act]) -> None:
        self.answer = NOTHING
        self.wakes = 0.0
        try:
            self.act = step()
        except StopIteration as stop:
            self.over = True
            self.done(stop.value)
        except KubeError as error:
            self.over = True
            self.done(error)


@dataclass
class Machine:
    """One node: what its disk holds, and its agent, if that runs."""

    name: NodeName
    journal: JournalId
    boot: BootId
    offset: float  # of its clock, which begins anew with each boot
    disk: dict[ContainerId, Booking] = field(default_factory=dict)
    cache: dict[ContainerId, Booking | None] = field(default_factory=dict)  # not yet on the disk
    up: bool = True
    cut_off: bool = False
    serving: bool = True  # its Node object exists, without the out-of-service taint
    besieged: float = 0.0  # cut off at least until then
    desk: IpamAgentState | None = None
    tasks: list[Task] = field(default_factory=list)
    entered: bool = False
    next_renew: float = 0.0
    next_tick: float = 0.0
    shown: dict[Cell, Block] = field(default_factory=dict)  # what its watch showed
    heard: int = 0  # how much of the store's log
    era: int = 0  # of the store that it watches
    told: int = 0  # the version up to which its watch told all
    high: int = 0  # the highest version that it saw
    unaware: bool = False  # the store or the machine went back, and its agent does not know
    reconnects: float = 0.0  # when its watch hears of that, unless it is cut off
    rewound: bool = False  # it was restored with its memory, and its agent does not know

    def crash(self) -> None:
        """The agent is gone: what it had in memory, too."""
        self.desk = None
        self.tasks = []
        self.cache = {}
        self.entered = False
        self.unaware = self.rewound = False

    def running(self, what: str) -> bool:
        """A task of this name is under way."""
        return any(task.what == what for task in self.tasks)
