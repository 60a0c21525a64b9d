"""Role `plugin`: offers this node's pools to the kubelet and keeps the offer true.

    file, label ─ api ─► PoolSpec ─ staged ───┐
    kernel ─ survey, verdicts, cards, health ─┴ pools/rules/pools ─► Pool ─ offers ─► kubelet
    kubelet ─ pod resources: who holds what ──────┘

Alone it is the whole device plugin of the SCC document: two mounts, no API server, no privilege.
Whatever happens only wakes the loop; then everything is looked at again and every pool published
again, and a pool that is the same reaches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import structlog
from msgspec import Struct, field

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma import __version__
from kube_rdma.adapters.bulkhead import Part, kept, start
from kube_rdma.agent.absent_cards import AbsentCards
from kube_rdma.agent.dependencies import AgentDependencies
from kube_rdma.agent.handlers import Handlers
from kube_rdma.agent.mode_changes import ModeChanges
from kube_rdma.agent.node.node_events import NodeEvent
from kube_rdma.agent.virtual_functions import VirtualFunctions
from kube_rdma.attach.rules import late_binding
from kube_rdma.claims.rules.serving import PluginShares, for_plugin, plugin_shares, waiting
from kube_rdma.hardware import kernel_events
from kube_rdma.hardware.kernel_events import CardEvents
from kube_rdma.lib.debounce import SETTLE, Debounce
from kube_rdma.lib.logs import write
from kube_rdma.model.card import CardId, Use
from kube_rdma.model.claims.claim import PreparedClaim
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import (
    ClusterNodePolicy,
    FunctionsPlan,
    NodeSpecs,
    Pool,
    PoolSpec,
    Serving,
)
from kube_rdma.model.survey import Survey
from kube_rdma.pools import servers
from kube_rdma.pools.config import ConfigSource
from kube_rdma.pools.rules.absence import Health
from kube_rdma.pools.rules.condition import CardsState, next_state
from kube_rdma.pools.rules.health import (
    Holders,
    NodeFacts,
    NodeVerdict,
    evaluate,
    node_cards,
    notes,
)
from kube_rdma.pools.rules.holdings import held_cards, pods_of, pods_with, pooled
from kube_rdma.pools.rules.selection import asked_uses
from kube_rdma.pools.servers import ResourceServers
from kube_rdma.reports.rules.node_report import AgentLook

# While a change of mode waits for pods, the kubelet is asked so often whether they have ended: it
# announces nothing. A mode change on an idle node is to take 5 s at most.
PENDING_SECONDS = 2.0

# The same for the pods that still have cards by a resource that is offered no more.
KEPT_SECONDS = 10.0

# Where events of some changes are unavailable, the node is looked at again so often.
DEAF_SECONDS = 10.0

# The kernel announces an InfiniBand port's state to nobody but who holds its verbs: it is read.
FABRIC_SECONDS = 1.0

log = structlog.get_logger()


async def run_plugin(doors: AgentDependencies) -> None:
    """Serve until cancelled; raise a KubeError when there is no sense in going on."""
    log.info("started", version=__version__, config=str(doors.config or "none"))
    try:
        await _Plugin(doors).run()
    except BaseExceptionGroup as group:
        cause = _cause(group)
        if cause is None:
            raise
        raise cause from group


def _cause(group: BaseExceptionGroup) -> KubeError | None:
    """The error that a person should see: the first KubeError, None beside any other."""
    ours, others = group.split(KubeError)
    error: BaseException | None = None if others else ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is None or isinstance(error, KubeError)
    return error


class _Reported(Struct):
    """What was reported already, so that it is reported once."""

    survey: Survey | None = None
    names: Mapping[CardId, str] = field(default_factory=dict)  # of the cards in pools
    pooled: Mapping[CardId, tuple[str, ...]] = field(default_factory=dict)  # see holdings.pooled
    notices: Notices = field(default_factory=Notices)  # by their event


class _Gathered(Frozen):
    """What a look begins with; `changing` is when virtual functions that change need the next."""

    wanted: tuple[PoolSpec, ...]
    followed: tuple[ClusterNodePolicy, ...]
    holdings: Sequence[Holding] | None
    facts: NodeFacts
    changing: float | None


class _Served(Frozen):
    """How pools are served: as the kubelet is to hear of them, and what pods have by either way.

    `booked` are the claims that are prepared, `held` the shares of the device plugin (None: nobody
    can tell).
    """

    pools: tuple[Pool, ...]
    booked: tuple[PreparedClaim, ...]
    held: PluginShares | None


class _Plugin:
    """The state of the role: the wishes that are met, the health of cards, the servers."""

    def __init__(self, doors: AgentDependencies) -> None:
        self._doors = doors
        self._changes = Debounce()
        refused = partial(doors.node.tell, NodeEvent.CONFIGURATION_REFUSED)
        claims = doors.claims is not None
        self._wishes = ConfigSource(doors.config, self._changes.touch, refused, claims=claims)
        self._kubelet = doors.kubelet
        limits = doors.networks.limits if doors.networks else None
        self._handlers = Handlers(doors.kubelet, doors.late, doors.device_infos, limits)
        self._staged = ModeChanges(doors.applied, doors.kubelet.holdings, doors.late, doors.node)
        records = [doors.late.cards]
        records += [doors.networks.cards] if doors.networks else []
        records += [doors.claims.claims.cards] if doors.claims else []
        self._absent = AbsentCards(records)
        self._health: Mapping[CardId, Health] = {}
        self._cards = CardsState()
        self._functions: VirtualFunctions | None = None
        self._reported = _Reported()
        self._relevance = CardEvents()
        self._last_uses: Mapping[str, Use] = {}
        self._sure = asyncio.Event()  # what is offered was all that is wished for

    async def run(self) -> None:
        self._wishes.read()
        async with AsyncExitStack() as stack:
            # Listening begins before the first look, so that nothing falls between the two.
            announcements = await kernel_events.listen(self._doors.kernel, stack)
            async with asyncio.TaskGroup() as tasks:
                serve = self._doors.serve
                offers = ResourceServers(
                    tasks, lambda one, pool: serve(one, self._handlers.answers(pool))
                )
                if self._doors.functions:
                    sources, node = self._doors.functions, self._doors.node
                    self._functions = VirtualFunctions(sources, tasks, node, self._changes.touch)
                start(tasks, self._kernel_parts(announcements), ends=KubeError)
                start(tasks, self._parts(offers))
                deaf = len(announcements) < len(self._doors.kernel.announcements)
                look = partial(self._follow, offers, deaf=deaf)
                await kept("device plugin", look, ends=KubeError)

    def _kernel_parts(self, announcements: Iterable[AsyncIterator[object]]) -> Mapping[str, Part]:
        """Where one breaks off the agent ends: its container is made anew, and hears again."""
        return {
            f"kernel events {number}": partial(
                kernel_events.hear, stream, self._changes, self._relevance.concern
            )
            for number, stream in enumerate(announcements)
        }

    def _parts(self, offers: ResourceServers) -> Mapping[str, Part]:
        """What runs beside the loop, by name."""
        doors = self._doors
        parts: dict[str, Part] = {
            "configuration": self._wishes.follow,
            "node": partial(doors.node.follow, self._node_seen),
            "kubelet's view": partial(self._kubelet.compare, offers),
            "distances of GPUs": partial(self._kubelet.report, offers),
            "stale bindings": doors.late.sweep,
            "late binding": partial(doors.late.follow, self._changes.touch),
            "GPUs by claim": doors.kubelet.slices.follow,
        }
        parts |= {keeper.part: keeper.run for keeper in doors.keepers}
        if doors.metrics:
            parts |= doors.metrics.parts
        if doors.networks:
            parts["networks"] = partial(doors.networks.run, doors.late)
        if doors.claims:
            parts["claims"] = doors.claims.run
        if doors.ready:
            networks = (doors.networks.until_settled,) if doors.networks else ()
            parts["ready file"] = partial(
                doors.ready.run, partial(self._until_registered, offers), *networks
            )
        if doors.policies:
            parts["node policies"] = partial(doors.policies.follow, self._policies_seen)
        return parts

    async def _follow(self, offers: ResourceServers, *, deaf: bool) -> None:
        """Look, and look again whenever something happened."""
        heard = False
        while True:
            waits = [await self._look(offers), SETTLE if heard else None]
            waits += [DEAF_SECONDS if deaf else None, self._wishes.rescan]
            heard = await self._wait(min(filter(None, waits), default=None))

    async def _wait(self, seconds: float | None) -> bool:
        """Wait for a burst, `seconds` or another state of an InfiniBand port; True for a burst."""
        clock = asyncio.get_running_loop().time
        end = None if seconds is None else clock() + seconds
        while True:
            left = None if end is None else end - clock()
            if left is not None and left <= 0:
                return False
            ports = kernel_events.fabric_ports(self._reported.survey)
            pulse = FABRIC_SECONDS if ports else None
            if await self._changes.wait(min(filter(None, (left, pulse)), default=None)):
                return True
            if await kernel_events.differ(self._doors.kernel, ports):
                return False

    async def _look(self, offers: ResourceServers) -> float | None:
        """Publish what every pool is now; the seconds after which to look again in any case."""
        # Gathered: what is wished for, who holds what, what the kernel shows.
        gathered = await self._gather(offers)
        # Judged: what the node comes to, by rules alone.
        verdict = evaluate(gathered.facts, self._health, asyncio.get_running_loop().time())
        # Told: people first, who may ask why; then the kubelet, and all that follow its pools.
        self._report(gathered, verdict)
        served = self._served(gathered, verdict)
        offers.publish(served.pools)
        self._tell_metrics(verdict, gathered.facts.survey, offers)
        self._health = verdict.assessment.health
        await self._number_rails(gathered, verdict)
        self._tell_keepers(gathered, verdict, served)
        await self._tell_followers(offers)
        return self._next_look(gathered, verdict, served)

    async def _gather(self, offers: ResourceServers) -> _Gathered:
        """Ask in this order: a pod may start and the label change at any moment."""
        wanted, followed = self._wishes.specs, self._wishes.followed
        holdings = await self._kubelet.holdings()
        survey, missing = await kernel_events.look(self._doors.kernel)
        self._relevance.surveyed(survey)
        self._tell_survey(survey)
        await self._staged.meet(wanted, holdings)
        if self._doors.keepers or asked_uses(self._staged.specs):  # a report shows them
            survey = survey.with_uses(await self._uses(survey))
        changing = None
        if self._functions:
            wishes = self._wishes.functions
            changing = await self._functions.look(wishes, survey, holdings, offers.pools)
        self._kubelet.gpus = survey.gpus
        facts = await self._facts(survey, missing, holdings, offers)
        return _Gathered(wanted, followed, holdings, facts, changing)

    async def _facts(
        self,
        survey: Survey,
        missing: Collection[str],
        holdings: Sequence[Holding] | None,
        offers: ResourceServers,
    ) -> NodeFacts:
        """What is known of the node at this moment; the records are read after the survey."""
        specs, kept = self._staged.specs, self._staged.kept
        held = held_cards(holdings or (), (*specs, *kept))
        alone = node_cards(survey)
        # A function that is being made has no interface until its driver is through with it.
        unsure = holdings is None or self._making
        self._absent.look(alone, None if unsure else held, offers.pools)
        return NodeFacts(
            survey,
            alone,
            specs,
            self._wishes.functions,
            kept=kept,
            held=held,
            missing=missing,
            inside=await self._doors.late.links_inside(alone),
            leaving=self._functions.leaving if self._functions else (),
            gone=self._absent.gone,
            stays=self._absent.stays(offers.pools, specs),
        )

    def _served(self, gathered: _Gathered, verdict: NodeVerdict) -> _Served:
        """What claims have is not given twice."""
        booked, pools = self._kubelet.claims.booked, verdict.pools
        held = plugin_shares(gathered.holdings, booked)
        if self._doors.claims:
            pools = for_plugin(pools, booked, held, self._doors.claims.published())
        return _Served(pools, booked, held)

    def _next_look(
        self, gathered: _Gathered, verdict: NodeVerdict, served: _Served
    ) -> float | None:
        """The seconds after which something may have changed that nobody announces."""
        facts = gathered.facts
        withheld = any(facts.held.get(spec.resource) for spec in facts.kept)
        waits = [verdict.assessment.again, self._absent.now.again, gathered.changing]
        waits += [PENDING_SECONDS if self._staged.pending else None]
        waits += [KEPT_SECONDS if withheld else None]
        if self._doors.claims:
            unready = waiting(verdict.pools, served.pools, served.booked)
            moved = [pool.spec for pool in verdict.pools if pool.spec.serve is Serving.CLAIMS]
            held = served.held or {}
            waits += [PENDING_SECONDS if unready else None]
            unsure = served.held is None or any(held.get(spec.resource) for spec in moved)
            waits += [KEPT_SECONDS if unsure else None]
        return min(filter(None, waits), default=None)

    def _node_seen(self, node: NodeState) -> None:
        """Take note of the Node object: its label is a wish, its allocatable what has arrived."""
        wanted = self._wishes.specs
        if self._doors.own.seen(node):
            self._changes.touch()
        self._wishes.label(node)
        if self._wishes.specs != wanted:
            self._doubt()
        for keeper in self._doors.keepers:
            keeper.seen(node)
        if self._doors.policies:
            self._doors.policies.seen(node)

    def _policies_seen(self, wishes: NodeSpecs, refusals: tuple[Refused, ...]) -> None:
        """Take note of the cluster's policies for this node, and of those that disagree."""
        wanted = self._wishes.specs
        self._wishes.policies(wishes, refusals)
        for sentence in self._reported.notices.news("policies overlap", *wishes.overlaps):
            log.warning("policies overlap", what=sentence)
            self._doors.node.tell(NodeEvent.POLICIES_OVERLAP, sentence)
        if self._wishes.specs != wanted:
            self._doubt()
        self._changes.touch()

    def _doubt(self) -> None:
        """Tell that what is offered is not yet all that is wished for."""
        for keeper in self._doors.keepers:
            keeper.doubted()

    def _tell_keepers(self, gathered: _Gathered, verdict: NodeVerdict, served: _Served) -> None:
        """Tell what the cluster is to know of this node."""
        survey, staged = gathered.facts.survey, self._staged
        self._cards = next_state(self._cards, verdict, staged.specs, survey)
        look = AgentLook(
            __version__,
            survey,
            verdict,
            self._cards,
            staged.pending,
            self._wishes.refusals,
            self._wishes.overlaps,
            gathered.followed,
            self._functions.plan if self._functions else FunctionsPlan(),
            self._doors.rails.count,
            served.held,
            tuple(self._doors.networks.attachments()) if self._doors.networks else (),
            served.pools,
        )
        for keeper in self._doors.keepers:
            keeper.look(look)
        unknown = self._doors.policies is not None and not self._doors.policies.are_known
        if self._making or unknown or gathered.wanted != self._wishes.specs:
            self._doubt()
        else:
            self._sure.set()

    async def _until_registered(self, offers: ResourceServers) -> str:
        """Wait until the kubelet has all that this node is to offer; a sentence about it."""
        await self._sure.wait()
        resources = await offers.until_registered()
        return f"Resources: {', '.join(resources) or 'none'}."

    async def _tell_followers(self, offers: ResourceServers) -> None:
        """Tell late binding, Allocate's answers, claims and pod networks what is offered now."""
        self._doors.late.offered(offers.pools)
        await self._handlers.offered(offers.pools)
        if self._doors.claims:
            self._doors.claims.offered(offers.pools)
        if self._doors.networks:
            kept = [spec.resource for spec in self._staged.kept]
            self._doors.networks.offered(offers.pools, kept)

    @property
    def _making(self) -> bool:
        """Whether virtual functions are being made or removed."""
        return self._functions is not None and self._functions.busy

    def _tell_metrics(self, verdict: NodeVerdict, survey: Survey, offers: ResourceServers) -> None:
        """Tell what a scrape shows of resources and cards; before the health is the new one."""
        if self._doors.metrics:
            kept = [spec.resource for spec in self._staged.kept]
            self._doors.metrics.looked(offers.pools, kept, survey.namespace_mode)
            self._doors.metrics.judged(verdict.assessment, self._health)

    async def _uses(self, survey: Survey) -> Mapping[str, Use]:
        """What the node uses its cards for; the last answer while the kernel gives none."""
        names = [netdev.name for one in survey.functions for netdev in one.netdevs]
        try:
            self._last_uses = await asyncio.to_thread(self._doors.kernel.uses, names)
        except Unavailable as error:
            self._tell_once("use of cards unknown", [str(error)])
        return self._last_uses

    def _tell_survey(self, survey: Survey) -> None:
        before, self._reported.survey = self._reported.survey, survey
        write(servers.of_survey(before, survey))
        for note in self._reported.notices.news("note", *notes(survey)):
            log.warning("note", text=note)

    def _report(self, gathered: _Gathered, verdict: NodeVerdict) -> None:
        """Tell people what is new and remarkable about cards and pools."""
        facts = gathered.facts
        self._tell_cards(verdict, facts.held, gathered.holdings or ())
        renumbered = late_binding.renumbered(facts.specs, facts.survey.namespace_mode)
        self._tell_once("pool bound early", renumbered)
        self._tell_once("card claimed by two pools", map(str, verdict.clashes))
        self._tell_once("card not free", verdict.taken)
        self._tell_once("virtual functions of range missing", verdict.beyond)
        self._tell_once("card left to the node", verdict.spared)
        self._tell_once("card configured by others", verdict.dynamic)

    def _tell_cards(self, verdict: NodeVerdict, held: Holders, holdings: Sequence[Holding]) -> None:
        """Tell what became of the cards that are in pools or were; others are nobody's news."""
        changes = verdict.assessment.changes
        before = self._reported.names
        names = self._reported.names = {
            card.id: card.name if card.devices else before.get(card.id, card.name)
            for pool in verdict.pools
            for card in pool.cards
        }
        whole_pools = self._reported.pooled
        self._reported.pooled = pooled(verdict.pools)
        whole_pools = {**whole_pools, **self._reported.pooled}
        for change in changes:
            seen_before = change.card in self._health
            name = names.get(change.card) or before.get(change.card)
            if name is None or (change.healthy and not self._health):
                continue  # the first look tells only what is wrong
            present = change.card in names
            write([servers.of_card(change, name, seen_before=seen_before, present=present)])
            if seen_before or not change.healthy:
                of_pools = pods_with(holdings, whole_pools.get(change.card, ()))
                pods = dict.fromkeys((*pods_of(held, change.card), *of_pools))
                self._doors.node.card(change, name, tuple(pods))
            if change.healthy and self._doors.networks:  # also one that was gone for long
                self._doors.networks.returned(change.card)
        reported = {change.card for change in changes}
        write(servers.of_cards(before, names, reported) if self._health else ())

    async def _number_rails(self, gathered: _Gathered, verdict: NodeVerdict) -> None:
        """Tell of rails that no card is on: pools of addresses may have no range for others."""
        rails, holdings = self._doors.rails, gathered.holdings
        offered = [card for pool in verdict.pools for card in pool.cards]
        idle = holdings is not None and not any(holding.shares for holding in holdings)
        await rails.see(offered, gathered.facts.cards, self._wishes.rails, idle=idle)
        sentences = filter(None, [rails.without_cards])
        for news in self._reported.notices.news("rails without cards", *sentences):
            log.warning("rails without cards", what=news)
            self._doors.node.tell(NodeEvent.RAILS_WITHOUT_CARDS, news)

    def _tell_once(self, event: str, sentences: Iterable[str]) -> None:
        """Say each sentence of an event once while it stands."""
        for sentence in self._reported.notices.news(event, *sentences):
            log.warning(event, what=sentence)
