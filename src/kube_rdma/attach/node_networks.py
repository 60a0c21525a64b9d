"""Runs pod networks beside the device plugin: socket of the shim, the shim itself, addresses.

Opened by agent/compose where the command asks for networks. Loops of its own: it takes the
shim's calls, keeps shim and configuration on the host, follows the node's pods, looks for sandboxes
that were never announced, and reports when the node can give no addresses.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_base.notices import Notices
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, start
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cni.conf.folder import ConfFolder, FolderRound, FolderTiming, Keeper
from kube_rdma.adapters.cni.conf.places import CniPlaces, find, inside, names, places, shim
from kube_rdma.adapters.cni.plugins import HostPlugins, Plugins, ProcessOutcome
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.adapters.cni.state import MissedDeletes
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.cgroups import HOST_CGROUPS, HostCgroups, RdmaGroups
from kube_rdma.adapters.kernel.netlink.rtnl_read import (
    interfaces,
    link_ways,
    open_rtnl,
    seen_links,
    seen_named,
)
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.adapters.runtime.cri import read_netns, read_runtime, read_sandboxes
from kube_rdma.attach.address_health import tell_trouble
from kube_rdma.attach.attach import AttachDependencies, OutdatedPods
from kube_rdma.attach.calls import CniRouter, SandboxNetworks
from kube_rdma.attach.cluster import NetworkObjects, Restarts
from kube_rdma.attach.executor import AttachmentJournal, Open, PlanExecutor, WorkerPools
from kube_rdma.attach.late_binding import LateBinding
from kube_rdma.attach.node_view import (
    AskFunctions,
    Links,
    NodeContext,
    NodeView,
    NodeViewDependencies,
)
from kube_rdma.attach.repair import (
    NodePodWatch,
    PodWatchDependencies,
    RepairDependencies,
    RepairTiming,
    ReturnedCards,
    SandboxRepair,
)
from kube_rdma.attach.rules import conflist
from kube_rdma.attach.rules.callers import proven
from kube_rdma.attach.rules.conflist import (
    describe_plan,
    name_of,
    named_by_pods,
    plan,
    shut_out,
    with_leftovers,
)
from kube_rdma.attach.share_limits import RoundDependencies, ShareLimitRounds, ShareLimits
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.metrics.stopwatch import Stopwatch
from kube_rdma.model.attach.attachment import (
    Attachment,
    GrantedShare,
    LinkWays,
    NetworkAsk,
    RestartRequest,
    SeenLink,
)
from kube_rdma.model.attach.cni import HOOK_PROGRAM, PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import BootId, NodeName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import FunctionPlace, FunctionSettings, PodDeviceUse, Pool
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from kube_rdma.pools.rules.absence import attached_cards

# Where this host's runtime looks for CNI, and the host's other CNI plugins in that place.


class HostPlaces:
    """One per agent; also the folder of plugins that adapters/cni/plugins calls."""

    def __init__(self, host: Path, runtime: Path) -> None:
        self._host = host
        self._runtime = runtime
        self._runtime_places: CniPlaces | None = None
        self._now: CniPlaces | None = None
        self.root, self.folder = str(host), ""

    @property
    def now(self) -> CniPlaces:
        """As they were found last; raise Refused when that was never possible."""
        return self._now or find(self._host)

    async def find(self) -> CniPlaces:
        """Look again; raise Refused. While the runtime is away, what it said last holds."""
        try:
            runtime = await read_runtime(self._runtime)
        except Unavailable:
            runtime = None
        if runtime and runtime.cni_conf:
            source = f"{runtime.name} on {self._runtime}"
            self._runtime_places = places(runtime.cni_conf, runtime.cni_binaries, source)
        self._now = self._runtime_places or find(self._host)
        self.folder = str(self._now.binaries)
        return self._now

    def names(self) -> tuple[str, ...]:
        """As Binaries.names of cni_exec."""
        return self._plugins.names()

    def inode(self, path: str) -> int | None:
        """As Binaries.inode."""
        return self._plugins.inode(path)

    def run(self, name: str, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """As Binaries.run."""
        return self._plugins.run(name, environment, text)

    @property
    def _plugins(self) -> HostPlugins:
        return HostPlugins(self._host, self.now.binaries, partial(inside, self._host))


# Who calls the agent for pods by the host's CNI configuration, and what follows for one pod.

log = structlog.get_logger()


class CniWiring:
    """One per agent; `host` is the host's root as seen here, `places` where its runtime looks.

    What is decided is in `context` for all others.
    """

    def __init__(
        self, host: Path, definitions: NetworkObjects, places: HostPlaces, context: NodeContext
    ) -> None:
        self._host = host
        self._places = places
        self._definitions = definitions
        self._context = context
        self._readers: Mapping[str, str] = {}
        self._notices = Notices()

    def decide(self, files: tuple[ConfFile, ...], binaries: Collection[str]) -> ConfPlan:
        """What the folder should hold, which is what counts from now on; raise Refused."""
        self._context.wiring, self._readers = Wiring.NONE, {}
        conf_plan = proven(plan(files), files, binaries)
        self._context.wiring, self._readers = conf_plan.wiring, dict(conf_plan.readers)
        self._context.network = name_of(files, conf_plan.default)
        _, over = named_by_pods(files, binaries)
        return with_leftovers(conf_plan, over)

    def confs(self) -> tuple[ConfFile, ...]:
        """The files that a pod may mean by a name; reads the disk, raise Unavailable."""
        files, over = named_by_pods(self._files(), self._installed())
        if skipped := self._notices.news("passed over", *over):
            log.warning("CNI configurations without their plugin skipped", files=skipped)
        return files

    def unread(self, pod: PodState) -> Refused | None:
        """Why a pod gets none of its networks, where meta-plugins read another annotation."""
        return conflist.unread(pod, self._readers)

    async def concerned(self, pod: PodState) -> bool:
        """Whether one of the networks that a pod asks for is for kube-rdma to make.

        Behind a meta-plugin only those of its own type are: for all others it calls other plugins.
        Raise Refused where nobody reads what the pod says, and where the agent may not read the
        networks.
        """
        from kube_rdma.attach.documents import cni_conf, networks, pod_networks
        from kube_rdma.attach.documents.cni_conf import blocks, plugin_type

        if self._context.wiring is not Wiring.DELEGATE:
            return True
        if error := self.unread(pod):
            raise error
        asked = dict(pod.annotations)
        asks: tuple[NetworkAsk, ...] = ()
        with suppress(Refused):  # the meta-plugin has understood it, in its own way
            asks = networks.asks(asked.get(networks.ANNOTATION, ""), pod.namespace)
        for ask in asks:
            definition = await self._definitions.read(ask.namespace, ask.network)
            if definition and plugin_type(definition.config) == PLUGIN:
                return True
        named = {one.network for one in blocks(asked.get(pod_networks.ANNOTATION, ""))}
        files = await asyncio.to_thread(self._files) if named else ()
        texts = (cni_conf.text_of(files, name) for name in named)
        return any(text is not None and plugin_type(text) == PLUGIN for text in texts)

    def _files(self) -> tuple[ConfFile, ...]:
        return ConfFolder(inside(self._host, self._places.now.conf)).read()

    def _installed(self) -> frozenset[str]:
        places = self._places.now
        return names(inside(self._host, one) for one in (places.binaries, *places.more))


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
            attached=self._kubelet.claims.attached,
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
