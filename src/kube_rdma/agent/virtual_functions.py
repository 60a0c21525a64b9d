"""Gives cards the virtual functions that the policy wishes for, and says why not.

Beside agent/loop, which hands in every look at the node;
pools/rules/functions says what follows, adapters/kernel/sriov/functions does it. Level-based:
functions that a reboot or a person took away are made again because they are not there. Functions
that are to go are out of their pools for a while before, so that whoever got one at the last moment
is seen as its holder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma.adapters.bulkhead import contained
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent.node.node_events import NodeEvent, NodeEvents
from kube_rdma.lib.records import Records
from kube_rdma.model.card import CardId, Use
from kube_rdma.model.device import PciAddress
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import FunctionsPlan, FunctionsSpec, MadeFunctions, Pool, SetFunctions
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.functions import held_functions, in_question, plan_functions

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# Longer than an Allocate takes to show in the kubelet's list of holders
# (pools/kubelet_view.py).
DRAIN_SECONDS = 2.0
POD_SECONDS = 10.0  # the end of a pod is announced by nobody
RETRY_SECONDS = 30.0  # after an act that failed

log = structlog.get_logger()


class Sources(Frozen):
    """What it works with: `make` blocks, and raises KubeError; `boot` is the kernel's boot_id.

    `journal` opens the record of cards whose functions the agent answers for, and raises
    KubeError; None: it is forgotten with the process. `uses` tells what these interfaces are
    used for, blocks and raises Unavailable.
    """

    make: Callable[[SetFunctions], None]
    journal: Callable[[], Journal[MadeFunctions]] | None = None
    boot: str = ""
    uses: Callable[[Collection[str]], Mapping[str, Use]] = lambda _: {}


class VirtualFunctions:
    """One per agent; `tasks` runs the acts and `changed` is called after them."""

    def __init__(
        self,
        sources: Sources,
        tasks: asyncio.TaskGroup,
        node: NodeEvents,
        changed: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._tasks = tasks
        self._node = node
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._records: Records[MadeFunctions] | None = None
        self._ours: set[PciAddress] | None = None  # None: not read yet
        self._begun: set[PciAddress] = set()  # by an earlier life, that may not have ended it
        self._leaving: dict[SetFunctions, float] = {}  # since when
        self._gone_soon: frozenset[CardId] = frozenset()  # functions that are to go
        self._failed: dict[SetFunctions, float] = {}  # when to try again
        self._notices = Notices()  # by physical function, and of all
        self.plan = FunctionsPlan()  # of the last look at which nothing was under way

    async def look(
        self,
        wishes: Sequence[FunctionsSpec],
        survey: Survey,
        holdings: Sequence[Holding] | None,
        pools: Mapping[str, Pool],
    ) -> float | None:
        """Begin what can be done now; the seconds after which to look again in any case."""
        if self.busy:
            return None  # its end is a change
        if self._ours is None and wishes:
            self._ours = await self._recalled()
        held = None if holdings is None else held_functions(holdings, pools)
        uses = await self._uses(in_question(wishes, survey))
        plan = plan_functions(wishes, survey, held, self._ours or (), uses)
        self.plan = plan
        self._tell(plan)
        now = asyncio.get_running_loop().time()
        self._leaving = {act: self._leaving.get(act, now) for act in plan.acts if act.now}
        self._gone_soon = frozenset(map(CardId, _functions_of(survey, self._leaving)))
        self._failed = {act: at for act, at in self._failed.items() if act in plan.acts}
        unended = _ends(survey, self._begun.intersection(plan.kept))
        times = {act: self._time(act, now) for act in (*plan.acts, *unended)}
        due = [act for act, time in times.items() if time <= now]
        adopted = set(plan.kept) - (self._ours or set())
        if due or adopted:
            self._task = self._tasks.create_task(self._run(due, adopted))
        waits = [time - now for time in times.values() if time > now]
        waits += [POD_SECONDS] if plan.waits and (held is None or held) else []
        return min(waits, default=None)

    @property
    def leaving(self) -> Collection[CardId]:
        """The functions that are to be removed, so that nobody gets them any more."""
        return self._gone_soon

    @property
    def busy(self) -> bool:
        """Whether some are being made or removed; another look follows when that is done."""
        return self._task is not None and not self._task.done()

    async def _uses(self, interfaces: Collection[str]) -> Mapping[str, Use]:
        """What the interfaces are used for; nothing of them while the kernel does not say."""
        if not interfaces:
            return {}
        try:
            uses = await asyncio.to_thread(self._sources.uses, interfaces)
        except Unavailable as error:
            self._notices.warn(log, "virtual function usage unknown", "uses", str(error))
            return {}
        self._notices.over("uses")
        return uses

    def _time(self, act: SetFunctions, now: float) -> float:
        """When an act may be done."""
        drained = self._leaving[act] + DRAIN_SECONDS if act in self._leaving else now
        return max(drained, self._failed.get(act, now))

    async def _run(self, due: Sequence[SetFunctions], adopted: Iterable[PciAddress]) -> None:
        """Do what is due, card beside card, and answer for all of it from now on."""
        done = False
        with contained("virtual functions"):
            for physical in adopted:
                await self._answer_for(physical)
            await asyncio.gather(*map(self._make, due))
            done = True
        if not done:
            await asyncio.sleep(RETRY_SECONDS)
        self._changed()

    async def _make(self, act: SetFunctions) -> None:
        begin = asyncio.get_running_loop().time()
        # Before the kernel is touched: whatever ends the agent now, they are recorded as managed.
        await self._answer_for(act.physical, begun=act.autoprobe)
        self._begun.discard(act.physical)
        try:
            await asyncio.to_thread(self._sources.make, act)
        except KubeError as error:
            self._failed[act] = asyncio.get_running_loop().time() + RETRY_SECONDS
            for why in self._notices.news(act.physical, str(error)):
                log.warning("virtual functions not configured", card=act.name, why=why)
                self._node.tell(NodeEvent.FUNCTIONS_REFUSED, why)
            return
        self._notices.over(act.physical)
        await self._answer_for(act.physical)
        seconds = round(asyncio.get_running_loop().time() - begin, 3)
        log.info("virtual functions configured", card=act.name, count=act.wanted, seconds=seconds)

    async def _recalled(self) -> set[PciAddress]:
        """The cards of this boot in the journal; those of another one are removed."""
        opened = self._sources.journal
        if opened is None:
            return set()
        recalled = set()
        try:
            tell = partial(self._node.tell, NodeEvent.JOURNAL_TROUBLE)
            self._records = await asyncio.to_thread(lambda: Records(opened(), tell))
            for name, record in self._records.named:
                if record.boot != self._sources.boot:
                    await self._records.remove(name)
                    continue
                recalled.add(record.physical)
                if record.begun:
                    self._begun.add(record.physical)
        except KubeError as error:
            log.warning("managed virtual functions not recorded", why=str(error))
        return recalled

    async def _answer_for(self, physical: PciAddress, *, begun: bool = False) -> None:
        assert self._ours is not None
        self._ours.add(physical)
        if self._records:
            try:
                made = MadeFunctions(physical, self._sources.boot, begun)
                await self._records.put(physical, made)
            except KubeError as error:
                log.warning("managed virtual functions not recorded", why=str(error))

    def _tell(self, plan: FunctionsPlan) -> None:
        """Say what waits and what is refused, each once while it stands."""
        refusals = tuple(map(str, plan.refusals))
        for sentence in self._notices.news("plan", *plan.waits, *refusals):
            refused = sentence in refusals
            event = "virtual functions refused" if refused else "virtual functions pending"
            log.warning(event, what=sentence)
            self._node.tell(
                NodeEvent.FUNCTIONS_REFUSED if refused else NodeEvent.FUNCTIONS_PENDING, sentence
            )


def _ends(survey: Survey, begun: Collection[PciAddress]) -> Iterator[SetFunctions]:
    """What gives the functions of these cards their drivers, as many as they are."""
    for function in survey.functions:
        if function.seat.pci in begun and (count := len(function.seat.virtual_functions)):
            name = function.netdevs[0].name if function.netdevs else function.seat.pci
            yield SetFunctions(function.seat.pci, name, count, count)


def _functions_of(survey: Survey, acts: Iterable[SetFunctions]) -> Iterator[PciAddress]:
    physical = {act.physical for act in acts}
    for function in survey.functions:
        if function.seat.pci in physical:
            yield from function.seat.virtual_functions
