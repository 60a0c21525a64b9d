"""Gives pods the networks that they ask for: what CNI ADD, DEL, CHECK, GC and STATUS mean here.

    shim ─ Call ─► annotation, NADs ─ api ─► wishes ─ rules/attach/seats ─► seats
      ─ IPAM ─► given ─ rules/attach/plan ─► plans ─ attaching ─► kernel ─► late binding, status

What other CNI plugins make goes from wishes to plans by rules/attach/foreign_plugins, and to their
binaries. A pod that asks for nothing is let through at once. Whatever fails after addresses were
taken gives everything back and answers with one sentence, which the kubelet shows in the pod's
event before it tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import structlog

from kube_rdma.model.attachment import (
    Attached,
    Attachment,
    Given,
    GrantedShare,
    HostNetwork,
    NetworkSeat,
    Plan,
    Sandbox,
    Wish,
)
from kube_rdma.model.binding import ContainerId, Edits, HeldShare, PodName
from kube_rdma.model.card import CardId
from kube_rdma.model.cni import Call, CniResult, Verb
from kube_rdma.model.device import Device
from kube_rdma.model.errors import Broken, HardwareGone, KubeRdmaError, Unavailable
from kube_rdma.model.holding import Holding
from kube_rdma.model.ip import Ask, IPPool, PodUid, PoolName
from kube_rdma.model.pod import PodState
from kube_rdma.programs.agent.pod_networks.executor import Attaching, is_there
from kube_rdma.programs.agent.pod_networks.guid_claims import Guids
from kube_rdma.programs.agent.pod_networks.requests import Asking, Documents, asking, meant
from kube_rdma.programs.ipam.port import Giver
from kube_rdma.rules.attach import foreign_plugins, plan
from kube_rdma.rules.attach.addresses import given, owner
from kube_rdma.rules.attach.pod_networks import with_card_addresses, with_default_routes
from kube_rdma.rules.attach.requests import POD_NETWORKS, in_order, refuse_host_network, wishes
from kube_rdma.rules.attach.result import as_named, attached, edits, rdma_names
from kube_rdma.rules.attach.seats import seats, with_pods

if TYPE_CHECKING:
    from kube_rdma.api.network_definition import NetworkDefinition

log = structlog.get_logger()


class NodeView(Documents, Protocol):
    """What planning asks about node and pod; node_view.py has the real one."""

    async def pod(self, name: PodName, uid: str) -> PodState | None:
        """The pod's object, if it is this very one."""

    async def holdings(self, pod: PodName) -> tuple[Holding, ...]:
        """What its containers hold, by the kubelet."""

    def granted(self, holdings: Sequence[Holding]) -> tuple[GrantedShare, ...]:
        """The shares among them, container by container."""

    async def host(
        self, wishes: Sequence[Wish] | None = None, granted: Sequence[GrantedShare] = ()
    ) -> HostNetwork:
        """Links and RDMA of the node now, as far as these networks need them; None: all of it."""

    async def with_settings(self, placed: tuple[NetworkSeat, ...]) -> tuple[NetworkSeat, ...]:
        """The same, virtual functions that move into the pod with what they are set to now."""

    async def refuse_full(self, planned: Sequence[Plan]) -> None:
        """Raise Refused where a card has no GIDs left for the addresses of these plans."""

    async def devices(self, names: Sequence[str]) -> tuple[tuple[Device, ...], str | None]:
        """These RDMA devices as they are now, and the connection manager's node."""

    def rail(self, card: CardId) -> int | None:
        """The card's number among those of the node that are alike, from 0."""

    async def pool(self, name: PoolName) -> IPPool:
        """A pool as it is now."""

    async def tell(self, pod: PodState, interfaces: Sequence[Attached], call: Call) -> None:
        """Write the pod's status annotations; `call` brings what earlier plugins made."""


class LateBinding(Protocol):
    """Binds the pod's promised devices; programs/agent/late_binding/binder."""

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind every promise of the pod: to `edits` of its shares, else to the cards' own nodes.

        `holdings` are all of the pod's; None: the kubelet is asked.
        """

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox."""


@dataclass(frozen=True)
class ChainDependencies:
    """Whom pod networks need."""

    node: NodeView
    giver: Giver
    late: LateBinding
    inode: Callable[[int], int]  # of the namespace behind a descriptor
    others: Callable[[], frozenset[ContainerId]] = frozenset  # what has addresses by other calls
    guids: Guids | None = None  # None: nobody else on this node gives any


@dataclass(frozen=True, slots=True)
class _PodPlace:
    """What a pod gets, and where: all that is known before anything is taken for it."""

    wished: tuple[Wish, ...]
    definitions: dict[str, NetworkDefinition]
    holdings: tuple[Holding, ...]
    host: HostNetwork
    seats: tuple[NetworkSeat, ...]
    called: tuple[Plan, ...]  # what other plugins make


class PodNetworks:
    """All calls of this node; those for one sandbox go one after the other."""

    def __init__(self, to: ChainDependencies, attaching: Attaching) -> None:
        self._to = to
        self._attaching = attaching
        self._guids = to.guids or Guids(lambda: attaching.attachments)
        # The runtime keeps order among its own calls, repair.py makes more.
        self._turns: WeakValueDictionary[ContainerId, asyncio.Lock] = WeakValueDictionary()
        self._verbs: dict[Verb, Callable[[Call], Awaitable[CniResult]]] = {
            Verb.ADD: self._add,
            Verb.DEL: self._del,
            Verb.CHECK: self._check,
            Verb.GC: self._gc,
            Verb.STATUS: self._status,
        }

    async def answer(self, call: Call) -> CniResult:
        """What the runtime gets; raise KubeRdmaError. Interfaces are reported to pods, not to it:

        the result is about the cluster's network, which stays as the earlier plugins made it.
        """
        if call.verb in (Verb.GC, Verb.STATUS):
            return await self._verbs[call.verb](call)
        async with self._turn(call.container):
            return await self._verbs[call.verb](call)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Every attachment that the journal has."""
        return self._attaching.attachments

    @property
    def foreign(self) -> frozenset[ContainerId]:
        """The sandboxes whose attachment another version of kube-rdma has made, see Attaching."""
        return self._attaching.foreign

    def now(self) -> float:
        """Take this before the runtime is asked which containers live, for `collect`."""
        return self._to.giver.now()

    async def end_lost(self, container: ContainerId) -> None:
        """End an attachment whose sandbox no longer exists; raise KubeRdmaError."""
        async with self._turn(container):
            await self.end(container)

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Free the addresses that no sandbox has; `living` are all of the runtime's, after `since`.

        The sandbox of an ADD that is under way is not among them yet, but in the journal.
        """
        begun = {one.sandbox.container for one in self.attachments}
        await self._to.giver.collect(living | begun | self._to.others(), since)

    def _turn(self, container: ContainerId) -> asyncio.Lock:
        return self._turns.setdefault(container, asyncio.Lock())

    async def recover(self) -> None:
        """After a start: end what no ADD has answered for, and what has lost its pod."""
        for attachment in self._attaching.attachments:
            pod = str(attachment.sandbox.pod)
            try:
                if attachment.complete and is_there(attachment.sandbox):
                    continue
                await self.end(attachment.sandbox.container)
                log.info("leftover attachment removed", pod=pod)
            except KubeRdmaError as error:
                log.warning("attachment removal failed", pod=pod, why=str(error))

    async def _add(self, call: Call) -> CniResult:
        if call.pod is None or call.netns is None:
            return CniResult()  # no pod of Kubernetes
        pod = await self._to.node.pod(call.pod, call.uid)
        if pod is None:
            raise Unavailable(f"The API server has no pod {call.pod} with uid {call.uid} yet.")
        asked = asking(pod, call.network)
        if not asked.asks:
            await self._refuse_idle(call.pod, asked)
            return CniResult()
        refuse_host_network(pod, asked.asks, asked.annotation)
        sandbox = Sandbox(
            call.container, call.pod, call.uid, call.netns_path, self._to.inode(call.netns)
        )
        attachment = self._attaching.of(call.container)
        if attachment and attachment.complete:
            return CniResult()  # an ADD that is repeated
        if self._attaching.has(call.container):
            await self.end(call.container)
        try:
            interfaces = await self._attach(call, sandbox, pod, asked)
        except Exception as error:
            log.warning("network attachment failed", pod=str(call.pod), why=str(error))
            await self._give_up(call)
            raise
        finally:
            self._guids.release(call.container)
        log.info(
            "attached",
            pod=str(call.pod),
            networks=",".join(f"{one.interface}={one.network}" for one in interfaces),
        )
        return CniResult()

    async def _attach(
        self, call: Call, sandbox: Sandbox, pod: PodState, asked: Asking
    ) -> tuple[Attached, ...]:
        # The journal notes the beginning while planning goes on; the note is on the disk before
        # anything is taken or undone.
        beginning = asyncio.ensure_future(self._attaching.begin(sandbox))
        try:
            place = await self._place(sandbox, asked)
        finally:
            await asyncio.gather(beginning, return_exceptions=True)
        beginning.result()
        leased = await self._addresses(sandbox, pod, place)
        given = with_card_addresses(place.seats, leased)
        placed = with_default_routes(place.seats, given)
        ours = plan.plans(sandbox, placed, given, place.host, place.called)
        await self._to.node.refuse_full(ours)
        assert call.netns is not None
        planned = in_order(place.wished, (*ours, *place.called))
        view = await self._attaching.attach(Attachment(sandbox, planned), call.netns)
        placed = as_named(placed, view)
        devices, rdma_cm = await self._to.node.devices(rdma_names(ours, placed))
        results = self._attaching.results(sandbox)
        made = foreign_plugins.attached(place.wished, place.called, view, results)
        mine = (
            replace(one, dns=place.definitions[one.network].ipam.dns)
            for one in attached(ours, placed, view, devices)
        )
        interfaces = in_order(place.wished, (*mine, *made))
        await self._to.late.attach(sandbox, edits(ours, placed, devices, rdma_cm), place.holdings)
        await self._to.node.tell(pod, interfaces, call)
        await self._attaching.complete(sandbox.container)
        return interfaces

    async def _place(self, sandbox: Sandbox, asked: Asking) -> _PodPlace:
        """What the pod gets and where, or a refusal; its GUIDs are claimed from now on."""
        meaning = asyncio.ensure_future(meant(asked, self._to.node))
        holding = asyncio.ensure_future(self._to.node.holdings(sandbox.pod))
        await asyncio.gather(meaning, holding, return_exceptions=True)
        (asks, definitions), holdings = meaning.result(), holding.result()
        granted = self._to.node.granted(holdings)
        networks = [one.network for one in definitions.values()]
        wished = wishes(asks, networks, holding=bool(granted))
        await self._refuse_missing(wished)
        asked.check(wished, granted)
        host = with_pods(await self._to.node.host(wished, granted), self._guids.attachments)
        placed = await self._to.node.with_settings(seats(wished, granted, host))
        self._guids.claim(sandbox, placed, host)
        called = foreign_plugins.plans(wished, granted, host)
        await self._attaching.ready(called)
        return _PodPlace(wished, definitions, holdings, host, placed, called)

    async def _refuse_idle(self, pod: PodName, asked: Asking) -> None:
        """Refuse a list without a network of kube-rdma beside shares that would be for one."""
        if asked.annotation == POD_NETWORKS:
            asked.check((), self._to.node.granted(await self._to.node.holdings(pod)))

    async def _refuse_missing(self, wished: Sequence[Wish]) -> None:
        """Refuse networks of plugins that nobody installed, before anything is done."""
        if foreign_plugins.foreign(wished):
            foreign_plugins.refuse_missing(wished, *await self._attaching.installed())

    async def _addresses(
        self, sandbox: Sandbox, pod: PodState, place: _PodPlace
    ) -> tuple[Given, ...]:
        """One request for all interfaces: they get all addresses or none."""
        from kube_rdma.api.ip_conf import nic_ask

        nics = []
        for seat in place.seats:
            ask = seat.wish.ask
            conf = place.definitions[seat.wish.network.name].ipam
            rail = self._to.node.rail(seat.card.id) if seat.card else None
            pooled = ask.addresses if seat.wish.network.pools else ()  # others are set as they are
            wanted = tuple(one.address for one in pooled)
            if nic := nic_ask(conf, ask.interface, rail, wanted, owner(pod, ask.interface)):
                nics.append(nic)
        if not nics:
            return ()
        request = Ask(sandbox.container, PodUid(pod.uid), tuple(nics))
        granted = await self._to.giver.add(request)
        pools = {name: await self._to.node.pool(name) for name in {nic.pool for nic in nics}}
        return tuple(given(nic.interface, granted.leases, pools[nic.pool]) for nic in nics)

    async def end(self, container: ContainerId) -> None:
        """Give everything of a sandbox back, in the order in which others may have it.

        The record goes last: until then whatever comes in between is made up for. Raise Gone when a
        card is nowhere now: its record stays, the addresses do not.
        """
        await self._attaching.refuse_foreign(container)
        await self._to.late.detach(container)
        try:
            await self._attaching.detach(container)
        except HardwareGone:
            await self._to.giver.delete(container)
            raise
        await self._to.giver.delete(container)
        await self._attaching.forget(container)

    async def _give_up(self, call: Call) -> None:
        """End what an ADD has begun; why that fails is for the log, the pod has its own reason."""
        try:
            await self.end(call.container)
        except KubeRdmaError as error:
            log.warning("cleanup failed", pod=str(call.pod), why=str(error))

    async def _del(self, call: Call) -> CniResult:
        """A pod does not wait for a card that is nowhere; the rounds of repair.py do."""
        try:
            await self.end(call.container)
        except HardwareGone as error:
            log.warning("card missing", pod=str(call.pod), why=str(error))
        return CniResult()

    async def _check(self, call: Call) -> CniResult:
        if call.netns is None or not self._attaching.has(call.container):
            return CniResult()
        wrong = await self._attaching.look(call.container, call.netns)
        if wrong:
            raise Broken(" ".join(f"{line}." for line in wrong))
        return CniResult()

    async def _gc(self, call: Call) -> CniResult:
        """End what the runtime does not know any more; one that cannot be ended holds up no other.

        An attachment without an answered ADD may be under way, and is the recovery's.
        """
        since = self.now()
        living = frozenset(one.container for one in call.valid)
        failed: list[KubeRdmaError] = []
        for attachment in self._attaching.attachments:
            if attachment.sandbox.container not in living and attachment.complete:
                log.info("orphaned attachment detected", pod=str(attachment.sandbox.pod))
                try:
                    await self.end_lost(attachment.sandbox.container)
                except KubeRdmaError as error:
                    failed.append(error)
        await self.collect(living, since)
        if failed:
            raise failed[0]
        return CniResult()

    async def _status(self, call: Call) -> CniResult:
        """In the cluster's own network an error would make the node NotReady, for all pods."""
        if call.marked:
            return CniResult()
        problems = await self._to.giver.check()
        if problems:
            raise Broken(" ".join(map(str, problems)))
        return CniResult()
