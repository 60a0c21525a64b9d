"""The door of other CNI plugins: addresses for the interfaces that they make (kube-rdma-ipam).

The plugin, such as the reference macvlan, runs kube-rdma by that name with its own configuration
and does with the addresses what it does with those of any IPAM plugin. They come from the same
pools as all others. A plugin that kube-rdma itself runs for a pod (attach/rules/foreign_plugins)
comes through this door too, while the pod's own ADD or DEL goes on.
"""

from __future__ import annotations

from ipaddress import ip_interface

from kube_base.errors import Broken, Refused
from kube_rdma.attach.attach import (
    Again,
    AttachDependencies,
    AttachPipeline,
    AttachRequest,
    AttachResult,
    sandbox_of,
)
from kube_rdma.attach.rules.addresses import owner
from kube_rdma.attach.rules.seats import is_link
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.attach.cni import Call, CniResult, LinkAddress, LinkRoute, Verb
from kube_rdma.model.card import CardId
from kube_rdma.model.ipam import FIRST, NicRequest, Owner, PodUid, is_default


class PluginAddresses:
    """The calls of other plugins on this node."""

    is_within = True

    def __init__(self, dependencies: AttachDependencies, pipeline: AttachPipeline) -> None:
        self._needs = dependencies
        self._pipeline = pipeline

    async def answer(self, call: Call) -> CniResult:
        """Addresses and routes for ADD, nothing for the rest; raise KubeError."""
        match call.verb:
            case Verb.ADD:
                return await self._pipeline.add(call, self)
            case Verb.DEL:
                key = AttachmentKey(call.container, call.interface)
                return await self._pipeline.delete(call, key, within=True)
            case Verb.CHECK | Verb.STATUS:
                await self._check(call)
        return CniResult()

    async def request(self, call: Call) -> AttachRequest | None:
        """As Door.request: the pool that the ipam block names, for this interface."""
        sandbox, netns = sandbox_of(call, self._needs.inode)
        return AttachRequest(
            key=AttachmentKey(call.container, call.interface),
            sandbox=sandbox,
            netns=netns,
            uid=PodUid(call.uid),
            pod=None,
            again=Again.KEPT,
            nics=(await self._nic(call),),
        )

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """As Door.report; where its interface is, only the plugin knows."""
        from kube_rdma.attach.documents import called_conf

        conf, _, _ = called_conf.addresses(call)
        (given,) = result.given
        routes = (*conf.routes, *(LinkRoute(one.to, one.via) for one in given.routes))
        if call.interface != FIRST:  # the plugin would put them into the pod's main table
            routes = tuple(one for one in routes if not is_default(one.to))
        return CniResult(
            addresses=tuple(
                LinkAddress(ip_interface((one.address, one.prefix)), one.gateway)
                for one in given.addresses
            ),
            routes=routes,
            dns=conf.dns,
        )

    async def _nic(self, call: Call) -> NicRequest:
        """What is asked of the pools; raise Refused with all faults of the block."""
        from kube_rdma.attach.documents import called_conf
        from kube_rdma.ipam.ip_conf import nic_request

        conf, wanted, device = called_conf.addresses(call)
        by_rail = any(rail is not None for rail, _ in conf.pools)
        rail = await self._rail(call, device) if by_rail else None
        if nic := nic_request(conf, call.interface, rail, wanted, await self._owner(call)):
            return nic
        raise Refused(
            "the ipam block names no pool",
            remedy='Write "ipam": {"type": "kube-rdma-ipam", "pool": "rail-0"}',
            where=f"network {call.network}",
        )

    async def _check(self, call: Call) -> None:
        """For STATUS what is wrong anywhere on the node, for CHECK what concerns the container."""
        problems = [str(one) for one in await self._needs.giver.check()]
        if call.verb is Verb.CHECK:
            problems = [one for one in problems if call.container in one]
        if problems:
            raise Broken(" ".join(problems))

    async def _owner(self, call: Call) -> Owner | None:
        pod = await self._needs.node.pod(call.pod, call.uid) if call.pod else None
        return owner(pod, call.interface) if pod else None

    async def _rail(self, call: Call, device: str | None) -> int | None:
        """The rail of the card that the plugin works on; Refused where nothing says which."""
        links = (await self._needs.node.host()).links
        link = next((one for one in links if device and is_link(one, device)), None)
        rail = self._needs.node.rail(CardId(link.pci)) if link and link.pci else None
        if rail is not None:
            return rail
        raise Refused(
            f"the ipam block has a pool for each rail, and {device or 'nothing'} is not "
            "the interface of a card with a rail on this node",
            remedy='Add "master": "ens2f0" or the resource of the cards, or name one "pool"',
            where=f"network {call.network}",
        )
