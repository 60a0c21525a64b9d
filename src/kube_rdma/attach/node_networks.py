"""Runs pod networks beside the device plugin: socket of the shim, the shim itself, addresses.

Opened by agent/compose where the command asks for networks. Loops of its own: it takes the
shim's calls, keeps shim and configuration on the host, follows the node's pods, looks for sandboxes
that were never announced, and reports when the node can give no addresses.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, start
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cni.conf.binary import shim
from kube_rdma.adapters.cni.conf.folder import FolderRound, FolderTiming, Keeper
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.cni.exec.plugins import Plugins
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.adapters.cni.state import MissedDeletes
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.format import ATTACHMENTS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.cgroups.files import HOST_CGROUPS, HostCgroups
from kube_rdma.adapters.kernel.cgroups.rdma import RdmaGroups
from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import (
    interfaces,
    link_ways,
    seen_links,
    seen_named,
)
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.adapters.runtime.cri import read_netns, read_sandboxes
from kube_rdma.attach.address_health import tell_trouble
from kube_rdma.attach.attach import AttachDependencies
from kube_rdma.attach.chain import SandboxNetworks
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma.attach.cluster_restarts import Restarts
from kube_rdma.attach.cni_wiring import CniWiring
from kube_rdma.attach.context import NodeContext
from kube_rdma.attach.executor import (
    AttachmentJournal,
    Open,
    PlanExecutor,
    WorkerPools,
)
from kube_rdma.attach.host_places import HostPlaces
from kube_rdma.attach.late_binding.interface import LateBinding
from kube_rdma.attach.node_view import (
    AskFunctions,
    Links,
    NodeView,
    NodeViewDependencies,
)
from kube_rdma.attach.outdated_pods import OutdatedPods
from kube_rdma.attach.pod_watch import NodePodWatch, PodWatchDependencies
from kube_rdma.attach.repair import (
    RepairDependencies,
    RepairTiming,
    SandboxRepair,
)
from kube_rdma.attach.returned_cards import ReturnedCards
from kube_rdma.attach.router import CniRouter
from kube_rdma.attach.rules.cni_conf.conflist import describe_plan
from kube_rdma.attach.rules.cni_conf.exclusive import shut_out
from kube_rdma.attach.share_limits import (
    RoundDependencies,
    ShareLimitRounds,
    ShareLimits,
)
from kube_rdma.hardware.survey_cache import SurveyCache
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.metrics.stopwatch import Stopwatch
from kube_rdma.model.attach.attachment import Attachment, GrantedShare, LinkWays
from kube_rdma.model.attach.pod_view import SeenLink
from kube_rdma.model.attach.restart import RestartRequest
from kube_rdma.model.card import CardId
from kube_rdma.model.cni_conf import HOOK_PROGRAM, PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.functions.step import FunctionPlace, FunctionSettings
from kube_rdma.model.ipam import BootId, NodeName
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Pool
from kube_rdma.model.pools.rdma_limits import PodDeviceUse
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from kube_rdma.pools.rules.health.absence import attached_cards

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger()


class NetworkSite(Frozen):
    """Where this node's networks are: `host` is the host's root as the agent sees it."""

    node: str
    namespace: str  # of own objects, such as the nodes' leases
    host: Path
    state: Path  # /var/lib/kube-rdma
    socket: Path  # /run/kube-rdma/agent.sock
    runtime: Path  # the container runtime's socket
    everybodys: tuple[str, ...] | None = None  # as AttachDependencies has it


def host_links(names: Sequence[str] | None) -> tuple[SeenLink, ...]:
    """The interfaces of the node's namespace: those of these names, or (None) all."""
    with open_rtnl() as netlink:
        return seen_links(netlink) if names is None else seen_named(netlink, names)


def host_ways(links: Sequence[SeenLink]) -> tuple[LinkWays, ...]:
    """How the node uses these interfaces; one that is another's by now is left out."""
    with open_rtnl() as netlink:
        now = {(one.seen.index, one.seen.mac) for one in interfaces(netlink)}
        return link_ways(netlink, [link for link in links if (link.index, link.mac) in now])


def host_functions(
    places: Sequence[FunctionPlace],
) -> tuple[tuple[FunctionPlace, FunctionSettings], ...]:
    """What virtual functions are set to, those whose physical one is in the node's namespace."""
    with open_rtnl() as netlink:
        return seen_functions(netlink, places)


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


class NodeKernel(Frozen):
    """What is below the agent, made up in tests. `shim` is the binary that the host gets, `infos`
    the folder in which meta-plugins find device info files, `look` the seconds between two looks
    whether addresses can be given, `conf` the pace of the folder of CNI configuration, `rails` are
    those of the cards."""

    survey: SurveyCache = field(default_factory=SurveyCache)
    links: Links = host_links
    functions: AskFunctions = host_functions
    ways: Callable[[Sequence[SeenLink]], tuple[LinkWays, ...]] = host_ways
    open_pod: Open = open_pod
    inode: Callable[[int], int] = _inode
    pace: RepairTiming = field(default_factory=RepairTiming)
    shim: Callable[[], bytes] = shim
    infos: DeviceInfoFolder | None = None
    look: float = 10.0
    conf: FolderTiming = field(default_factory=FolderTiming)
    rails: NodeRails = field(default_factory=NodeRails)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


class NodeNetworks:
    """``await NodeNetworks(...).run(late)``; its context is what the node stands on now.

    What it tells goes to `events`, which somebody else in the process writes.
    """

    def __init__(
        self,
        site: NetworkSite,
        cluster: Cluster,
        events: Events,
        kubelet: KubeletView,
        machine: NodeKernel | None = None,
    ) -> None:
        self._site = site
        self._cluster = cluster
        self._events = events
        self._kubelet = kubelet
        self._machine = machine or NodeKernel()
        self._context = NodeContext()
        self._begun = asyncio.Event()  # the node was looked at
        self._needed = asyncio.Event()  # it has a card, or had one
        self._settled = asyncio.Event()  # who calls the agent for pods, or why nobody will
        self._standing = ""  # the same as a sentence
        self._places = HostPlaces(site.host, site.runtime)
        self._limits = ShareLimits(_groups(site.host), lambda: self._context.pools)
        self._node: NodeView | None = None
        self.limits = ShareLimitRounds(
            RoundDependencies(
                limits=self._limits,
                listed=partial(read_sandboxes, site.runtime),
                holdings=kubelet.holdings,
                granted=self._granted,
                attachments=self.attachments,
            )
        )
        self._attachments: PlanExecutor | None = None
        self._returned: ReturnedCards | None = None
        definitions = NetworkObjects(cluster)
        self._wired = CniWiring(site.host, definitions, self._places, self._context)

    @property
    def stopwatch(self) -> Stopwatch:
        """What counts how long calls take."""
        return self._machine.stopwatch

    def attachments(self) -> Iterable[Attachment]:
        """What the journal has of this node's pods now."""
        return self._attachments.by_key.values() if self._attachments else ()

    def uses(self) -> tuple[PodDeviceUse, ...]:
        """What pods with limits have of RDMA devices; it reads their control groups."""
        return self._limits.uses(attachment.sandbox for attachment in tuple(self.attachments()))

    def cards(self) -> frozenset[CardId] | None:
        """The cards that the journal has for pods; None where not all of it is read."""
        if self._attachments is None or self._attachments.foreign:
            return None
        return frozenset(attached_cards(self._attachments.by_key.values()))

    def returned(self, card: CardId) -> None:
        """A card that was bad or gone is good again."""
        if self._returned:
            self._returned.returned(card)

    def shim_of_host(self) -> str | None:
        """Where the host has the shim, for the runtime to run for containers with a share."""
        with suppress(Refused):  # the runtime's folders are not known, so nothing lies there
            program = self._places.now.binaries / HOOK_PROGRAM
            if inside(self._site.host, program).exists():
                return str(program)
        return None

    def wiring(self) -> Wiring:
        """Who calls the agent for pods now."""
        return self._context.wiring

    def offered(self, pools: Mapping[str, Pool], withdrawn: Sequence[str] = ()) -> None:
        """Take note of what the kubelet is offered now, and of what pods hold nevertheless."""
        self._context.pools, self._context.withdrawn = pools, withdrawn
        self._begun.set()
        if self._machine.survey.has_cards or any(pool.cards for pool in pools.values()):
            self._needed.set()

    async def until_settled(self) -> str:
        """Return who calls the agent for pods, or why nobody will, once that is certain.

        A cluster's network that is not installed yet is waited for, and so is a folder that cannot
        be written to.
        """
        await self._settled.wait()
        return self._standing

    async def concerned(self, pod: PodState) -> bool:
        """Whether kube-rdma has to make one of the networks that a pod asks for; see CniWiring."""
        return await self._wired.concerned(pod)

    async def run(self, late: LateBinding) -> None:
        """Serve until cancelled; `late` binds devices to what is attached."""
        site = self._site
        async with AsyncExitStack() as stack:
            stack.enter_context(self._kubelet.connected())
            needs = await self._attach_dependencies(stack, late)
            calls = CniRouter(needs, self._context, self._machine.infos)
            await calls.pipeline.recover()
            site.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            missed = MissedDeletes(site.socket.parent / "missed")
            await self._make_up(calls, missed)
            socket = await stack.enter_async_context(CniSocket(site.socket, calls.answer))
            pods = self._node_pods()
            rounds = self._rounds(calls.pods, pods)
            returned = self._returned = ReturnedCards(
                lambda: needs.attachments.by_key,
                calls.pipeline.lost,
                partial(_tell_sandbox, self._events),
            )
            async with asyncio.TaskGroup() as tasks:
                parts: dict[str, Part] = {
                    "CNI socket": socket.serve,
                    "CNI configuration": partial(self._keep, self._keeper(pods, rounds)),
                    "pods of the node": partial(pods.follow, rounds.wake),
                    "sandboxes": partial(self._go_round, rounds),
                    "cards that came back": returned.run,
                    "unfinished attachments": calls.run,
                    "share limits": self.limits.run,
                    "address trouble": partial(
                        tell_trouble, needs.giver.check, self._tell, self._machine.look
                    ),
                }
                start(tasks, parts)

    async def _keep(self, keeper: Keeper) -> None:
        """Write the host's CNI configuration, from when the node has a card.

        A node without cards is none of kube-rdma's, though its agent runs there. One that had a
        card has the shim, and is kept as it is: its pods may end without the card.
        """
        if not self._needed.is_set():
            await self._begun.wait()
        if not self._needed.is_set():
            log.info("CNI configuration not needed", why="the node has no RDMA card and no pool")
            self._settle("This node has no RDMA card and no pool, so nothing calls kube-rdma.")
            await self._needed.wait()
        await keeper.run()

    async def _go_round(self, rounds: SandboxRepair) -> None:
        """Until the cards of the node are known, no pod can get what it lacks."""
        await self._begun.wait()
        await rounds.run()

    async def _attach_dependencies(
        self, stack: AsyncExitStack, late: LateBinding
    ) -> AttachDependencies:
        """The journal and the addresses of this node, and whom to ask about it."""
        site, machine = self._site, self._machine
        pods, singles = (
            stack.enter_context(Journal(Folder(site.state / name), ATTACHMENTS))
            for name in ("attachments", "delegated")
        )
        doors = IpamDependencies(self._cluster, site.namespace, Folder(site.state / "addresses"))
        boot = BootId((await asyncio.to_thread(BOOT_ID.read_text)).strip())
        giver = await stack.enter_async_context(NodeAddresses(NodeName(site.node), boot, doors))
        asked = NodeViewDependencies(
            cluster=self._cluster,
            kubelet=self._kubelet,
            context=self._context,
            survey=machine.survey,
            links=machine.links,
            confs=self._wired.confs,
            functions=machine.functions,
            ways=machine.ways,
            rail=machine.rails.number,
            watched=giver.pools,
            booked=self._kubelet.booked,
            attached=self._kubelet.attached,
            warn=partial(_tell_pod, self._events),
        )
        self._node = NodeView(asked)
        await self._places.find()
        tell = partial(self._tell, "JournalTrouble", warning=True)
        journal = AttachmentJournal(pods, singles, tell)
        attachments = PlanExecutor(journal, machine.open_pod, Plugins(self._places), WorkerPools())
        self._attachments = attachments
        return AttachDependencies(
            stopwatch=machine.stopwatch,
            everybodys=site.everybodys,
            node=self._node,
            giver=giver,
            late=late,
            attachments=attachments,
            inode=machine.inode,
            limits=self._limits,
            outdated=OutdatedPods(
                partial(self._restart, outdated=True), partial(_tell_pod, self._events)
            ),
        )

    def _node_pods(self) -> NodePodWatch:
        dependencies = PodWatchDependencies(
            cluster=self._cluster,
            node=self._site.node,
            state=self._site.state,
            context=self._context,
            tell=partial(_tell_pod, self._events),
        )
        return NodePodWatch(dependencies)

    def _rounds(self, networks: SandboxNetworks, pods: NodePodWatch) -> SandboxRepair:
        dependencies = RepairDependencies(
            networks=networks,
            listed=partial(read_sandboxes, self._site.runtime),
            netns=partial(read_netns, self._site.runtime),
            pods=partial(self._wanting, pods),
            owed=pods.owed,
            context=self._context,
            restart=self._restart,
            tell=partial(_tell_pod, self._events),
            refused=self._wired.unread,
        )
        return SandboxRepair(dependencies, self._machine.pace)

    def _granted(self, holdings: Sequence[Holding]) -> tuple[GrantedShare, ...]:
        """As NodeView.granted; raise Unavailable until networks are served."""
        if self._node is None:
            raise Unavailable("Pod networks are not served yet: the agent has just started.")
        return self._node.granted(holdings)

    def _wanting(self, pods: NodePodWatch) -> tuple[PodState, ...]:
        """The pods that should have networks of kube-rdma.

        Behind a meta-plugin only those whose annotation it does not read.
        """
        if self._context.wiring is Wiring.DELEGATE:
            return tuple(filter(self._wired.unread, pods.asking))
        return pods.asking if self._context.wiring is Wiring.CHAIN else ()

    async def _restart(self, pod: PodState, why: str | None, *, outdated: bool = False) -> None:
        """Ask the controller to evict a pod, or no more; see RestartRequest."""
        restarts = Restarts(self._cluster)
        if why is None:
            await restarts.withdraw(pod)
        else:
            request = RestartRequest(self._site.node, int(time.time()), why, outdated)
            await restarts.ask(pod, request)

    def _settle(self, sentence: str) -> None:
        """Take note of who calls the agent for pods, or why nobody will."""
        self._standing = sentence
        self._settled.set()

    def _tell(self, reason: str, note: str, warning: bool) -> None:
        """Say something about the node, as the kubelet tells of it."""
        about = About("Node", self._site.node, uid=self._site.node)
        self._events.tell(about, reason, note, warning=warning)

    def _keeper(self, pods: NodePodWatch, rounds: SandboxRepair) -> Keeper:
        def decide(files: tuple[ConfFile, ...], binaries: frozenset[str]) -> ConfPlan:
            before = self._context.wiring
            plan = self._wired.decide(files, binaries)
            # Until it is repaired, pods start without the agent; the first time shows who calls it.
            if plan.changes or plan.wiring is not before:
                rounds.wake()
            return plan

        host, places = self._site.host, self._places
        # Without the shim on the host nobody can have called the agent.
        if inside(host, places.now.binaries / PLUGIN).exists():
            self._needed.set()
        else:
            pods.unwired()

        def tell(kept: FolderRound) -> None:
            _log(kept)
            if kept.error:
                if isinstance(kept.error, Refused):
                    pods.unwired()
                    self._settle(str(kept.error))
                self._tell("NetworkConfigurationRefused", str(kept.error), warning=True)
            elif kept.plan:
                pods.wired(kept.plan.wiring)
                sentence = describe_plan(kept.plan)
                if kept.plan.wiring is not Wiring.NONE:
                    self._settle(sentence)
                self._tell("NetworkConfiguration", sentence, warning=False)

        shim, pace = self._machine.shim(), self._machine.conf
        return Keeper(host, places.find, shim, decide, tell, pace, shut_out)

    async def _make_up(self, calls: CniRouter, missed: MissedDeletes) -> None:
        """Do the DELs that came while nobody answered."""
        for attachment in missed.present():
            try:
                await calls.missed(attachment)
                missed.forget(attachment)
            except KubeError as error:
                log.warning("missed DEL failed", why=str(error))


def _groups(host: Path) -> RdmaGroups | None:
    """The control groups of the node, where they are mounted for the agent."""
    root = inside(host, HOST_CGROUPS)
    return RdmaGroups(HostCgroups(root)) if root.is_dir() else None


def _tell_pod(events: Events, pod: PodState, reason: str, note: str, warning: bool) -> None:
    about = About("Pod", pod.name, pod.namespace, pod.uid)
    events.tell(about, reason, note, warning=warning)


def _tell_sandbox(events: Events, pod: PodName, reason: str, note: str) -> None:
    events.tell(About("Pod", pod.name, pod.namespace), reason, note, warning=True)


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
