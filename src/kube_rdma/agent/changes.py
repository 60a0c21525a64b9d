"""Changes of a node that wait for pods: a pool's new mode, a card's new number of VFs.

agent/loop hands in what is desired, the survey and who holds what at every look.
pools/rules/staging and pools/rules/functions decide; adapters/kernel/sriov/functions makes and
removes functions. Virtual functions are compared with the node each time, so what a reboot or a
person took away is made again. What is in force is written to a journal, where that is possible,
before it is offered or made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma.adapters.bulkhead import contained
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent.node.node_events import NodeEvent, NodeEvents
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.lib.records import Records
from kube_rdma.model import pools as model
from kube_rdma.model.card import CardId, Use
from kube_rdma.model.device import PciAddress
from kube_rdma.model.holdings import Holding
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.functions import held_functions, in_question, plan_functions
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.staging import StagedPools, stage

log = structlog.get_logger()

# Modes of pools: those in force are kept over the agent's end. Without a journal (role plugin
# alone) they end with the process, and a new one knows no more than the share ids that pods hold.

_RECORD = "pools"

OpenJournal = Callable[[], Journal[model.AppliedPools]]


class ModeChanges:
    """The pool specs that an agent applies now, and changes of mode that still have to wait.

    `journal` opens the record and raises KubeError; None: nothing is recorded. `ask` returns what
    pods hold now, None when the kubelet does not say.
    """

    def __init__(
        self,
        journal: OpenJournal | None,
        ask: Callable[[], Awaitable[Sequence[Holding] | None]],
        late: LateBindingChoice,
        node: NodeEvents,
    ) -> None:
        self._open = journal
        self._records: Records[model.AppliedPools] | None = None
        self._ask = ask
        self._late = late
        self._node = node
        self.stage = StagedPools(())  # those in force, those that are kept, and what waits
        # None: what the disk has is not known
        self._recorded: tuple[model.PoolSpec, ...] | None = ()
        self._loaded = False
        self._notices = Notices()

    async def meet(
        self, wanted: Sequence[model.PoolSpec], holdings: Sequence[Holding] | None
    ) -> None:
        """Apply and record the mode changes possible now; report them, and those that wait."""
        previous = self.stage.remembered if self._loaded else await self._recall()
        desired = self._late.now.possible(wanted)
        staged = stage(previous, desired, holdings)
        if staged.applied:  # a survey was taken since they were asked: a pod may have started
            holdings = await self._holdings()
            staged = stage(previous, desired, holdings)
        if not await self._record(staged.remembered) and staged.applied:
            staged = stage(previous, desired, holdings, durable=False)
        self.stage = staged
        self._tell(staged)

    async def _holdings(self) -> tuple[Holding, ...] | None:
        """Return the shares that pods hold, as the kubelet says, and more that late binding knows.

        Return None if they are unknown.
        """
        holdings = await self._ask()
        try:
            return None if holdings is None else (*holdings, *await self._late.now.held())
        except Unavailable as error:
            self._notices.warn(log, "share holders unknown", "bound", str(error))
            return None

    async def _recall(self) -> tuple[model.PoolSpec, ...]:
        """Open the record; return what specs the last agent applied, if known, adapted to this."""
        self._loaded = True
        if (opened := self._open) is None:
            return ()
        report = partial(self._node.tell, NodeEvent.JOURNAL_TROUBLE)
        try:
            self._records = await asyncio.to_thread(lambda: Records(opened(), report))
        except Unavailable as error:
            log.warning("applied modes not saved", why=str(error))
            return ()
        self._recorded = specs = next((record.specs for record in self._records.values), ())
        # What cannot be bound late any more is given at Allocate, or no pod would get it at all.
        return tuple(
            here if terms(here).attach is model.Attach.NONE else spec
            for spec, here in zip(specs, self._late.now.possible(specs), strict=True)
        )

    async def _record(self, specs: tuple[model.PoolSpec, ...]) -> bool:
        """Write the applied specs to the journal; return False if that failed."""
        if self._records is None or specs == self._recorded:
            return True
        try:
            await self._records.put(_RECORD, model.AppliedPools(specs))
        except Unavailable as error:
            self._recorded = None
            self._notices.warn(log, "applied modes not written", "record", str(error))
            return False
        self._recorded = specs
        self._notices.over("record")
        return True

    def _tell(self, staged: StagedPools) -> None:
        """Report each applied change, and each pending one once."""
        for change in staged.applied:
            log.info("mode change applied", what=str(change))
            self._node.tell(NodeEvent.MODE_CHANGE_APPLIED, str(change))
        for sentence in self._notices.news("waits", *map(str, staged.pending)):
            log.warning("mode change pending", what=sentence)
            self._node.tell(NodeEvent.MODE_CHANGE_PENDING, sentence)


# Virtual functions. Those that are to go are out of their pools for a while before, so that whoever
# got one at the last moment is seen as its holder.

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

DRAIN_SECONDS = 2.0  # longer than an Allocate takes to show in the kubelet's list of holders
POD_SECONDS = 10.0  # the end of a pod is announced by nobody
RETRY_SECONDS = 30.0  # after an act that failed


class FunctionSources(Frozen):
    """The calls that make and record virtual functions, and read the use of interfaces."""

    make: Callable[[model.SetFunctions], None]  # blocks; raises KubeError
    # Opens the record of the cards whose functions the agent manages; raises KubeError. None: they
    # are forgotten with the process.
    journal: Callable[[], Journal[model.MadeFunctions]] | None = None
    boot: str = ""  # the kernel's boot_id
    # Reads how the node uses these interfaces; blocks, raises Unavailable.
    uses: Callable[[Collection[str]], Mapping[str, Use]] = lambda _: {}


class VirtualFunctions:
    """The virtual functions of one node, made and removed as pools ask for them.

    `tasks` runs the acts, `changed` is called after them.
    """

    def __init__(
        self,
        sources: FunctionSources,
        tasks: asyncio.TaskGroup,
        node: NodeEvents,
        changed: Callable[[], None],
    ) -> None:
        self._sources = sources
        self._tasks = tasks
        self._node = node
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._records: Records[model.MadeFunctions] | None = None
        self._ours: set[PciAddress] | None = None  # None: not read yet
        self._begun: set[PciAddress] = set()  # by an earlier process, which may not have finished
        self._leaving: dict[model.SetFunctions, float] = {}  # since when
        self._gone_soon: frozenset[CardId] = frozenset()  # functions that are to go
        self._failed: dict[model.SetFunctions, float] = {}  # when to try again
        self._notices = Notices()  # by physical function, and of all
        self.plan = model.FunctionsPlan()  # of the last look at which nothing was under way

    async def look(
        self,
        desired: Sequence[model.FunctionsSpec],
        survey: Survey,
        holdings: Sequence[Holding] | None,
        pools: Mapping[str, model.Pool],
    ) -> float | None:
        """Begin what can be done for virtual functions now; report what waits and what is refused.

        Return seconds until the next look, or None.
        """
        if self.busy:
            return None  # its end is a change
        if self._ours is None and desired:
            self._ours = await self._recalled()
        held = None if holdings is None else held_functions(holdings, pools)
        uses = await self._uses(in_question(desired, survey))
        plan = plan_functions(desired, survey, held, self._ours or (), uses)
        self.plan = plan
        self._tell(plan)
        now = asyncio.get_running_loop().time()
        self._leaving = {act: self._leaving.get(act, now) for act in plan.acts if act.now}
        physical = {act.physical for act in self._leaving}
        above = (one.position for one in survey.functions if one.position.pci in physical)
        self._gone_soon = frozenset(
            CardId(at) for position in above for at in position.virtual_functions
        )
        self._failed = {act: at for act, at in self._failed.items() if act in plan.acts}
        unended = _ends(survey, self._begun.intersection(plan.kept))
        times = {act: self._due(act, now) for act in (*plan.acts, *unended)}
        due = [act for act, time in times.items() if time <= now]
        adopted = set(plan.kept) - (self._ours or set())
        if due or adopted:
            self._task = self._tasks.create_task(self._run(due, adopted))
        waits = [time - now for time in times.values() if time > now]
        waits += [POD_SECONDS] if plan.waits and (held is None or held) else []
        return min(waits, default=None)

    @property
    def leaving(self) -> Collection[CardId]:
        """Return the virtual functions that will be removed, so that no pod gets them."""
        return self._gone_soon

    @property
    def busy(self) -> bool:
        """Return whether virtual functions are being made or removed now."""
        return self._task is not None and not self._task.done()

    async def _uses(self, interfaces: Collection[str]) -> Mapping[str, Use]:
        """Return how the node uses interfaces; nothing while the kernel does not answer."""
        if not interfaces:
            return {}
        try:
            uses = await asyncio.to_thread(self._sources.uses, interfaces)
        except Unavailable as error:
            self._notices.warn(log, "virtual function usage unknown", "uses", str(error))
            return {}
        self._notices.over("uses")
        return uses

    def _due(self, act: model.SetFunctions, now: float) -> float:
        """Return the time from which `act` may be made: after its drain and a failure's wait."""
        drained = self._leaving[act] + DRAIN_SECONDS if act in self._leaving else now
        return max(drained, self._failed.get(act, now))

    async def _run(self, due: Sequence[model.SetFunctions], adopted: Iterable[PciAddress]) -> None:
        """Record the cards that already have their functions, then change others, all at once."""
        done = False
        with contained("virtual functions"):
            for physical in adopted:
                await self._manage(physical)
            await asyncio.gather(*map(self._make, due))
            done = True
        if not done:
            await asyncio.sleep(RETRY_SECONDS)
        self._changed()

    async def _make(self, act: model.SetFunctions) -> None:
        begin = asyncio.get_running_loop().time()
        # Before the kernel is touched, so that they are known as managed if the agent ends now.
        await self._manage(act.physical, begun=act.autoprobe)
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
        await self._manage(act.physical)
        seconds = round(asyncio.get_running_loop().time() - begin, 3)
        log.info("virtual functions configured", card=act.name, count=act.wanted, seconds=seconds)

    async def _recalled(self) -> set[PciAddress]:
        """Return the cards in the journal that were recorded in this boot; remove older records."""
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

    async def _manage(self, physical: PciAddress, *, begun: bool = False) -> None:
        assert self._ours is not None
        self._ours.add(physical)
        if self._records:
            try:
                made = model.MadeFunctions(physical, self._sources.boot, begun)
                await self._records.put(physical, made)
            except KubeError as error:
                log.warning("managed virtual functions not recorded", why=str(error))

    def _tell(self, plan: model.FunctionsPlan) -> None:
        """Report functions that wait and refusals, each sentence once."""
        refusals = tuple(map(str, plan.refusals))
        for sentence in self._notices.news("plan", *plan.waits, *refusals):
            refused = sentence in refusals
            event = "virtual functions refused" if refused else "virtual functions pending"
            log.warning(event, what=sentence)
            reason = NodeEvent.FUNCTIONS_REFUSED if refused else NodeEvent.FUNCTIONS_PENDING
            self._node.tell(reason, sentence)


def _ends(survey: Survey, begun: Collection[PciAddress]) -> Iterator[model.SetFunctions]:
    """Yield acts that keep these cards' numbers of functions, and give the functions drivers."""
    for function in survey.functions:
        if function.position.pci in begun and (count := len(function.position.virtual_functions)):
            name = function.netdevs[0].name if function.netdevs else function.position.pci
            yield model.SetFunctions(function.position.pci, name, count, count)
