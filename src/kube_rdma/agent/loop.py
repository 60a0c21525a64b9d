"""Role `plugin`: offers this node's pools to the kubelet and keeps the offer true.

    file, label, policies ─► PoolSpec ─ staged ─┐
    kernel ─ survey, verdicts, cards, health ───┴ pools/rules/pools ─► Pool ─ offers ─► kubelet
    kubelet ─ pod resources: who holds what ────┘

Alone it is a whole device plugin, which needs no API server. Whatever happens only wakes the loop.
Then everything is looked at again and every pool published again, and the kubelet hears of a pool
only when it changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from msgspec import Struct

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_base.notices import Notices
from kube_rdma import __version__
from kube_rdma.adapters.bulkhead import Part, kept, start
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.kubelet.device_plugin import PluginHandlers, PluginServer
from kube_rdma.agent.changes import FunctionSources, ModeChanges, OpenJournal, VirtualFunctions
from kube_rdma.agent.handlers import Handlers
from kube_rdma.agent.node.node_events import NodeEvent, NodeEvents
from kube_rdma.attach.late_binding import LateBindingChoice, NoLateBinding
from kube_rdma.attach.rules import late_binding
from kube_rdma.claims.rules.serving import PluginShares, for_plugin, plugin_shares, waiting
from kube_rdma.hardware import kernel_events
from kube_rdma.hardware.kernel_events import CardEvents, KernelSources
from kube_rdma.hardware.survey import OwnAddresses
from kube_rdma.lib.debounce import SETTLE, Debounce
from kube_rdma.lib.health import Check, HealthChecks
from kube_rdma.model import pools as model
from kube_rdma.model.card import Card, CardId, Use
from kube_rdma.model.claims.claim import PreparedClaim
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.survey import Survey
from kube_rdma.pools import servers
from kube_rdma.pools.config import ConfigSource
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from kube_rdma.pools.rules import discovery, node_health
from kube_rdma.pools.rules.absence import Absences, Health, absent, is_away, is_bare
from kube_rdma.pools.rules.condition import CardsState, next_state
from kube_rdma.pools.rules.holdings import held_cards, pods_of, pods_with, pooled
from kube_rdma.pools.rules.pools import Held
from kube_rdma.pools.rules.selection import asked_uses, moves
from kube_rdma.pools.servers import ResourceServers
from kube_rdma.reports.rules.node_report import AgentLook

if TYPE_CHECKING:
    from kube_rdma.agent.node.report import NodePolicies
    from kube_rdma.attach.node_networks import NodeNetworks
    from kube_rdma.claims.driver import ClaimDriver
    from kube_rdma.fabric.neighbours import Neighbours
    from kube_rdma.metrics.exporter import Exporter
    from kube_rdma.reports.node_keeper import NodeKeeper

# Seconds until the next look at the node, for what nobody announces.
PENDING_SECONDS = 2.0  # pods that a change of mode waits for; on an idle node it takes 5 s at most
KEPT_SECONDS = 10.0  # pods that still have cards by a resource that is offered no more
DEAF_SECONDS = 10.0  # what the kernel's events would say where they are unavailable
FABRIC_SECONDS = 1.0  # InfiniBand port states: only programs with the device open hear of them

_NOT_SURE = "What this node is to offer is not known yet, or its virtual functions are being made."

log = structlog.get_logger()

Serve = Callable[[model.Offer, PluginHandlers], PluginServer]


class AgentDependencies(Frozen):
    """Everything that role `plugin` depends on; tests replace it.

    Only the kernel and the kubelet's folder have to be there.
    """

    config: Path | None
    kernel: KernelSources
    serve: Serve
    # Without the pod resources API a change of mode waits for a person.
    kubelet: KubeletView = field(default_factory=lambda: KubeletView(None))
    node: NodeEvents = field(default_factory=NodeEvents)
    # Without it every pool gives plain device nodes.
    late: LateBindingChoice = field(
        default_factory=lambda: LateBindingChoice(NoLateBinding("the agent runs without role node"))
    )
    device_infos: DeviceInfoFolder | None = None
    networks: NodeNetworks | None = None  # pod networks beside the plugin
    functions: FunctionSources | None = None  # None: this agent makes no virtual functions
    applied: OpenJournal | None = None  # None: a new process knows nothing of the earlier modes
    rails: NodeRails = field(default_factory=NodeRails)
    keepers: tuple[NodeKeeper[Any], ...] = ()  # of what the cluster knows of this node
    policies: NodePolicies | None = None  # None: those of the cluster are not followed
    metrics: Exporter | None = None  # None: they are not served
    claims: ClaimDriver | None = None  # None: cards are given as shares alone
    health: Callable[[HealthChecks], Awaitable[None]] | None = (
        None  # answers probes with these checks; None: nobody does
    )
    own: OwnAddresses = field(default_factory=OwnAddresses)
    neighbours: Neighbours | None = None  # None: LLDP is not received


async def run_plugin(dependencies: AgentDependencies) -> None:
    """Run role `plugin` until cancelled; raise the KubeError that ended it."""
    log.info("started", version=__version__, config=str(dependencies.config or "none"))
    try:
        await _Plugin(dependencies).run()
    except BaseExceptionGroup as group:
        cause = _cause(group)
        if cause is None:
            raise
        raise cause from group


def _cause(group: BaseExceptionGroup) -> KubeError | None:
    """Return the first KubeError of a group to show; None if it has any other error."""
    ours, others = group.split(KubeError)
    error: BaseException | None = None if others else ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is None or isinstance(error, KubeError)
    return error


class AbsentCards:
    """The cards of which a part is missing on the node, and since when (pools/rules/absence).

    In the kubelet's list pods have a card from Allocate to their end. Late binding, prepared claims
    and attachments also record which cards pods have; an attachment is on the disk before the first
    interface moves. `records` return the cards of pods, None while they cannot be read.
    """

    def __init__(self, records: Sequence[Callable[[], frozenset[CardId] | None]]) -> None:
        self._sources = records
        self.now = Absences()
        self._bare: frozenset[CardId] = frozenset()  # had an RDMA device, show none
        self._lost: frozenset[CardId] = frozenset()  # those of them that no pod can have

    def look(
        self,
        node: Sequence[Card],
        held: node_health.Holders | None,
        pools: Mapping[str, model.Pool],
    ) -> None:
        """Compare the surveyed cards with the records, to find cards of which a part is missing.

        `held` is what the kubelet reports, None while it does not; `pools` are those of the look
        before, which know which cards had RDMA devices.
        """
        pooled = [(pool, card) for pool in pools.values() for card in pool.cards]
        had = {card.id for _, card in pooled if card.devices or card.id in self._bare}
        leave = {card.id for pool, card in pooled if moves(pool.spec)}
        self._bare = frozenset(card.id for card in node if card.id in had and is_bare(card))
        records = self._records()
        alone = {card.id for card in node if not is_away(card)} - leave
        lost = self._lost if records is None else alone - records
        self._lost = self._bare & lost
        explained = None
        if held is not None and records is not None:
            explained = records | {card for cards in held.values() for card in cards}
        clock = asyncio.get_running_loop().time
        self.now = absent(self.now, node, explained, clock(), self._bare & leave)

    @property
    def gone(self) -> frozenset[CardId]:
        """Return the cards that no pod may be given, because a part of them is missing."""
        return self.now.moved | self._lost

    def stays(self, pools: Mapping[str, model.Pool], specs: Sequence[model.PoolSpec]) -> Held:
        """Return the cards that lack a part, by the resource of the pool that last had them.

        A selector may not find such a card any more, as its RDMA device or interface is out of
        sight. Pools whose spec does not apply any more are left out.
        """
        away = self.now.away | self._bare
        had = (pool for pool in pools.values() if pool.spec in specs)
        return {
            pool.spec.resource: {card.id for card in pool.cards if card.id in away} for pool in had
        }

    def _records(self) -> frozenset[CardId] | None:
        """Return the cards that the agent's records assign to pods; None if unreadable."""
        records = [cards() for cards in self._sources]
        whole = [cards for cards in records if cards is not None]
        return frozenset[CardId]().union(*whole) if len(whole) == len(records) else None


class _Reported(Struct):
    """The news that was reported already, so that nothing is reported twice."""

    survey: Survey | None = None
    names: Mapping[CardId, str] = field(default_factory=dict)  # of the cards in pools
    pooled: Mapping[CardId, tuple[str, ...]] = field(default_factory=dict)  # see holdings.pooled
    notices: Notices = field(default_factory=Notices)  # by their event


class _Gathered(Frozen):
    """The inputs of one round of the agent; after `changing` seconds another round is due."""

    wanted: tuple[model.PoolSpec, ...]
    followed: tuple[model.ClusterNodePolicy, ...]
    holdings: Sequence[Holding] | None
    facts: node_health.NodeFacts
    changing: float | None


class _Served(Frozen):
    """Pools as the kubelet sees them, with the claims and shares that pods hold.

    `booked` are the prepared claims, `held` the shares by the device plugin (None: unknown).
    """

    pools: tuple[model.Pool, ...]
    booked: tuple[PreparedClaim, ...]
    held: PluginShares | None


class _Plugin:
    """The state of role `plugin`: applied specs, health of cards, servers of resources."""

    def __init__(self, needs: AgentDependencies) -> None:
        self._needs = needs
        self._changes = Debounce()
        refused = partial(needs.node.tell, NodeEvent.CONFIGURATION_REFUSED)
        claims = needs.claims is not None
        self._desired = ConfigSource(needs.config, self._changes.touch, refused, claims=claims)
        self._kubelet = needs.kubelet
        limits = needs.networks.limits if needs.networks else None
        self._handlers = Handlers(needs.kubelet, needs.late, needs.device_infos, limits)
        self._modes = ModeChanges(needs.applied, needs.kubelet.holdings, needs.late, needs.node)

        def bound() -> frozenset[CardId] | None:
            return needs.late.now.cards()

        records = [bound]
        records += [needs.networks.cards] if needs.networks else []
        records += [needs.claims.claims.cards] if needs.claims else []
        self._absent = AbsentCards(records)
        self._health: Mapping[CardId, Health] = {}
        self._cards = CardsState()
        self._functions: VirtualFunctions | None = None
        self._reported = _Reported()
        self._relevance = CardEvents()
        self._last_uses: Mapping[str, Use] = {}
        self._sure = asyncio.Event()  # what is offered was all that is desired

    async def run(self) -> None:
        self._desired.read()
        async with AsyncExitStack() as stack:
            # Listening begins before the first look, so that nothing falls between the two.
            announcements = await kernel_events.listen(self._needs.kernel, stack)
            async with asyncio.TaskGroup() as tasks:
                serve = self._needs.serve
                offers = ResourceServers(
                    tasks, lambda one, pool: serve(one, self._handlers.answers(pool))
                )
                if self._needs.functions:
                    sources, node = self._needs.functions, self._needs.node
                    self._functions = VirtualFunctions(sources, tasks, node, self._changes.touch)
                # Where a listener breaks off the agent ends, to listen again.
                concern = self._relevance.concern
                heard = kernel_events.listeners(announcements, self._changes, concern)
                start(tasks, heard, ends=KubeError)
                start(tasks, self._parts(offers))
                deaf = len(announcements) < len(self._needs.kernel.announcements)

                async def follow() -> None:
                    burst = False
                    while True:
                        waits = [await self._look(offers), SETTLE if burst else None]
                        waits += [DEAF_SECONDS if deaf else None, self._desired.rescan]
                        burst = await self._wait(min(filter(None, waits), default=None))

                await kept("device plugin", follow, ends=KubeError)

    def _parts(self, offers: ResourceServers) -> Mapping[str, Part]:
        """Return the tasks that run beside the main loop and the kernel's listeners, by name."""
        needs = self._needs
        parts: dict[str, Part] = {
            "configuration": self._desired.follow,
            "node": partial(needs.node.follow, self._node_seen),
            "kubelet's view": partial(self._kubelet.compare, offers),
            "distances of GPUs": partial(self._kubelet.report, offers),
            "stale bindings": needs.late.sweep,
            "late binding": partial(needs.late.follow, self._changes.touch),
        }
        parts |= {keeper.part: keeper.run for keeper in needs.keepers}
        if needs.metrics:
            needs.metrics.changed = self._changes.touch
            parts |= needs.metrics.parts
        if needs.networks:
            parts["networks"] = partial(needs.networks.run, needs.late)
        if needs.claims:  # whose publisher of slices shows those of others too
            parts["claims"] = needs.claims.run
        else:
            parts["GPUs by claim"] = needs.kubelet.slices.follow
        if needs.neighbours:
            needs.neighbours.changed = self._changes.touch
            parts["neighbours"] = needs.neighbours.run
        if needs.health:
            parts["health"] = partial(needs.health, HealthChecks(self._checks(offers)))
        if needs.policies:
            parts["node policies"] = partial(needs.policies.follow, self._policies_seen)
        return parts

    def _checks(self, offers: ResourceServers) -> Mapping[str, Check]:
        """Return the health checks of the agent; a faulty card fails none of them."""
        needs = self._needs
        checks: dict[str, Check] = {
            "offer": lambda: () if self._sure.is_set() else (_NOT_SURE,),
            "kubelet": offers.unregistered,
        }
        if needs.node.has_cluster:
            checks["api-server"] = needs.node.unreached
        if needs.networks:
            checks["networks"] = needs.networks.unsettled
        return checks

    async def _wait(self, seconds: float | None) -> bool:
        """Wait for a burst of changes, `seconds`, or a new state of an InfiniBand port.

        Return True for the burst, False for the others.
        """
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
            if await kernel_events.differ(self._needs.kernel, ports):
                return False

    async def _look(self, offers: ResourceServers) -> float | None:
        """Look, act, report, publish all pools; return the seconds to the next round, or None."""
        # Gathered: what is desired, who holds what, what the kernel shows.
        gathered = await self._gather(offers)
        # Judged: what the node comes to, by rules alone.
        now = asyncio.get_running_loop().time()
        verdict = node_health.evaluate(gathered.facts, self._health, now)
        # Told: people first, who may ask why; then the kubelet, and all that follow its pools.
        self._report(gathered, verdict)
        served = self._served(gathered, verdict)
        offers.publish(served.pools)
        if metrics := self._needs.metrics:
            kept_resources = [spec.resource for spec in self._modes.stage.kept]
            metrics.looked(offers.pools, kept_resources, gathered.facts.survey.namespace_mode)
            metrics.judged(verdict.assessment, self._health)  # the health before this look
        self._health = verdict.assessment.health
        await self._number_rails(gathered, verdict)
        self._tell_keepers(gathered, verdict, served)
        await self._tell_followers(offers)
        again = self._next_look(gathered, verdict, served)
        log.debug("node looked at", pools=len(served.pools), next_in=again)
        return again

    async def _gather(self, offers: ResourceServers) -> _Gathered:
        """Read desired specs, holdings and hardware, in this order, and act on them.

        Modes of pools change here, and changes of virtual functions begin. The order matters: a
        pod may start, and the label may change, at any moment.
        """
        wanted, followed = self._desired.specs, self._desired.followed
        holdings = await self._kubelet.holdings()
        survey, missing = await asyncio.to_thread(kernel_events.look, self._needs.kernel)
        self._relevance.surveyed(survey)
        before, self._reported.survey = self._reported.survey, survey
        servers.log_faults(before, survey)
        for note in self._reported.notices.news("note", *discovery.notes(survey)):
            log.warning("note", text=note)
        await self._modes.meet(wanted, holdings)
        if self._needs.keepers or asked_uses(self._modes.stage.specs):  # a report shows them
            survey = survey.with_uses(await self._uses(survey))
        changing = None
        if self._functions:
            desired = self._desired.functions
            changing = await self._functions.look(desired, survey, holdings, offers.pools)
        self._kubelet.gpus = survey.gpus
        facts = await self._facts(survey, missing, holdings, offers)
        return _Gathered(wanted, followed, holdings, facts, changing)

    async def _facts(
        self,
        survey: Survey,
        missing: Collection[str],
        holdings: Sequence[Holding] | None,
        offers: ResourceServers,
    ) -> node_health.NodeFacts:
        """Note absent cards, and return the node's facts; records are read after the survey."""
        specs, kept = self._modes.stage.specs, self._modes.stage.kept
        held = held_cards(holdings or (), (*specs, *kept))
        alone = node_health.node_cards(survey)
        # A function that is being made has no interface until its driver is through with it.
        unsure = holdings is None or self._making
        self._absent.look(alone, None if unsure else held, offers.pools)
        return node_health.NodeFacts(
            survey,
            alone,
            specs,
            self._desired.functions,
            kept=kept,
            held=held,
            missing=missing,
            inside=await self._needs.late.now.links_inside(alone),
            leaving=self._functions.leaving if self._functions else (),
            gone=self._absent.gone,
            stays=self._absent.stays(offers.pools, specs),
        )

    def _served(self, gathered: _Gathered, verdict: node_health.NodeVerdict) -> _Served:
        """Return the pools for the kubelet, which offer it nothing that claims hold."""
        booked, pools = self._kubelet.claims.booked, verdict.pools
        held = plugin_shares(gathered.holdings, booked)
        if self._needs.claims:
            pools = for_plugin(pools, booked, held, self._needs.claims.published())
        return _Served(pools, booked, held)

    def _next_look(
        self, gathered: _Gathered, verdict: node_health.NodeVerdict, served: _Served
    ) -> float | None:
        """Return the seconds until something may have changed without an event; None for never."""
        facts = gathered.facts
        withheld = any(facts.held.get(spec.resource) for spec in facts.kept)
        waits = [verdict.assessment.again, self._absent.now.again, gathered.changing]
        waits += [PENDING_SECONDS if self._modes.stage.pending else None]
        waits += [KEPT_SECONDS if withheld else None]
        if self._needs.claims:
            unready = waiting(verdict.pools, served.pools, served.booked)
            moved = [pool.spec for pool in verdict.pools if pool.spec.serve is model.Serving.CLAIMS]
            held = served.held or {}
            waits += [PENDING_SECONDS if unready else None]
            unsure = served.held is None or any(held.get(spec.resource) for spec in moved)
            waits += [KEPT_SECONDS if unsure else None]
        return min(filter(None, waits), default=None)

    def _node_seen(self, node: NodeState) -> None:
        """Handle a new state of the Node object."""
        wanted = self._desired.specs
        if self._needs.own.seen(node):
            self._changes.touch()
        self._desired.label(node)
        if self._desired.specs != wanted:
            self._doubt()
        for keeper in self._needs.keepers:
            keeper.seen(node)
        if self._needs.policies:
            self._needs.policies.seen(node)

    def _policies_seen(self, specs: model.NodeSpecs, refusals: tuple[Refused, ...]) -> None:
        """Handle the policies for this node, and report those that contradict each other."""
        wanted = self._desired.specs
        self._desired.policies(specs, refusals)
        self._tell_once("policies overlap", specs.overlaps, NodeEvent.POLICIES_OVERLAP)
        if self._desired.specs != wanted:
            self._doubt()
        self._changes.touch()

    def _doubt(self) -> None:
        """Tell the keepers that this node's offer is not yet as desired."""
        for keeper in self._needs.keepers:
            keeper.doubted()

    def _tell_keepers(
        self, gathered: _Gathered, verdict: node_health.NodeVerdict, served: _Served
    ) -> None:
        """Pass this round's results to the keepers, and whether the offer is as desired by now."""
        survey, staged = gathered.facts.survey, self._modes.stage
        neighbours = self._needs.neighbours
        self._cards = next_state(self._cards, verdict, staged.specs, survey)
        look = AgentLook(
            __version__,
            survey,
            verdict,
            self._cards,
            staged.pending,
            self._desired.refusals,
            self._desired.overlaps,
            gathered.followed,
            self._functions.plan if self._functions else model.FunctionsPlan(),
            self._needs.rails.numbers,
            served.held,
            tuple(self._needs.networks.attachments()) if self._needs.networks else (),
            served.pools,
            self._needs.metrics.problem if self._needs.metrics else "",
            neighbours.look(verdict.pools, survey) if neighbours else {},
        )
        for keeper in self._needs.keepers:
            keeper.look(look)
        unknown = self._needs.policies is not None and not self._needs.policies.are_known
        if self._making or unknown or gathered.wanted != self._desired.specs:
            self._doubt()
        else:
            self._sure.set()

    async def _tell_followers(self, offers: ResourceServers) -> None:
        """Pass the offered pools to late binding, device info files, claims and pod networks."""
        self._needs.late.now.offered(offers.pools)
        await self._handlers.offered(offers.pools)
        if self._needs.claims:
            self._needs.claims.offered(offers.pools)
        if self._needs.networks:
            kept = [spec.resource for spec in self._modes.stage.kept]
            self._needs.networks.offered(offers.pools, kept)

    @property
    def _making(self) -> bool:
        """Return whether virtual functions are being made or removed at this moment."""
        return self._functions is not None and self._functions.busy

    async def _uses(self, survey: Survey) -> Mapping[str, Use]:
        """Return how the node uses its interfaces.

        Return the last answer while the kernel gives none.
        """
        names = [netdev.name for one in survey.functions for netdev in one.netdevs]
        try:
            self._last_uses = await asyncio.to_thread(self._needs.kernel.uses, names)
        except Unavailable as error:
            self._tell_once("use of cards unknown", [str(error)])
        return self._last_uses

    def _report(self, gathered: _Gathered, verdict: node_health.NodeVerdict) -> None:
        """Report news about cards and pools to the log and as Events."""
        facts = gathered.facts
        self._tell_cards(verdict, facts, gathered.holdings or ())
        renumbered = late_binding.renumbered(facts.specs, facts.survey.namespace_mode)
        self._tell_once("pool bound early", renumbered)
        self._tell_once("card claimed by two pools", map(str, verdict.clashes))
        self._tell_once("card not free", verdict.taken)
        self._tell_once("virtual functions of range missing", verdict.beyond)
        self._tell_once("card left to the node", verdict.spared)
        self._tell_once("card configured by others", verdict.dynamic)
        names = {card.id: card.name for card in verdict.cards}
        left_out = (f"{names[card]} is in no pool: {why}" for card, why in verdict.left_out.items())
        self._tell_once("card in no pool", left_out, NodeEvent.CARD_IN_NO_POOL)

    def _tell_cards(
        self,
        verdict: node_health.NodeVerdict,
        facts: node_health.NodeFacts,
        holdings: Sequence[Holding],
    ) -> None:
        """Report changes in the health of pool cards; tell pod networks which are healthy again."""
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
        left = node_health.why_left(facts, before.keys() - names.keys())
        for card, why in sorted(left.items()):
            log.warning("card left the pool", card=before[card], why=why)
        for change in changes:
            seen_before = change.card in self._health
            name = names.get(change.card) or before.get(change.card)
            if name is None or (change.healthy and not self._health):
                continue  # the first look tells only what is wrong
            present = change.card in names
            if change.card not in left:
                servers.log_card(change, name, seen_before=seen_before, present=present)
            if seen_before or not change.healthy:
                of_pools = pods_with(holdings, whole_pools.get(change.card, ()))
                pods = dict.fromkeys((*pods_of(facts.held, change.card), *of_pools))
                self._needs.node.card(change, name, tuple(pods))
            if change.healthy and self._needs.networks:  # also one that was gone for long
                self._needs.networks.returned(change.card)
        reported = {change.card for change in changes}
        if self._health:
            servers.log_cards(before, names, reported | left.keys())

    async def _number_rails(self, gathered: _Gathered, verdict: node_health.NodeVerdict) -> None:
        """Number the rails of the offered cards, and report rails whose cards are missing."""
        rails, holdings = self._needs.rails, gathered.holdings
        offered = [card for pool in verdict.pools for card in pool.cards]
        idle = holdings is not None and not any(holding.shares for holding in holdings)
        await rails.see(offered, gathered.facts.cards, self._desired.rails, idle=idle)
        sentences = filter(None, [rails.without_cards])
        self._tell_once("rails without cards", sentences, NodeEvent.RAILS_WITHOUT_CARDS)

    def _tell_once(
        self, event: str, sentences: Iterable[str], also: NodeEvent | None = None
    ) -> None:
        """Log each sentence of an event once while it is true; with `also` record an Event too."""
        for sentence in self._reported.notices.news(event, *sentences):
            log.warning(event, what=sentence)
            if also:
                self._needs.node.tell(also, sentence)
