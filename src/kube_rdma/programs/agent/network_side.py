"""Runs pod networks beside the device plugin: socket of the shim, the shim itself, addresses.

Opened by programs/agent/opening where the command asks for networks. Three loops of its own: it
takes the shim's calls, keeps shim and configuration on the host, and keeps the list of pods that
ask for networks, which the shim needs while nobody answers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

import structlog

from kube_rdma.adapters.cluster.kinds import Where
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.pods import POD, pod_state
from kube_rdma.adapters.cluster.watching import Changed, Gone
from kube_rdma.adapters.cni_conf.binary import shim
from kube_rdma.adapters.cni_conf.folder import ConfFolder, Keeper, Kept
from kube_rdma.adapters.cni_conf.places import find, inside
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.rtnl import open_rtnl
from kube_rdma.adapters.kernel.rtnl_view import seen_links
from kube_rdma.adapters.kernel.steps import open_pod
from kube_rdma.adapters.runtime.cni_socket import CniSocket
from kube_rdma.adapters.runtime.cni_state import AskingPods, MissedDeletes
from kube_rdma.model.binding import PodName
from kube_rdma.model.errors import KubeRdmaError
from kube_rdma.model.ip import BootId, NodeName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pod_view import SeenLink
from kube_rdma.model.pool import Pool
from kube_rdma.programs.agent.attaching import KINDS, Attaching
from kube_rdma.programs.agent.kubelet import KubeletView
from kube_rdma.programs.agent.network_node import Asked, NetworkNode
from kube_rdma.programs.agent.networks import LateBinding, Neighbours, PodNetworks
from kube_rdma.programs.ipam.node import Addresses
from kube_rdma.programs.ipam.node import Doors as AddressDoors
from kube_rdma.programs.survey import take_survey
from kube_rdma.rules.conflist import plan
from kube_rdma.rules.networks import ANNOTATION

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger()


@dataclass(frozen=True)
class Site:
    """Where this node's networks are: `host` is the host's root as we see it."""

    node: str
    namespace: str  # of our own objects, such as the nodes' leases
    host: Path
    state: Path  # /var/lib/kube-rdma
    socket: Path  # /run/kube-rdma/agent.sock


class NetworkSide:
    """``async with NetworkSide(...) as side: await side.run()``."""

    def __init__(
        self, site: Site, cluster: Cluster, kubelet: KubeletView, late: LateBinding
    ) -> None:
        self._site = site
        self._cluster = cluster
        self._kubelet = kubelet
        self._late = late
        self._pools: Mapping[str, Pool] = {}
        self._asking: dict[tuple[str, str], PodName] = {}
        self._stack = AsyncExitStack()

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what the kubelet is offered now."""
        self._pools = pools

    async def run(self) -> None:
        """Serve until cancelled."""
        site = self._site
        asked = Asked(self._cluster, self._kubelet, lambda: self._pools, take_survey, host_links)
        async with AsyncExitStack() as stack:
            records = stack.enter_context(Journal(Folder(site.state / "attachments"), KINDS))
            doors = AddressDoors(self._cluster, site.namespace, Folder(site.state / "addresses"))
            boot = BootId((await asyncio.to_thread(BOOT_ID.read_text)).strip())
            giver = await stack.enter_async_context(Addresses(NodeName(site.node), boot, doors))
            attaching = Attaching(records, open_pod)
            to = Neighbours(NetworkNode(asked), giver, self._late, _inode)
            networks = PodNetworks(to, attaching)
            await networks.recover()
            site.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            missed = MissedDeletes(site.socket.parent / "missed")
            await self._make_up(networks, missed)
            socket = await stack.enter_async_context(CniSocket(site.socket, networks.answer))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(socket.serve())
                tasks.create_task(self._keeper().run())
                tasks.create_task(self._follow_pods())

    def _keeper(self) -> Keeper:
        places = find(self._site.host)
        host = self._site.host
        folder = ConfFolder(inside(host, places.conf))
        return Keeper(folder, inside(host, places.binaries), shim(), plan, _tell)

    async def _make_up(self, networks: PodNetworks, missed: MissedDeletes) -> None:
        """Do the DELs that came while nobody answered."""
        for one in missed.present():
            try:
                await networks.end(one.container)
                missed.forget(one)
            except KubeRdmaError as error:
                log.warning("a missed DEL cannot be done now", why=str(error))

    async def _follow_pods(self) -> None:
        """Keep the list of this node's pods that ask for networks."""
        asking = AskingPods(self._site.state / "asking")
        where = Where(fields=f"spec.nodeName={self._site.node}")
        async with aclosing(self._cluster.watch(POD, where)) as notices:
            async for notice in notices:
                match notice:
                    case Changed(found):
                        self._note(pod_state(found))
                    case Gone(name, namespace):
                        self._asking.pop((namespace, name), None)
                await asyncio.to_thread(asking.keep, frozenset(self._asking.values()))

    def _note(self, pod: PodState) -> None:
        key = (pod.namespace, pod.name)
        if dict(pod.annotations).get(ANNOTATION, "").strip() and not pod.host_network:
            self._asking[key] = PodName(*key)
        else:
            self._asking.pop(key, None)


def host_links() -> tuple[SeenLink, ...]:
    """The interfaces of the node's namespace."""
    with open_rtnl() as netlink:
        return seen_links(netlink)


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def _tell(kept: Kept) -> None:
    """Say what a round of the host's configuration came to."""
    if kept.error:
        log.warning("pods do not come to us for networks", why=str(kept.error))
    elif kept.plan:
        log.info(
            "the host's network configuration",
            wiring=kept.plan.wiring,
            default=kept.plan.default,
            quarrel=kept.quarrel,
        )
