"""Gives a pod one network at a time, for a meta-plugin that has read the pod's annotation.

    meta-plugin ─► shim ─ Call ─► origin ─ api/called_conf ─► wish ─ rules/attach/delegate ─► seat
      ─ IPAM ─► given ─ rules/attach/plan ─► plan ─ attaching ─► kernel ─► late binding ─► Result

Beside programs/agent/pod_networks/chain, which makes all networks of a pod in one call. Here the
caller gets a whole CNI result and writes the pod's network-status; the agent writes the annotation
about RDMA alone. Each interface has a record of its own in the journal, under container and
interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import structlog

from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.model.attachment import (
    Attached,
    Attachment,
    Given,
    NetworkAsk,
    NetworkSeat,
    Plan,
    Sandbox,
)
from kube_rdma.model.binding import ContainerId, PodName
from kube_rdma.model.cni import Call, CniResult, Verb
from kube_rdma.model.errors import Broken, HardwareGone, KubeRdmaError, Refused, Unavailable
from kube_rdma.model.ip import Ask, InterfaceName, PodUid, PoolName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pool import DeviceInfo
from kube_rdma.programs.agent.pod_networks import chain as all_at_once
from kube_rdma.programs.agent.pod_networks.executor import Attaching, is_there
from kube_rdma.programs.agent.pod_networks.guid_claims import Guids
from kube_rdma.programs.agent.pod_networks.origin import Origin, Texts, origin
from kube_rdma.programs.ipam.port import Giver
from kube_rdma.rules.attach import delegate
from kube_rdma.rules.attach.addresses import given, owner
from kube_rdma.rules.attach.plan import plans
from kube_rdma.rules.attach.pod_networks import with_card_addresses
from kube_rdma.rules.attach.requests import wishes
from kube_rdma.rules.attach.result import as_named, attached, rdma_names
from kube_rdma.rules.attach.seats import with_pods

if TYPE_CHECKING:
    from kube_rdma.api.ip_conf import IpamConf
    from kube_rdma.api.network_definition import NetworkDefinition

log = structlog.get_logger()


class DelegateNodeView(all_at_once.NodeView, Texts, Protocol):
    """What is asked besides about node and pod; node_view.py has the real one."""

    async def bring(self, ipam: IpamConf) -> None:
        """Make the pool that a document brings along, where it is missing."""

    async def tell_own(
        self, pod: PodState, interfaces: Sequence[Attached], others: frozenset[InterfaceName]
    ) -> None:
        """Write the own annotation; of what it has, entries about the interfaces `others` stay."""


@dataclass(frozen=True)
class DelegateDependencies(all_at_once.ChainDependencies):
    """Whom delegated networks need; without `infos` callers learn nothing of devices."""

    node: DelegateNodeView
    infos: DeviceInfoFolder | None = None


class Delegates:
    """The interfaces that other plugins called the agent for; calls for one sandbox take turns.

    `attaching` has a journal of its own: to it, container and interface are one sandbox.
    """

    def __init__(self, to: DelegateDependencies, attaching: Attaching) -> None:
        self._to = to
        self._attaching = attaching
        self._guids = to.guids or Guids(lambda: attaching.attachments)
        self._turns: WeakValueDictionary[ContainerId, asyncio.Lock] = WeakValueDictionary()

    @property
    def giver(self) -> Giver:
        """Who gives the addresses."""
        return self._to.giver

    @property
    def node(self) -> DelegateNodeView:
        """Whom to ask about pods and cards."""
        return self._to.node

    @property
    def containers(self) -> frozenset[ContainerId]:
        """The sandboxes that have something of kube-rdma."""
        keys = {
            one.sandbox.container for one in self._attaching.attachments
        } | self._attaching.foreign
        return frozenset(_split(key)[0] for key in keys)

    def has(self, container: ContainerId, interface: InterfaceName) -> bool:
        """Whether there is a record of this interface, finished or not."""
        return self._attaching.has(_key(container, interface))

    async def answer(self, call: Call) -> CniResult:
        """What the caller gets for ADD, CHECK and DEL; raise KubeRdmaError."""
        match call.verb:
            case Verb.ADD:
                return await self._add(call)
            case Verb.CHECK:
                return await self._check(call)
            case _:
                try:
                    await self.end(call.container, call.interface)
                except HardwareGone as error:  # a pod does not wait for a card that is nowhere
                    log.warning("card missing", pod=str(call.pod), why=str(error))
                return CniResult()

    def turn(self, container: ContainerId) -> asyncio.Lock:
        """Hold it while something is taken for a sandbox: a DEL may come before its ADD ends."""
        return self._turns.setdefault(container, asyncio.Lock())

    async def begin(self, call: Call) -> None:
        """Note that something is taken for an interface; raise Refused, Unavailable."""
        if call.netns is None:
            raise Unavailable("The pod's network namespace no longer exists.")
        await self._attaching.begin(_keyed(self._sandbox(call), call.interface))

    async def complete(self, call: Call) -> None:
        """Note that ADD is about to answer."""
        await self._attaching.complete(_key(call.container, call.interface))

    async def end(self, container: ContainerId, interface: InterfaceName) -> None:
        """Give everything of an interface back; no error when there is nothing."""
        async with self.turn(container):
            await self._end(container, interface)

    async def give_up(self, call: Call) -> None:
        """End what an ADD has begun; why that fails is for the log, the pod has its own reason."""
        try:
            await self.end(call.container, call.interface)
        except KubeRdmaError as error:
            log.warning("cleanup failed", pod=str(call.pod), why=str(error))

    async def recover(self) -> None:
        """After a start: end what no ADD has answered for, and what has lost its pod."""
        await self._end_all(one for one in self._attaching.attachments if not one.complete)
        await self.sweep()

    async def sweep(self) -> None:
        """End what has lost its pod: a meta-plugin that lost its cache says nothing of it."""
        done = [one for one in self._attaching.attachments if one.complete]
        await self._end_all([one for one in done if not await asyncio.to_thread(_lives, one)])

    async def _end_all(self, attachments: Iterable[Attachment]) -> None:
        for attachment in tuple(attachments):
            pod = str(attachment.sandbox.pod)
            try:
                await self.end(*_split(attachment.sandbox.container))
                log.info("leftover interface released", pod=pod)
            except KubeRdmaError as error:
                log.warning("interface release failed", pod=pod, why=str(error))

    async def _add(self, call: Call) -> CniResult:
        if call.pod is None:
            raise Refused(
                "the call names no pod of Kubernetes",
                remedy="The caller has to pass CNI_ARGS on as the runtime gave them",
                where=f"network {call.network}",
            )
        pod = await self._to.node.pod(call.pod, call.uid)
        if pod is None:
            raise Unavailable(f"The API server has no pod {call.pod} with uid {call.uid} yet.")
        if self.has(call.container, call.interface):
            await self.end(call.container, call.interface)  # of an ADD that is repeated
        try:
            async with self.turn(call.container):
                return await self._attach(call, pod)
        except Exception as error:
            log.warning("network attachment failed", pod=str(call.pod), why=str(error))
            await self.give_up(call)
            raise
        finally:
            self._guids.release(_key(call.container, call.interface))

    async def _attach(self, call: Call, pod: PodState) -> CniResult:
        to = self._to
        came = await origin(call, pod, to.node)
        definition, ask = await self._meant(call, came)
        (wish,) = wishes((ask,), (definition.network,))
        assert call.pod is not None
        holdings = await to.node.holdings(call.pod)
        granted = to.node.granted(holdings)
        host = with_pods(await to.node.host((wish,), granted), self._guids.attachments)
        others = [one for one in self._of(call.container) if one.interface != call.interface]
        seat = delegate.seat(wish, granted, others, host, came.table)
        placed = await to.node.with_settings((seat,))
        sandbox = self._sandbox(call)
        self._guids.claim(_keyed(sandbox, call.interface), placed, host)
        await self.begin(call)
        leased = await self._addresses(call, pod, placed[0], definition.ipam)
        got = with_card_addresses(placed, leased)
        (plan,) = plans(sandbox, placed, got, host, alone=False)
        await to.node.refuse_full((plan,))
        plan = plan if came.table is None else delegate.without_rules(plan)
        assert call.netns is not None
        keyed = _keyed(sandbox, call.interface)
        view = await self._attaching.attach(Attachment(keyed, (plan,)), call.netns)
        placed = as_named(placed, view)
        plan_devices = [(plan, rdma_names((plan,), placed))]
        plan_devices += [(one, delegate.device_names(one, granted)) for one in others]
        names = dict.fromkeys(name for _, each in plan_devices for name in each)
        devices, rdma_cm = await to.node.devices(tuple(names))
        interfaces = attached((plan,), placed, view, devices)
        if others:  # no container of the pod has been made yet that would use the old files
            await to.late.detach(call.container)
        await to.late.attach(sandbox, delegate.edits(plan_devices, devices, rdma_cm), holdings)
        await self._tell_device(call, interfaces[0])
        await to.node.tell_own(pod, interfaces, frozenset(one.interface for one in others))
        await self.complete(call)
        log.info("attached", pod=str(call.pod), networks=f"{call.interface}={plan.network}")
        return delegate.result(plan, interfaces[0], call.netns_path, definition.ipam.dns)

    async def _meant(self, call: Call, came: Origin) -> tuple[NetworkDefinition, NetworkAsk]:
        """The network that the configuration means, its pool made, and what the pod asks of it."""
        from kube_rdma.api import called_conf, cni_conf_network

        definition, ask = called_conf.network(call, came.name, came.resource)
        if called_conf.is_built_in(call.config):
            pool = await self._to.node.has_pool(PoolName(cni_conf_network.BUILT_IN))
            definition = cni_conf_network.built_in(ask.namespace, pool=pool)
        await self._to.node.bring(definition.ipam)
        return definition, ask

    async def _tell_device(self, call: Call, interface: Attached) -> None:
        """Write the file of the capability CNIDeviceInfoFile; without it the pod runs as well."""
        from kube_rdma.api.called_conf import device_info_file

        path = device_info_file(call)
        if path and self._to.infos and interface.pci:
            names = (interface.rdma_device,) if interface.rdma_device else ()
            info = DeviceInfo(interface.pci, names, interface.physical)
            try:
                await asyncio.to_thread(self._to.infos.write_for_plugin, path, info)
            except Unavailable as error:
                log.warning("device info file not written", why=str(error))

    async def _addresses(
        self, call: Call, pod: PodState, seat: NetworkSeat, conf: IpamConf
    ) -> tuple[Given, ...]:
        from kube_rdma.api.ip_conf import nic_ask

        rail = self._to.node.rail(seat.card.id) if seat.card else None
        pooled = seat.wish.ask.addresses if seat.wish.network.pools else ()
        wanted = tuple(one.address for one in pooled)
        nic = nic_ask(conf, call.interface, rail, wanted, owner(pod, call.interface))
        if nic is None:
            return ()
        granted = await self._to.giver.add(Ask(call.container, PodUid(pod.uid), (nic,)))
        return (given(call.interface, granted.leases, await self._to.node.pool(nic.pool)),)

    async def _end(self, container: ContainerId, interface: InterfaceName) -> None:
        """Late binding goes with the last interface, for its files are of the whole pod."""
        key = _key(container, interface)
        await self._attaching.refuse_foreign(key)
        others = [one for one in self._of(container) if one.interface != interface]
        attachment = self._attaching.of(key)
        if attachment and attachment.plans and not others:
            await self._to.late.detach(container)
        try:
            await self._attaching.detach(key)
        except HardwareGone:
            await self._to.giver.delete(container, interface)
            raise
        await self._to.giver.delete(container, interface)
        await self._attaching.forget(key)

    async def _check(self, call: Call) -> CniResult:
        if call.netns is None:
            return CniResult()
        wrong = await self._attaching.look(_key(call.container, call.interface), call.netns)
        if wrong:
            raise Broken(" ".join(f"{line}." for line in wrong))
        return CniResult()

    def _of(self, container: ContainerId) -> list[Plan]:
        """The interfaces of a sandbox that are made or being made."""
        attachments = (
            one
            for one in self._attaching.attachments
            if _split(one.sandbox.container)[0] == container
        )
        return [plan for one in attachments for plan in one.plans]

    def _sandbox(self, call: Call) -> Sandbox:
        pod = call.pod or PodName("", "")
        assert call.netns is not None
        inode = self._to.inode(call.netns)
        return Sandbox(call.container, pod, call.uid, call.netns_path, inode)


def _key(container: ContainerId, interface: InterfaceName) -> ContainerId:
    """One interface as its record knows it; a container's id has no @."""
    return ContainerId(f"{container}@{interface}")


def _keyed(sandbox: Sandbox, interface: InterfaceName) -> Sandbox:
    return replace(sandbox, container=_key(sandbox.container, interface))


def _split(key: ContainerId) -> tuple[ContainerId, InterfaceName]:
    container, _, interface = key.partition("@")
    return ContainerId(container), InterfaceName(interface)


def _lives(attachment: Attachment) -> bool:
    try:
        return is_there(attachment.sandbox)
    except Unavailable:
        return True
