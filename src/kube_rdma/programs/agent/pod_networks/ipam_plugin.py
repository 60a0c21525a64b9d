"""Addresses for interfaces that other CNI plugins make: what a call of type kube-rdma-ipam means.

The plugin, such as the reference macvlan, runs kube-rdma by that name with its own configuration
and does with the addresses what it does with those of any IPAM plugin. They come from the same
pools as all others; programs/agent/pod_networks/delegate keeps the record that says which sandbox
has some.
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING

import structlog

from kube_rdma.model.card import CardId
from kube_rdma.model.cni import Call, CniResult, LinkAddress, LinkRoute, Verb
from kube_rdma.model.errors import Broken, Refused
from kube_rdma.model.ip import Ask, NicAsk, Owner, PodUid
from kube_rdma.programs.agent.pod_networks.delegate import Delegates
from kube_rdma.rules.attach.addresses import given, owner
from kube_rdma.rules.attach.seats import is_link

if TYPE_CHECKING:
    from kube_rdma.api.ip_conf import IpamConf

log = structlog.get_logger()


class IpamCalls:
    """The calls of other plugins on this node."""

    def __init__(self, delegates: Delegates) -> None:
        self._delegates = delegates
        self._giver = delegates.giver
        self._node = delegates.node

    async def answer(self, call: Call) -> CniResult:
        """Addresses and routes for ADD, nothing for the rest; raise KubeRdmaError."""
        match call.verb:
            case Verb.ADD:
                return await self._add(call)
            case Verb.DEL:
                await self._delegates.end(call.container, call.interface)
            case Verb.CHECK | Verb.STATUS:
                await self._check(call)
        return CniResult()

    async def _add(self, call: Call) -> CniResult:
        from kube_rdma.api import called_conf
        from kube_rdma.api.ip_conf import nic_ask

        conf, wanted, device = called_conf.addresses(call)
        rail = await self._rail(call, device) if _by_rail(conf) else None
        nic = nic_ask(conf, call.interface, rail, wanted, await self._owner(call))
        if nic is None:
            raise Refused(
                "the ipam block names no pool",
                remedy='Write "ipam": {"type": "kube-rdma-ipam", "pool": "rail-0"}',
                where=f"network {call.network}",
            )
        try:
            async with self._delegates.turn(call.container):
                await self._delegates.begin(call)
                result = await self._given(call, conf, nic)
                await self._delegates.complete(call)
        except Exception as error:
            log.warning("address request failed", pod=str(call.pod), why=str(error))
            await self._delegates.give_up(call)
            raise
        log.info(
            "addresses assigned",
            pod=str(call.pod),
            interface=call.interface,
            addresses=",".join(str(one.address) for one in result.addresses),
        )
        return result

    async def _given(self, call: Call, conf: IpamConf, nic: NicAsk) -> CniResult:
        granted = await self._giver.add(Ask(call.container, PodUid(call.uid), (nic,)))
        got = given(call.interface, granted.leases, await self._node.pool(nic.pool))
        return CniResult(
            addresses=tuple(
                LinkAddress(ip_interface((one.address, one.prefix)), one.gateway)
                for one in got.addresses
            ),
            routes=(*conf.routes, *(LinkRoute(one.to, one.via) for one in got.routes)),
            dns=conf.dns,
        )

    async def _check(self, call: Call) -> None:
        """For STATUS what is wrong anywhere on the node, for CHECK what concerns the container."""
        problems = [str(one) for one in await self._giver.check()]
        if call.verb is Verb.CHECK:
            problems = [one for one in problems if call.container in one]
        if problems:
            raise Broken(" ".join(problems))

    async def _owner(self, call: Call) -> Owner | None:
        pod = await self._node.pod(call.pod, call.uid) if call.pod else None
        return owner(pod, call.interface) if pod else None

    async def _rail(self, call: Call, device: str | None) -> int | None:
        """The rail of the card that the plugin works on; Refused where nothing says which."""
        links = (await self._node.host()).links
        link = next((one for one in links if device and is_link(one, device)), None)
        if link and link.pci:
            return self._node.rail(CardId(link.pci))
        raise Refused(
            f"the ipam block has a pool for each rail, and {device or 'nothing'} is not "
            "the interface of a card on this node",
            remedy='Add "master": "ens2f0" or the resource of the cards, or name one "pool"',
            where=f"network {call.network}",
        )


def _by_rail(conf: IpamConf) -> bool:
    return any(rail is not None for rail, _ in conf.pools)
