"""Gives pods the networks that they ask for: what CNI ADD, DEL, CHECK, GC and STATUS mean here.

    shim ─ Call ─► annotation, NADs ─ api ─► wishes ─ rules/attach_cards ─► seats
      ─ IPAM ─► given ─ rules/attach ─► plans ─ attaching ─► kernel ─► late binding, status

A pod that asks for nothing is let through at once. Whatever fails after addresses were taken gives
everything back and answers with one sentence, which the kubelet shows in the pod's event before it
tries again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from kube_rdma.api.ip_conf import nic_ask
from kube_rdma.api.network_definition import Definition
from kube_rdma.api.networks import asks
from kube_rdma.model.attachment import (
    Attached,
    Attachment,
    Given,
    GivenAddress,
    GrantedShare,
    HostNetwork,
    NetworkAsk,
    NetworkKind,
    NetworkRoute,
    Plan,
    Sandbox,
    Seat,
    Wish,
)
from kube_rdma.model.binding import ContainerId, Edits, HeldShare, PodName
from kube_rdma.model.card import CardId
from kube_rdma.model.cni import Call, Result, Verb
from kube_rdma.model.device import Device
from kube_rdma.model.errors import Broken, KubeRdmaError, Unavailable
from kube_rdma.model.ip import Ask, IPPool, Lease, NicAsk, Owner, PodUid, PoolName, Route
from kube_rdma.model.pod import PodState
from kube_rdma.programs.agent.attaching import Attaching, is_there
from kube_rdma.programs.ipam.port import Giver
from kube_rdma.rules import attach
from kube_rdma.rules.attach_cards import seats
from kube_rdma.rules.attach_seen import attached, char_paths, rdma_names
from kube_rdma.rules.ip_grant import Granted
from kube_rdma.rules.networks import ANNOTATION, refuse_host_network, refused, wishes

log = structlog.get_logger()


class Node(Protocol):
    """What planning asks about node and pod; programs/agent/network_node has the real one."""

    async def pod(self, name: PodName, uid: str) -> PodState | None:
        """The pod's object, if it is this very one."""

    async def definition(self, namespace: str, name: str) -> Definition | None:
        """A network's document; raise Refused with all of its faults."""

    async def granted(self, pod: PodName) -> tuple[GrantedShare, ...]:
        """The shares of its containers, container by container."""

    async def host(self) -> HostNetwork:
        """Links and RDMA of the node now."""

    async def devices(self, names: Sequence[str]) -> tuple[tuple[Device, ...], str | None]:
        """These RDMA devices as they are now, and the connection manager's node."""

    def rail(self, card: CardId) -> int | None:
        """The card's number among those of the node that are alike, from 0."""

    async def pool(self, name: PoolName) -> IPPool:
        """A pool as it is now."""

    async def tell(self, pod: PodState, found: Sequence[Attached], call: Call) -> None:
        """Write the pod's status annotations; `call` brings what plugins before us made."""


class LateBinding(Protocol):
    """Binds the pod's promised devices; programs/agent/binder."""

    async def attach(self, sandbox: Sandbox, edits: Mapping[HeldShare, Edits]) -> object:
        """Bind every promise of the pod: to `edits` of its shares, else to the cards' own nodes."""

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox."""


@dataclass(frozen=True)
class Neighbours:
    """Whom pod networks need."""

    node: Node
    giver: Giver
    late: LateBinding
    inode: Callable[[int], int]  # of the namespace behind a descriptor


class PodNetworks:
    """All calls of this node; those for one sandbox come one after the other from the runtime."""

    def __init__(self, to: Neighbours, attaching: Attaching) -> None:
        self._to = to
        self._attaching = attaching
        self._verbs: dict[Verb, Callable[[Call], Awaitable[Result]]] = {
            Verb.ADD: self._add,
            Verb.DEL: self._del,
            Verb.CHECK: self._check,
            Verb.GC: self._gc,
            Verb.STATUS: self._status,
        }

    async def answer(self, call: Call) -> Result:
        """What the runtime gets; raise KubeRdmaError. Our interfaces are told to pods, not to it:

        the result is about the cluster's network, which stays as the plugins before us made it.
        """
        return await self._verbs[call.verb](call)

    async def recover(self) -> None:
        """After a start: end what no ADD has answered for, and what has lost its pod."""
        for known in self._attaching.known:
            pod = str(known.sandbox.pod)
            try:
                if known.complete and is_there(known.sandbox):
                    continue
                await self.end(known.sandbox.container)
                log.info("an attachment of before was ended", pod=pod)
            except KubeRdmaError as error:
                log.warning("an attachment cannot be ended now", pod=pod, why=str(error))

    async def _add(self, call: Call) -> Result:
        if call.pod is None or call.netns is None:
            return Result()  # no pod of Kubernetes
        pod = await self._to.node.pod(call.pod, call.uid)
        if pod is None:
            raise Unavailable(f"The API server has no pod {call.pod} with uid {call.uid} yet.")
        asked = asks(dict(pod.annotations).get(ANNOTATION, ""), pod.namespace)
        if not asked:
            return Result()
        refuse_host_network(pod, asked)
        sandbox = Sandbox(
            call.container, call.pod, call.uid, call.netns_path, self._to.inode(call.netns)
        )
        known = self._attaching.of(call.container)
        if known and known.complete:
            return Result()  # an ADD that is repeated
        if known:
            await self.end(call.container)
        try:
            found = await self._attach(call, sandbox, pod, asked)
        except Exception as error:
            log.warning("a pod gets no network", pod=str(call.pod), why=str(error))
            await self._give_up(call)
            raise
        log.info(
            "attached",
            pod=str(call.pod),
            networks=",".join(f"{one.interface}={one.network}" for one in found),
        )
        return Result()

    async def _attach(
        self, call: Call, sandbox: Sandbox, pod: PodState, asked: Sequence[NetworkAsk]
    ) -> tuple[Attached, ...]:
        definitions = await self._definitions(asked)
        wished = wishes(asked, [one.network for one in definitions.values()])
        _refuse_foreign(wished)
        granted = await self._to.node.granted(sandbox.pod)
        host = await self._to.node.host()
        placed = seats(wished, granted, host)
        await self._attaching.begin(sandbox)
        given = await self._addresses(sandbox, pod, placed, definitions)
        planned = attach.plans(sandbox, placed, given, host)
        assert call.netns is not None
        view = await self._attaching.attach(Attachment(sandbox, planned), call.netns)
        devices, rdma_cm = await self._to.node.devices(rdma_names(planned, placed))
        found = attached(planned, placed, view, devices)
        await self._to.late.attach(sandbox, _edits(planned, placed, devices, rdma_cm))
        await self._to.node.tell(pod, found, call)
        await self._attaching.complete(sandbox.container)
        return found

    async def _definitions(self, asked: Sequence[NetworkAsk]) -> dict[str, Definition]:
        """The documents that the pod names, those that there are, by namespace/name."""
        names = dict.fromkeys((ask.namespace, ask.network) for ask in asked)
        found = {name: await self._to.node.definition(*name) for name in names}
        return {"/".join(name): one for name, one in found.items() if one}

    async def _addresses(
        self,
        sandbox: Sandbox,
        pod: PodState,
        placed: Sequence[Seat],
        definitions: dict[str, Definition],
    ) -> tuple[Given, ...]:
        """One request for all interfaces: they get all addresses or none."""
        nics = []
        for seat in placed:
            ask = seat.wish.ask
            conf = definitions[seat.wish.network.name].ipam
            rail = self._to.node.rail(seat.card.id) if seat.card else None
            wanted = tuple(one.address for one in ask.addresses)
            owner = (
                Owner(f"{pod.namespace}/{pod.name}/{ask.interface}") if _is_sticky(pod) else None
            )
            if nic := nic_ask(conf, ask.interface, rail, wanted, owner):
                nics.append(nic)
        if not nics:
            return ()
        request = Ask(sandbox.container, PodUid(pod.uid), tuple(nics))
        granted = await self._to.giver.add(request)
        pools = {
            name: await self._to.node.pool(name) for name in dict.fromkeys(nic.pool for nic in nics)
        }
        return tuple(_given(nic, granted, pools[nic.pool]) for nic in nics)

    async def end(self, container: ContainerId) -> None:
        """Give everything of a sandbox back, in the order in which others may have it.

        The record goes last: until then whatever comes in between is made up for.
        """
        await self._to.late.detach(container)
        await self._attaching.detach(container)
        await self._to.giver.delete(container)
        await self._attaching.forget(container)

    async def _give_up(self, call: Call) -> None:
        """End what an ADD has begun; why that fails is for the log, the pod has its own reason."""
        try:
            await self.end(call.container)
        except KubeRdmaError as error:
            log.warning("it cannot be ended now", pod=str(call.pod), why=str(error))

    async def _del(self, call: Call) -> Result:
        await self.end(call.container)
        return Result()

    async def _check(self, call: Call) -> Result:
        if call.netns is None or self._attaching.of(call.container) is None:
            return Result()
        wrong = await self._attaching.look(call.container, call.netns)
        if wrong:
            raise Broken(" ".join(f"{line}." for line in wrong))
        return Result()

    async def _gc(self, call: Call) -> Result:
        """End what the runtime does not know any more; one that cannot be ended holds up no other.

        An attachment without an answered ADD may be under way, and is the recovery's.
        """
        living = {one.container for one in call.valid}
        failed: list[KubeRdmaError] = []
        for known in self._attaching.known:
            if known.sandbox.container not in living and known.complete:
                log.info("an attachment has lost its pod", pod=str(known.sandbox.pod))
                try:
                    await self.end(known.sandbox.container)
                except KubeRdmaError as error:
                    failed.append(error)
        if failed:
            raise failed[0]
        return Result()

    async def _status(self, _: Call) -> Result:
        problems = await self._to.giver.check()
        if problems:
            raise Broken(" ".join(map(str, problems)))
        return Result()


def _refuse_foreign(wished: Sequence[Wish]) -> None:
    """A network that we cannot make is refused: a pod must not start without it in silence."""
    for wish in wished:
        if wish.network.kind is NetworkKind.OTHER:
            raise refused(
                wish,
                "type",
                f"networks of type {wish.network.plugin} are not made by kube-rdma",
                "Use macvlan, ipvlan, ipoib or host-device, or let Multus make this one",
            )


def _edits(
    plans: Sequence[Plan], placed: Sequence[Seat], devices: Sequence[Device], rdma_cm: str | None
) -> dict[HeldShare, Edits]:
    """By share the device nodes of its interface's RDMA devices: each container gets its own."""
    by_name = {device.name: device for device in devices}
    found: dict[HeldShare, Edits] = {}
    for plan, seat in zip(plans, placed, strict=True):
        names = [name for name in rdma_names((plan,), (seat,)) if name in by_name]
        if plan.held and names:
            before = found.get(plan.held, Edits()).char_paths
            paths = char_paths([by_name[name] for name in names], rdma_cm)
            found[plan.held] = Edits(tuple(sorted({*before, *paths})))
    return found


def _is_sticky(pod: PodState) -> bool:
    """Whether the pod comes again under its name, as those of a StatefulSet do."""
    return any(key == "apps.kubernetes.io/pod-index" for key, _ in pod.labels)


def _given(nic: NicAsk, granted: Granted, pool: IPPool) -> Given:
    """What one interface got."""
    leases = [one for one in granted.leases if one.interface == nic.interface]
    addresses = tuple(
        GivenAddress(one.address, one.subnet.prefixlen, one.gateway) for one in leases
    )
    routes = tuple(
        NetworkRoute(one.to, one.via)
        for one in pool.routes
        if any(_reaches(lease, one) for lease in leases)
    )
    return Given(nic.interface, addresses, routes, pool.probe)


def _reaches(lease: Lease, route: Route) -> bool:
    """Whether a route of the pool is one of this NIC: its gateway may be another rail's."""
    if route.via is not None:
        return route.via in lease.subnet
    return route.to.version == lease.address.version
