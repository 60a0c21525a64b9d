"""The one procedure by which pods get networks and addresses, and by which all of it ends.

    door ─ request ─► record begun │ api, rules/attach/seats: place ─► IPAM ─► rules/attach/plan
      ─► executor: kernel, other CNI plugins ─► late binding ─► door ─ report ─► record complete

Behind the doors (door.py), which are three callers' ways to ask for the same. What was made is
known by container and interface. Whatever fails after something was taken gives everything back
and answers with one sentence, which the kubelet shows in the pod's event before it tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import Broken, KubeError, Unavailable
from kube_base.frozen import Frozen, field
from kube_rdma.adapters.cni.results import decoded
from kube_rdma.model.attach.attachment import (
    Attached,
    Attachment,
    AttachmentKey,
    Given,
    GrantedShare,
    HostNetwork,
    NetworkSeat,
    Plan,
    PluginResult,
    Sandbox,
    Wish,
)
from kube_rdma.model.attach.cni import Call, CniResult
from kube_rdma.model.attach.pod_view import PodView
from kube_rdma.model.errors import HardwareGone, Outdated
from kube_rdma.model.ipam import Ask, NicAsk
from kube_rdma.model.late_binding.binding import ContainerId
from kube_rdma.model.pools.holding import Holding
from kube_rdma.programs.agent.late_binding.interface import LateBinding
from kube_rdma.programs.agent.metrics.stopwatch import Stopwatch
from kube_rdma.programs.agent.pod_networks.claims import GuidClaims, SandboxLocks
from kube_rdma.programs.agent.pod_networks.door import (
    Again,
    AttachRequest,
    AttachResult,
    Door,
)
from kube_rdma.programs.agent.pod_networks.executor import (
    PlanExecutor,
    calls_plugins,
    is_there,
    plugin_calls,
)
from kube_rdma.programs.agent.pod_networks.outdated_pods import OutdatedPods
from kube_rdma.programs.ipam.address_provider import AddressProvider
from kube_rdma.rules.attach import foreign_plugins, ipam_plugins
from kube_rdma.rules.attach.addresses import given, owner
from kube_rdma.rules.attach.delegate import device_names, without_rules
from kube_rdma.rules.attach.plan import begun, plans
from kube_rdma.rules.attach.pod_networks import with_card_addresses, with_default_routes
from kube_rdma.rules.attach.requests import in_order
from kube_rdma.rules.attach.result import as_named, attached, edits, rdma_names
from kube_rdma.rules.attach.seats import with_pods
from kube_rdma.rules.late_binding import early
from kube_rdma.rules.metrics import families

if TYPE_CHECKING:
    from kube_rdma.api.attach.network_definition import NetworkDefinition
    from kube_rdma.programs.agent.pod_networks.node_view import NodeView

log = structlog.get_logger()

_FAILED = {True: "network attachment failed", False: "address request failed"}


class AttachDependencies(Frozen, kw_only=True):
    """Whom the procedure and its doors need; `inode` is of the namespace behind a descriptor.

    `everybodys` are the namespaces whose networks pods of all others may name; None: of any.
    `outdated` hears of pods that only a new one helps; None: nobody does.
    """

    node: NodeView
    giver: AddressProvider
    late: LateBinding
    attachments: PlanExecutor
    inode: Callable[[int], int]
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    everybodys: tuple[str, ...] | None = None
    outdated: OutdatedPods | None = None


class PodPlace(Frozen):
    """What a request gets, and where: all that is known before anything is taken for it.

    `called` is what other plugins make, `beside` what the sandbox has besides.
    """

    wished: tuple[Wish, ...]
    definitions: Mapping[str, NetworkDefinition]
    table: int | None
    holdings: tuple[Holding, ...]
    granted: tuple[GrantedShare, ...]
    host: HostNetwork
    seats: tuple[NetworkSeat, ...]
    called: tuple[Plan, ...]
    beside: tuple[Plan, ...]


class AttachPipeline:
    """All doors of this node have this one; calls for one sandbox go one after the other."""

    def __init__(self, to: AttachDependencies) -> None:
        self._to = to
        self._attachments = to.attachments
        self._guids = GuidClaims(to.attachments)
        self._sandboxes = SandboxLocks()

    async def add(self, call: Call, door: Door) -> CniResult:
        """Give a call what it asks for, and answer it; raise KubeError with nothing left."""
        async with self._sandboxes.taken(call.container, within=door.is_within):
            request = await door.request(call)
            if request is None or await self._is_answered(request):
                return CniResult()
            try:
                with self._to.stopwatch.timed(families.ATTACH, "add"):
                    answer = await self._attach(call, door, request)
            except Exception as error:
                event = _FAILED[request.networks is not None]
                log.warning(event, pod=str(call.pod), why=str(error))
                await self._give_up(request)
                if isinstance(error, Outdated) and request.pod and self._to.outdated:
                    await self._to.outdated.refused(request.pod, request.key.interface, error)
                raise
            finally:
                self._guids.release(request.key)
            if request.pod and self._to.outdated:
                await self._to.outdated.attached(request.pod, request.key.interface)
            return answer

    async def _attach(self, call: Call, door: Door, request: AttachRequest) -> CniResult:
        # The journal notes the beginning while planning goes on; the note is on the disk before
        # anything is taken or undone.
        beginning = asyncio.ensure_future(self._attachments.begin(request.key, request.sandbox))
        try:
            place = await self._place(request)
        finally:
            await asyncio.gather(beginning, return_exceptions=True)
        beginning.result()
        leased = await self._addresses(request, place)
        result = await self._make(request, place, leased) if place else AttachResult(leased)
        answer = await door.report(call, request, result)
        await self._attachments.complete(request.key)
        _log(request, result)
        return answer

    async def _is_answered(self, request: AttachRequest) -> bool:
        """Whether the ADD is one that is repeated; what it cannot stand on is ended."""
        before = self._attachments.of(request.key)
        if request.again is Again.ANSWERED and before and before.complete:
            return True
        if request.again is not Again.KEPT and self._attachments.has(request.key):
            await self._end(request.key)
        return False

    async def _place(self, request: AttachRequest) -> PodPlace | None:
        """What a request gets and where, or a refusal; its GUIDs are claimed from now on."""
        if (source := request.networks) is None:
            return None
        node, sandbox = self._to.node, request.sandbox
        asking = asyncio.ensure_future(source.asked())
        holding = asyncio.ensure_future(node.holdings(sandbox.pod))
        await asyncio.gather(asking, holding, return_exceptions=True)
        asked, holdings = asking.result(), holding.result()
        granted = node.granted(holdings)
        wished = source.wishes(asked, granted)
        foreign = foreign_plugins.foreign(wished)
        if foreign_plugins.called_for(wished):  # before anything is done
            foreign_plugins.refuse_missing(wished, *await self._attachments.installed())
        host = with_pods(await node.host(wished, granted), self._attachments.by_key.values())
        beside = self._attachments.beside(request.key)
        seats = source.seats(wished, granted, beside, host, asked.table)
        seats = ipam_plugins.with_calls(await node.with_settings(seats))
        self._guids.claim(request.key, sandbox, seats, host)
        called = foreign_plugins.plans(wished, granted, host) if foreign else ()
        await self._attachments.ready(
            (*plugin_calls(called), *(one.ipam for one in seats if one.ipam))
        )
        return PodPlace(
            wished=wished,
            definitions=asked.definitions,
            table=asked.table,
            holdings=holdings,
            granted=granted,
            host=host,
            seats=seats,
            called=called,
            beside=beside,
        )

    async def _addresses(self, request: AttachRequest, place: PodPlace | None) -> tuple[Given, ...]:
        """One request for all interfaces: they get all addresses or none."""
        nics = tuple(self._nics(request, place)) if place else request.nics
        if not nics:
            return ()
        namespace = request.sandbox.pod.namespace
        ask = Ask(request.key.container, request.uid, nics, namespace)
        with self._to.stopwatch.timed(families.IPAM):
            granted = await self._to.giver.add(ask)
        pools = {name: await self._to.node.pool(name) for name in {nic.pool for nic in nics}}
        return tuple(given(nic.interface, granted.leases, pools[nic.pool]) for nic in nics)

    def _nics(self, request: AttachRequest, place: PodPlace) -> Iterator[NicAsk]:
        from kube_rdma.api.ipam.ip_conf import nic_ask

        for seat in place.seats:
            ask, network = seat.wish.ask, seat.wish.network
            rail = self._to.node.rail(seat.card.id) if seat.card else None
            pooled = ask.addresses if network.pools else ()  # others are set as they are
            nic = nic_ask(
                place.definitions[network.name].ipam,
                ask.interface,
                rail,
                tuple(one.address for one in pooled),
                owner(request.pod, ask.interface) if request.pod else None,
            )
            if nic:
                yield nic

    async def _make(
        self, request: AttachRequest, place: PodPlace, leased: tuple[Given, ...]
    ) -> AttachResult:
        """Plan all steps and do them, and bind the pod's devices to what was made."""
        addresses = with_card_addresses(place.seats, leased)
        done, called_addresses = await self._ask_plugins(request, place)
        addresses = (*addresses, *called_addresses)
        seats = with_default_routes(place.seats, addresses)
        alone = request.key.interface is None
        own = plans(request.sandbox, seats, addresses, place.host, place.called, alone=alone)
        await self._to.node.refuse_full(own)
        if place.table is not None:
            own = tuple(map(without_rules, own))
        planned = in_order(place.wished, (*own, *place.called))
        view = await self._execute(request, planned, done)
        seats = as_named(seats, view)
        names = [(one, rdma_names((one,), (seat,))) for one, seat in zip(own, seats, strict=True)]
        names += [(one, device_names(one, place.granted)) for one in place.beside]
        every = dict.fromkeys(name for _, of_plan in names for name in of_plan)
        devices, rdma_cm = await self._to.node.devices(tuple(every))
        early.refuse_renumbered(own, seats, devices)
        answers = self._attachments.results(request.key)
        called = foreign_plugins.attached(place.wished, place.called, view, answers)
        ours = (_with_dns(one, place, answers) for one in attached(own, seats, view, devices))
        interfaces = in_order(place.wished, (*ours, *called))
        if place.beside:  # no container of the pod has been made yet that would use the old files
            await self._to.late.detach(request.key.container)
        bound = edits(names, place.granted, devices, rdma_cm)
        annotations = dict(request.pod.annotations) if request.pod else {}
        with self._to.stopwatch.timed(families.LATE_BINDING):
            await self._to.late.attach(request.sandbox, bound, annotations, place.holdings)
        return AttachResult(leased, own, interfaces, place.beside)

    async def _ask_plugins(
        self, request: AttachRequest, place: PodPlace
    ) -> tuple[tuple[Plan, ...], tuple[Given, ...]]:
        """Make the links whose addresses other IPAM plugins give, and have these; what was done."""
        alone = request.key.interface is None
        done = begun(request.sandbox, place.seats, place.host, place.called, alone=alone)
        if not done:
            return (), ()
        await self._execute(request, done)
        answers = {one.interface: one for one in self._attachments.results(request.key)}
        return done, tuple(
            ipam_plugins.given(seat, decoded(answers[seat.wish.ask.interface].document))
            for seat in place.seats
            if seat.ipam
        )

    async def _execute(
        self, request: AttachRequest, planned: tuple[Plan, ...], done: tuple[Plan, ...] = ()
    ) -> PodView:
        wanted = Attachment(request.sandbox, planned)
        async with self._while_plugins_run(request.key, planned):
            return await self._attachments.attach(request.key, wanted, request.netns, done)

    def _while_plugins_run(
        self, key: AttachmentKey, planned: Sequence[Plan]
    ) -> AbstractAsyncContextManager[None]:
        """Plugins of others may come back for addresses of the sandbox that is held for them."""
        return self._sandboxes.lent(key.container) if calls_plugins(planned) else nullcontext()

    async def _give_up(self, request: AttachRequest) -> None:
        """End what an ADD has begun; why that fails is for the log, the pod has its own reason."""
        try:
            await self._end(request.key)
        except KubeError as error:
            log.warning("cleanup failed", pod=str(request.sandbox.pod), why=str(error))

    async def end(self, key: AttachmentKey, *, within: bool = False) -> None:
        """Give everything of a key back; no error where there is nothing. Raise KubeError.

        `within`: the caller may act for whoever holds the sandbox.
        """
        async with self._sandboxes.taken(key.container, within=within):
            await self._end(key)

    async def _end(self, key: AttachmentKey) -> None:
        """In the order in which others may have it.

        The record goes last: until then whatever comes in between is made up for. Raise Gone when a
        card is nowhere now: its record stays, the addresses do not. LateBinding binding ends with
        the last interface, for its files are of the whole pod.
        """
        await self._attachments.refuse_foreign(key)
        attachment = self._attachments.of(key)
        is_made = attachment is not None and bool(attachment.plans)
        if key.interface is None or (is_made and not self._attachments.beside(key)):
            await self._to.late.detach(key.container)
        try:
            async with self._while_plugins_run(key, attachment.plans if attachment else ()):
                await self._attachments.detach(key)
        except HardwareGone:
            await self._to.giver.delete(key.container, key.interface)
            raise
        await self._to.giver.delete(key.container, key.interface)
        await self._attachments.forget(key)

    async def delete(self, call: Call, key: AttachmentKey, *, within: bool = False) -> CniResult:
        """DEL. A pod does not wait for a card that is nowhere; the rounds of repair.py do."""
        try:
            with self._to.stopwatch.timed(families.ATTACH, "delete"):
                await self.end(key, within=within)
        except HardwareGone as error:
            log.warning("card missing", pod=str(call.pod), why=str(error))
        return CniResult()

    async def check(self, call: Call, key: AttachmentKey) -> CniResult:
        """CHECK; raise Broken with what is not as it was planned."""
        if call.netns is None:
            return CniResult()
        with self._to.stopwatch.timed(families.ATTACH, "check"):
            async with self._sandboxes.taken(key.container):
                if wrong := await self._attachments.look(key, call.netns):
                    raise Broken(" ".join(f"{line}." for line in wrong))
        return CniResult()

    async def recover(self) -> None:
        """After a start: end what no ADD has answered for, and what has lost its pod."""
        for key, attachment in self._attachments.by_key.items():
            if not attachment.complete or not await _lives(attachment.sandbox):
                await self._end_left(key, attachment.sandbox)

    async def sweep(self) -> None:
        """End interfaces that have lost their pod: a caller that lost its notes says nothing of it.

        What the runtime called for is compared with its sandboxes by repair.py.
        """
        for key, attachment in self._attachments.by_key.items():
            if key.interface is None or not attachment.complete:
                continue
            if not await _lives(attachment.sandbox):
                await self._end_left(key, attachment.sandbox)

    async def _end_left(self, key: AttachmentKey, sandbox: Sandbox) -> None:
        facts = {"pod": str(sandbox.pod), "interface": key.interface or "all"}
        try:
            await self.end(key)
            log.info("leftover attachment removed", **facts)
        except KubeError as error:
            log.warning("attachment removal failed", **facts, why=str(error))

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Free the addresses that no sandbox has; `living` are all of the runtime's, after `since`.

        The sandbox of an ADD that is under way is not among them yet, but in the journal.
        """
        recorded = {key.container for key in self._attachments.keys}
        await self._to.giver.collect(living | recorded, since)


def _with_dns(interface: Attached, place: PodPlace, answers: Sequence[PluginResult]) -> Attached:
    """With that of the network's document, or of the IPAM plugin that answered for it."""
    answered = {one.interface: one.dns for one in answers}
    own = place.definitions[interface.network].ipam.dns
    return replace(interface, dns=answered.get(interface.interface, own))


async def _lives(sandbox: Sandbox) -> bool:
    """Whether the sandbox's namespace is there, as far as that can be seen."""
    try:
        return await asyncio.to_thread(is_there, sandbox)
    except Unavailable:
        return True


def _log(request: AttachRequest, result: AttachResult) -> None:
    pod = str(request.sandbox.pod)
    if request.networks:
        pairs = (f"{one.interface}={one.network}" for one in result.interfaces)
        log.info("attached", pod=pod, networks=",".join(pairs))
    else:
        addresses = (
            f"{one.address}/{one.prefix}" for each in result.given for one in each.addresses
        )
        interface = request.key.interface
        log.info("addresses assigned", pod=pod, interface=interface, addresses=",".join(addresses))
