"""Runs pod networks beside the device plugin: socket of the shim, the shim itself, addresses.

Opened by programs/agent/compose where the command asks for networks. Loops of its own: it takes the
shim's calls, keeps shim and configuration on the host, follows the node's pods, looks for sandboxes
that were never announced, and reports when the node can give no addresses.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.networks import NetworkObjects
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.pods import Pods
from kube_rdma.adapters.cni.conf.binary import shim
from kube_rdma.adapters.cni.conf.folder import FolderRound, Keeper
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.cni.exec.plugins import Plugins
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.adapters.cni.state import MissedDeletes
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.format import ATTACHMENTS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import seen_links, seen_named
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.adapters.runtime.cri import read_netns, read_sandboxes
from kube_rdma.model.cni_conf import PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.errors import KubeRdmaError, Refused
from kube_rdma.model.function_step import FunctionPlace, FunctionSettings
from kube_rdma.model.ip import BootId, NodeName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pod_view import SeenLink
from kube_rdma.model.pool import Pool
from kube_rdma.programs.agent.device_plugin.kubelet_view import KubeletView
from kube_rdma.programs.agent.node.address_health import tell_trouble
from kube_rdma.programs.agent.node.survey_cache import KeptSurvey
from kube_rdma.programs.agent.pod_networks import delegate, pod_watch, repair
from kube_rdma.programs.agent.pod_networks.chain import ChainDependencies, LateBinding, PodNetworks
from kube_rdma.programs.agent.pod_networks.cni_wiring import Wired
from kube_rdma.programs.agent.pod_networks.delegate import Delegates
from kube_rdma.programs.agent.pod_networks.executor import Attaching, Open
from kube_rdma.programs.agent.pod_networks.guid_claims import Guids
from kube_rdma.programs.agent.pod_networks.host_places import HostPlaces
from kube_rdma.programs.agent.pod_networks.node_view import (
    AskFunctions,
    Links,
    NetworkNode,
    NodeViewDependencies,
)
from kube_rdma.programs.agent.pod_networks.pod_watch import NodePods
from kube_rdma.programs.agent.pod_networks.repair import Sandboxes
from kube_rdma.programs.agent.pod_networks.router import CniRouter
from kube_rdma.programs.agent.pod_networks.worker_pools import Threads
from kube_rdma.programs.ipam.node import IpamDependencies, NodeAddresses
from kube_rdma.programs.ipam.port import Giver
from kube_rdma.rules.cni_conf.conflist import describe_plan

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger()


@dataclass(frozen=True)
class NetworkSite:
    """Where this node's networks are: `host` is the host's root as the agent sees it."""

    node: str
    namespace: str  # of own objects, such as the nodes' leases
    host: Path
    state: Path  # /var/lib/kube-rdma
    socket: Path  # /run/kube-rdma/agent.sock
    runtime: Path  # the container runtime's socket


def host_links(names: Sequence[str] | None) -> tuple[SeenLink, ...]:
    """The interfaces of the node's namespace: those of these names, or (None) all."""
    with open_rtnl() as netlink:
        return seen_links(netlink) if names is None else seen_named(netlink, names)


def host_functions(
    places: Sequence[FunctionPlace],
) -> tuple[tuple[FunctionPlace, FunctionSettings], ...]:
    """What virtual functions are set to, those whose physical one is in the node's namespace."""
    with open_rtnl() as netlink:
        return seen_functions(netlink, places)


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


@dataclass(frozen=True)
class Machine:
    """What is below the agent, made up in tests. `shim` is the binary that the host gets, `infos`
    the folder in which meta-plugins find device info files, `look` the seconds between two looks
    whether addresses can be given."""

    survey: KeptSurvey = field(default_factory=KeptSurvey)
    links: Links = host_links
    functions: AskFunctions = host_functions
    open_pod: Open = open_pod
    inode: Callable[[int], int] = _inode
    pace: repair.RepairTiming = field(default_factory=repair.RepairTiming)
    shim: Callable[[], bytes] = shim
    infos: DeviceInfoFolder | None = None
    look: float = 10.0


class NodeNetworks:
    """``await NodeNetworks(...).run()``."""

    def __init__(
        self,
        site: NetworkSite,
        cluster: Cluster,
        kubelet: KubeletView,
        late: LateBinding,
        machine: Machine | None = None,
    ) -> None:
        self._site = site
        self._cluster = cluster
        self._kubelet = kubelet
        self._late = late
        self._machine = machine or Machine()
        self._pools: Mapping[str, Pool] | None = None
        self._withdrawn: Sequence[str] = ()
        self._begun = asyncio.Event()  # the node was looked at
        self._places = HostPlaces(site.host, site.runtime)
        self._wired = Wired(site.host, NetworkObjects(cluster), lambda: self._places.now)

    def offered(self, pools: Mapping[str, Pool], withdrawn: Sequence[str] = ()) -> None:
        """Take note of what the kubelet is offered now, and of what pods hold nevertheless."""
        self._pools, self._withdrawn = pools, withdrawn
        self._begun.set()

    async def concerned(self, pod: PodState) -> bool:
        """Whether one of the networks that a pod asks for is for kube-rdma to make; see Wired."""
        return await self._wired.concerned(pod)

    async def run(self) -> None:
        """Serve until cancelled."""
        site = self._site
        async with AsyncExitStack() as stack:
            stack.enter_context(self._kubelet.connected())
            events = Events(self._cluster, site.node)
            networks, calls, giver = await self._networks(stack, events)
            await networks.recover()
            await calls.recover()
            site.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            missed = MissedDeletes(site.socket.parent / "missed")
            await self._make_up(calls, missed)
            socket = await stack.enter_async_context(CniSocket(site.socket, calls.answer))
            pods = self._node_pods(events)
            rounds = self._rounds(networks, pods, events)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(socket.serve())
                tasks.create_task(self._keeper(pods, rounds, events).run())
                tasks.create_task(pods.follow(rounds.wake))
                tasks.create_task(events.run())
                tasks.create_task(self._go_round(rounds))
                tasks.create_task(calls.run())
                tell = partial(self._tell, events)
                tasks.create_task(tell_trouble(giver.check, tell, self._machine.look))

    async def _go_round(self, rounds: Sandboxes) -> None:
        """Until the cards of the node are known, no pod can get what it lacks."""
        await self._begun.wait()
        await rounds.run()

    async def _networks(
        self, stack: AsyncExitStack, events: Events
    ) -> tuple[PodNetworks, CniRouter, Giver]:
        """Pod networks over the journal and the addresses of this node."""
        site, machine = self._site, self._machine
        records = stack.enter_context(Journal(Folder(site.state / "attachments"), ATTACHMENTS))
        doors = IpamDependencies(self._cluster, site.namespace, Folder(site.state / "addresses"))
        boot = BootId((await asyncio.to_thread(BOOT_ID.read_text)).strip())
        giver = await stack.enter_async_context(NodeAddresses(NodeName(site.node), boot, doors))
        asked = NodeViewDependencies(
            *(self._cluster, self._kubelet, lambda: self._pools, machine.survey, machine.links),
            confs=self._wired.confs,
            functions=machine.functions,
            watched=giver.pool,
            withdrawn=lambda: self._withdrawn,
        )
        await self._places.find()
        plugins, threads = Plugins(self._places), Threads()
        tell = partial(self._tell, events, "JournalTrouble", warning=True)
        attaching = Attaching(records, machine.open_pod, plugins, threads, tell)
        records = stack.enter_context(Journal(Folder(site.state / "delegated"), ATTACHMENTS))
        delegated = Attaching(records, machine.open_pod, plugins, threads, tell)
        guids = Guids(lambda: (*attaching.attachments, *delegated.attachments))
        to = (NetworkNode(asked), giver, self._late, machine.inode)
        infos = self._machine.infos
        delegates = Delegates(
            delegate.DelegateDependencies(*to, guids=guids, infos=infos), delegated
        )
        networks = PodNetworks(
            ChainDependencies(*to, lambda: delegates.containers, guids), attaching
        )
        return networks, CniRouter(networks, delegates, lambda: self._wired.wiring), giver

    def _node_pods(self, events: Events) -> NodePods:
        site, tell = self._site, partial(_tell_pod, events)
        return NodePods(
            pod_watch.PodWatchDependencies(
                self._cluster, site.node, site.state, lambda: self._wired.network, tell
            )
        )

    def _rounds(self, networks: PodNetworks, pods: NodePods, events: Events) -> Sandboxes:
        def wanting() -> tuple[PodState, ...]:
            """The pods that should have networks of kube-rdma.

            Behind a meta-plugin only those whose annotation it does not read.
            """
            if self._wired.wiring is Wiring.DELEGATE:
                return tuple(filter(self._wired.unread, pods.asking))
            return pods.asking if self._wired.wiring is Wiring.CHAIN else ()

        to = repair.RepairDependencies(
            networks,
            listed=partial(read_sandboxes, self._site.runtime),
            netns=partial(read_netns, self._site.runtime),
            pods=wanting,
            owed=pods.owed,
            network=lambda: self._wired.network,
            evict=Pods(self._cluster).evict,
            tell=partial(_tell_pod, events),
            refused=self._wired.unread,
        )
        return Sandboxes(to, self._machine.pace)

    def _tell(self, events: Events, reason: str, note: str, warning: bool) -> None:
        """Say something about the node, as the kubelet tells of it."""
        about = About("Node", self._site.node, uid=self._site.node)
        events.tell(about, reason, note, warning=warning)

    def _keeper(self, pods: NodePods, rounds: Sandboxes, events: Events) -> Keeper:
        def decide(files: tuple[ConfFile, ...], binaries: frozenset[str]) -> ConfPlan:
            before = self._wired.wiring
            plan = self._wired.decide(files, binaries)
            # Until it is repaired, pods start without the agent; the first time shows who calls it.
            if plan.changes or plan.wiring is not before:
                rounds.wake()
            return plan

        host, places = self._site.host, self._places
        # Without the shim on the host nobody can have called the agent.
        if not inside(host, places.now.binaries / PLUGIN).exists():
            pods.unwired()

        def tell(kept: FolderRound) -> None:
            _log(kept)
            if kept.error:
                if isinstance(kept.error, Refused):
                    pods.unwired()
                self._tell(events, "NetworkConfigurationRefused", str(kept.error), warning=True)
            elif kept.plan:
                pods.wired(kept.plan.wiring)
                self._tell(events, "NetworkConfiguration", describe_plan(kept.plan), warning=False)

        return Keeper(host, places.find, self._machine.shim(), decide, tell)

    async def _make_up(self, calls: CniRouter, missed: MissedDeletes) -> None:
        """Do the DELs that came while nobody answered."""
        for attachment in missed.present():
            try:
                await calls.missed(attachment)
                missed.forget(attachment)
            except KubeRdmaError as error:
                log.warning("missed DEL failed", why=str(error))


def _tell_pod(events: Events, pod: PodState, reason: str, note: str, warning: bool) -> None:
    about = About("Pod", pod.name, pod.namespace, pod.uid)
    events.tell(about, reason, note, warning=warning)


def _log(kept: FolderRound) -> None:
    """Say what a round of the host's configuration came to."""
    if kept.error:
        log.warning("CNI configuration not installed", why=str(kept.error))
    elif kept.plan:
        log.info(
            "CNI configuration applied",
            wiring=kept.plan.wiring,
            default=kept.plan.default,
            quarrel=kept.quarrel,
        )
        for note in kept.plan.notes:
            log.warning("CNI configuration note", what=note)
