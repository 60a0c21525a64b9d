"""Keeps one fact about this node at the API server as the agent's last look found it.

The loop of role plugin hands every keeper each state of the Node object (`seen`) and each look
(`look`). The subclass says what follows from a look and when the cluster says something else, and
writes it. A keeper reconciles a level: one write where the two differ, none where they agree. So a
change that another client made is set right too.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from math import inf
from typing import ClassVar, Generic, TypeVar

import structlog

from kube_base.backoff import full_jitter, has_happened
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_client.errors import NotInstalled
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.reports.rules.node_report import AgentLook

REFUSED_SECONDS = 600.0  # an old ClusterRole lacks the right: every node of a cluster at once
MISSING_SECONDS = 120.0  # the kind may be installed later, or never
AGAIN_SECONDS = 30.0  # what worked before: a role is bound anew, a definition is installed again

T = TypeVar("T")
Watched = Callable[[], AsyncGenerator[object, None]]

log = structlog.get_logger()


def pause(error: KubeError, failures: int) -> float:
    """Return the seconds until the next write, after an error and `failures` earlier ones."""
    if isinstance(error, Refused):
        return spread(MISSING_SECONDS if isinstance(error, NotInstalled) else REFUSED_SECONDS)
    return full_jitter(failures)


def spread(longest: float) -> float:
    """Return a random time between half of `longest` and all of it, to spread nodes' requests."""
    return random.uniform(longest / 2, longest)  # noqa: S311


class WritePace(Frozen):
    """The seconds that a NodeKeeper waits before, between and after its writes."""

    quiet: float = 0.0  # ends a burst of changes
    longest: float = 0.0  # ends an endless burst
    spacing: float = 0.0  # between two writes at least
    after: Callable[[KubeError, int], float] = pause  # an error, and so many before it
    again: float = AGAIN_SECONDS  # at most after a refusal of what worked before

    def until_next(self, error: KubeError, failures: int = 0, *, worked: bool) -> float:
        """Return the seconds until the next write; `worked` says whether one succeeded before."""
        soon = spread(self.again) if worked and isinstance(error, Refused) else inf
        return min(self.after(error, failures), soon)


class NodeKeeper(ABC, Generic[T]):
    """Base of the agent's parts that each keep a value about their node written; T is its type.

    The value may be the Node's labels, its NodeReport or its ResourceSlices.
    """

    part: ClassVar[str]
    """The name of this part of the agent in logs and metrics."""
    failure: ClassVar[str]
    """The log event of a write that failed."""

    def __init__(self, pace: WritePace) -> None:
        self._pace = pace
        self._changes = Debounce(pace.quiet, pace.longest)
        self._node: NodeState | None = None
        self._last: T  # what was wanted last; unset until the first look makes it certain
        self._certain = False  # `_last` is about all that the node is to offer
        self._notices = Notices()
        self._hope = asyncio.Event()  # the next try may succeed
        self._worked = False  # a write, so the right was there
        self._absent = False  # nobody serves what is kept, or the right is missing

    def seen(self, node: NodeState) -> None:
        """Store the latest version of the Node object."""
        self._node = node
        self._changes.touch()

    def look(self, look: AgentLook) -> None:
        """Store the value that the node should have after this look of the agent."""
        self.keep(self._wanted(look))

    def keep(self, wanted: T) -> None:
        """Store the value that the node should have."""
        if not self._certain or wanted != self._last:
            self._last, self._certain = wanted, True
            self._changes.touch()

    def doubted(self) -> None:
        """Stop writing until the agent's next look, because the wanted value is about to change."""
        self._certain = False

    async def run(self) -> None:
        """Write whenever the node lacks the wanted value, until cancelled."""
        failures = 0
        while True:
            await self._changes.wait()
            node = self._node
            if node is None or not self._certain or self._agrees(node, self._last):
                continue
            try:
                shown = await self._write(node, self._last)
            except KubeError as error:
                self._tell(node.name, error)
                await self._rest(self._pace.until_next(error, failures, worked=self._worked))
                failures += 1
                self._changes.touch()
                continue
            failures, self._worked = 0, True
            self._notices.over(self.part)
            if self._node is node:  # else the watch has shown a newer one
                self._node = shown
            await asyncio.sleep(self._pace.spacing)

    async def _follow(self, node: str, watch: Watched, hear: Callable[[object], None]) -> None:
        """Pass on the events of a watch; restart it after the kind or the right was missing."""
        while True:
            try:
                async with aclosing(watch()) as events:
                    async for event in events:
                        hear(event)
            except Refused as error:
                self._absent = True
                self._tell(node, error)
                await asyncio.sleep(self._pace.until_next(error, worked=self._worked))

    async def _rest(self, seconds: float) -> None:
        """Wait these seconds before the next try, or less if an event makes success likely."""
        self._hope.clear()
        await has_happened(self._hope, seconds)

    def _tell(self, node: str, error: KubeError) -> None:
        """Log why a write or a watch failed, once for as long as the reason stays the same."""
        self._notices.warn(log, self.failure, self.part, str(error), node=node)

    @abstractmethod
    def _wanted(self, look: AgentLook) -> T:
        """Return the value that the node should have after a look of the agent."""

    @abstractmethod
    def _agrees(self, node: NodeState, wanted: T) -> bool:
        """Decide whether the wanted value is written already."""

    @abstractmethod
    async def _write(self, node: NodeState, wanted: T) -> NodeState | None:
        """Write the wanted value; return the changed node, or None if the watch will show it."""
