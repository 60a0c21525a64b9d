"""Runs pod networks beside the device plugin: socket of the shim, the shim itself, addresses.

Opened by programs/agent/opening where the command asks for networks. Loops of its own: it takes the
shim's calls, keeps shim and configuration on the host, keeps the list of pods that ask for
networks, which the shim needs while nobody answers, and looks for sandboxes that nobody told it of.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds import Where
from kube_rdma.adapters.cluster.networks import Networks
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.pods import POD, Pods, pod_state
from kube_rdma.adapters.cluster.watching import Changed, Gone
from kube_rdma.adapters.cni_conf.binary import shim
from kube_rdma.adapters.cni_conf.folder import ConfFolder, Keeper, Kept
from kube_rdma.adapters.cni_conf.places import find, inside
from kube_rdma.adapters.cni_exec.plugins import Host, Plugins
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.rtnl import open_rtnl
from kube_rdma.adapters.kernel.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.rtnl_view import seen_links, seen_named
from kube_rdma.adapters.kernel.steps import open_pod
from kube_rdma.adapters.runtime.cni_socket import CniSocket
from kube_rdma.adapters.runtime.cni_state import AskingPods, MissedDeletes
from kube_rdma.adapters.runtime.cri import read_netns, read_sandboxes
from kube_rdma.api.called_conf import plugin_type
from kube_rdma.api.networks import asks
from kube_rdma.model.binding import PodName
from kube_rdma.model.cni_conf import PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.errors import KubeRdmaError, Refused
from kube_rdma.model.function_step import FunctionPlace, FunctionSettings
from kube_rdma.model.ip import BootId, NodeName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pod_view import SeenLink
from kube_rdma.model.pool import Pool
from kube_rdma.programs.agent import delegate, sandboxes
from kube_rdma.programs.agent.attaching import KINDS, Attaching, Open
from kube_rdma.programs.agent.calls import Calls
from kube_rdma.programs.agent.delegate import Delegates
from kube_rdma.programs.agent.kept import KeptSurvey
from kube_rdma.programs.agent.kubelet import KubeletView
from kube_rdma.programs.agent.network_node import Asked, AskFunctions, Links, NetworkNode
from kube_rdma.programs.agent.networks import LateBinding, Neighbours, PodNetworks
from kube_rdma.programs.agent.sandboxes import Sandboxes
from kube_rdma.programs.ipam.node import Addresses
from kube_rdma.programs.ipam.node import Doors as AddressDoors
from kube_rdma.rules.conflist import name_of, plan, told
from kube_rdma.rules.networks import ANNOTATION, is_asking

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
    """What is below us, made up in tests. `shim` is the binary that the host gets."""

    survey: KeptSurvey = field(default_factory=KeptSurvey)
    links: Links = host_links
    functions: AskFunctions = host_functions
    open_pod: Open = open_pod
    inode: Callable[[int], int] = _inode
    pace: sandboxes.Pace = field(default_factory=sandboxes.Pace)
    shim: Callable[[], bytes] = shim


class NetworkSide:
    """``await NetworkSide(...).run()``."""

    def __init__(
        self,
        site: Site,
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
        self._pools: Mapping[str, Pool] = {}
        self._asking: dict[tuple[str, str], PodState] = {}
        self._plain: set[str] = set()  # uids of pods that did not ask when we saw them
        self._wiring = Wiring.NONE
        self._network = ""  # the cluster's own, by its name

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what the kubelet is offered now."""
        self._pools = pools

    async def concerned(self, pod: PodState) -> bool:
        """Whether one of the networks that a pod asks for is ours to make.

        Behind a meta-plugin only those of our type are: for all others it calls other plugins.
        """
        if self._wiring is not Wiring.DELEGATE:
            return True
        definitions = Networks(self._cluster)
        with suppress(Refused):  # the meta-plugin has understood it, in its own way
            for one in asks(dict(pod.annotations).get(ANNOTATION, ""), pod.namespace):
                found = await definitions.read(one.namespace, one.network)
                if found and plugin_type(found.config) == PLUGIN:
                    return True
        return False

    async def run(self) -> None:
        """Serve until cancelled."""
        site = self._site
        async with AsyncExitStack() as stack:
            stack.enter_context(self._kubelet.connected())
            networks, calls = await self._networks(stack)
            await networks.recover()
            await calls.recover()
            site.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            missed = MissedDeletes(site.socket.parent / "missed")
            await self._make_up(calls, missed)
            socket = await stack.enter_async_context(CniSocket(site.socket, calls.answer))
            events = Events(self._cluster, site.node)
            rounds = self._rounds(networks, events)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(socket.serve())
                tasks.create_task(self._keeper(rounds, events).run())
                tasks.create_task(self._follow_pods(rounds))
                tasks.create_task(events.run())
                tasks.create_task(rounds.run())
                tasks.create_task(calls.run())

    async def _networks(self, stack: AsyncExitStack) -> tuple[PodNetworks, Calls]:
        """Pod networks over the journal and the addresses of this node."""
        site, machine = self._site, self._machine
        asked = Asked(
            *(self._cluster, self._kubelet, lambda: self._pools, machine.survey, machine.links),
            confs=self._confs,
            functions=machine.functions,
        )
        records = stack.enter_context(Journal(Folder(site.state / "attachments"), KINDS))
        doors = AddressDoors(self._cluster, site.namespace, Folder(site.state / "addresses"))
        boot = BootId((await asyncio.to_thread(BOOT_ID.read_text)).strip())
        giver = await stack.enter_async_context(Addresses(NodeName(site.node), boot, doors))
        plugins = Plugins(Host(site.host, find(site.host).binaries, partial(inside, site.host)))
        attaching = Attaching(records, machine.open_pod, plugins)
        to = (NetworkNode(asked), giver, self._late, machine.inode)
        records = stack.enter_context(Journal(Folder(site.state / "delegated"), KINDS))
        delegates = Delegates(
            delegate.Neighbours(*to), Attaching(records, machine.open_pod, plugins)
        )
        networks = PodNetworks(Neighbours(*to, lambda: delegates.containers), attaching)
        return networks, Calls(networks, delegates, lambda: self._wiring)

    def _rounds(self, networks: PodNetworks, events: Events) -> Sandboxes:
        pods = Pods(self._cluster)

        def tell(pod: PodState, reason: str, note: str, warning: bool) -> None:
            about = About("Pod", pod.name, pod.namespace, pod.uid)
            events.tell(about, reason, note, warning=warning)

        to = sandboxes.Neighbours(
            networks,
            listed=partial(read_sandboxes, self._site.runtime),
            netns=partial(read_netns, self._site.runtime),
            pods=self._wanting,
            spared=lambda pod: pod.uid in self._plain,
            network=lambda: self._network,
            evict=pods.evict,
            tell=tell,
        )
        return Sandboxes(to, self._machine.pace)

    def _wanting(self) -> tuple[PodState, ...]:
        """The pods that should have networks of ours. Behind a meta-plugin it gives them."""
        return tuple(self._asking.values()) if self._wiring is Wiring.CHAIN else ()

    def _confs(self) -> tuple[ConfFile, ...]:
        host = self._site.host
        return ConfFolder(inside(host, find(host).conf)).read()

    def _keeper(self, rounds: Sandboxes, events: Events) -> Keeper:
        def decide(files: tuple[ConfFile, ...]) -> ConfPlan:
            before, self._wiring = self._wiring, Wiring.NONE
            found = plan(files)
            self._wiring, self._network = found.wiring, name_of(files, found.default)
            # Until it is repaired, pods start without us; the first time, we know who calls us.
            if found.changes or found.wiring is not before:
                rounds.wake()
            return found

        host, places = self._site.host, find(self._site.host)
        folder = ConfFolder(inside(host, places.conf))
        binaries = inside(host, places.binaries)
        node = About("Node", self._site.node, uid=self._site.node)  # as the kubelet tells of it

        def tell(kept: Kept) -> None:
            _log(kept)
            if kept.error:
                events.tell(node, "NetworkConfigurationRefused", str(kept.error), warning=True)
            elif kept.plan:
                events.tell(node, "NetworkConfiguration", told(kept.plan))

        return Keeper(folder, binaries, self._machine.shim(), decide, tell)

    async def _make_up(self, calls: Calls, missed: MissedDeletes) -> None:
        """Do the DELs that came while nobody answered."""
        for one in missed.present():
            try:
                await calls.missed(one)
                missed.forget(one)
            except KubeRdmaError as error:
                log.warning("a missed DEL cannot be done now", why=str(error))

    async def _follow_pods(self, rounds: Sandboxes) -> None:
        """Keep the list of this node's pods that ask for networks."""
        asking = AskingPods(self._site.state / "asking")
        where = Where(fields=f"spec.nodeName={self._site.node}")
        async with aclosing(self._cluster.watch(POD, where)) as notices:
            async for notice in notices:
                match notice:
                    case Changed(found):
                        self._note(pod_state(found), rounds)
                    case Gone(name, namespace, uid):
                        self._asking.pop((namespace, name), None)
                        self._plain.discard(uid)
                names = frozenset(PodName(*key) for key in self._asking)
                await asyncio.to_thread(asking.keep, names)

    def _note(self, pod: PodState, rounds: Sandboxes) -> None:
        key = (pod.namespace, pod.name)
        if not is_asking(pod):
            self._asking.pop(key, None)
            self._plain.add(pod.uid)
            return
        before = self._asking.get(key)
        self._asking[key] = pod
        # Its sandbox is there now. A round finds out whether its networks are too.
        if pod.phase == "Running" and (before is None or before.phase != "Running"):
            rounds.wake()


def _log(kept: Kept) -> None:
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
