"""Runs pod networks beside the device plugin: socket of the shim, the shim itself, addresses.

agent/compose opens it where the agent's options ask for networks. Several parts run beside each
other. They serve the shim's calls, keep shim and CNI configuration on the host, and watch the
node's pods. They repair sandboxes whose ADD never came, check cards that came back, and remove
attachments without a sandbox. They set share limits, and report when the node can give no
addresses.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_base.notices import Notices
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import Part, start
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cni.conf.folder import ConfFolder, FolderRound, FolderTiming, Keeper
from kube_rdma.adapters.cni.conf.places import CniPlaces, find, inside, names, places, shim
from kube_rdma.adapters.cni.plugins import HostPlugins, Plugins
from kube_rdma.adapters.cni.shim_files import MissedDeletes
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.cgroups import HOST_CGROUPS, HostCgroups, RdmaGroups
from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.adapters.runtime.cri import read_netns, read_runtime, read_sandboxes
from kube_rdma.attach import node_view
from kube_rdma.attach.attach import AttachDependencies, OutdatedPods
from kube_rdma.attach.calls import CniRouter
from kube_rdma.attach.cluster import NetworkObjects, Restarts
from kube_rdma.attach.executor import AttachmentJournal, Open, PlanExecutor, WorkerPools
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.attach.repair import (
    NodePodWatch,
    PodWatchDependencies,
    RepairDependencies,
    RepairTiming,
    ReturnedCards,
    SandboxRepair,
)
from kube_rdma.attach.rules import conflist
from kube_rdma.attach.rules.conflist import (
    describe_plan,
    name_of,
    named_by_pods,
    plan,
    proven,
    shut_out,
    with_leftovers,
)
from kube_rdma.attach.share_limits import RoundDependencies, ShareLimitRounds, ShareLimits
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.metrics.stopwatch import Stopwatch
from kube_rdma.model.attach import attachment as model
from kube_rdma.model.attach.cni import HOOK_PROGRAM, PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import BootId, NodeName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import FunctionPlace, FunctionReports, Pool
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from kube_rdma.pools.rules.absence import attached_cards

log = structlog.get_logger()


class HostPlaces(HostPlugins):
    """The folders in which the host's runtime looks for CNI files, and the plugins there."""

    def __init__(self, host: Path, runtime: Path) -> None:
        super().__init__(host, None, partial(inside, host))
        self._host = host
        self._runtime = runtime
        self._runtime_places: CniPlaces | None = None
        self._now: CniPlaces | None = None

    @property
    def now(self) -> CniPlaces:
        """Return the folders as found last, else look for them; raise Refused if there are none."""
        return self._now or find(self._host)

    async def find(self) -> CniPlaces:
        """Ask the runtime for its CNI folders again, and return them.

        While it gives no answer, its last one counts; without one, its configuration files or usual
        folders. Raise Refused if there are none.
        """
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


class CniWiring:
    """The host's CNI configuration: who calls the agent by it, and for which pods.

    `host` is the path of the host's root in the agent's container. What is decided is written to
    `context`, where other parts read it.
    """

    def __init__(
        self,
        host: Path,
        definitions: NetworkObjects,
        places: HostPlaces,
        context: node_view.NodeContext,
    ) -> None:
        self._host = host
        self._places = places
        self._definitions = definitions
        self._context = context
        self._readers: Mapping[str, str] = {}
        self._notices = Notices()

    def decide(self, files: tuple[ConfFile, ...], binaries: Collection[str]) -> ConfPlan:
        """Return the planned changes of the CNI folder, and apply their wiring to later calls.

        Raise Refused where nothing can be chained there, or two meta-plugins claim the pods.
        """
        self._context.wiring, self._readers = Wiring.NONE, {}
        conf_plan = proven(plan(files), files, binaries)
        self._context.wiring, self._readers = conf_plan.wiring, dict(conf_plan.readers)
        self._context.network = name_of(files, conf_plan.default)
        _, over = named_by_pods(files, binaries)
        return with_leftovers(conf_plan, over)

    def confs(self) -> tuple[ConfFile, ...]:
        """Return the CNI configurations that pods may name.

        Read the disk; raise Unavailable if that fails, Refused if the folder is unknown.
        """
        here = self._places.now
        binaries = names(inside(self._host, one) for one in (here.binaries, *here.more))
        files, over = named_by_pods(self._files(), binaries)
        if skipped := self._notices.news("passed over", *over):
            log.warning("CNI configurations without their plugin skipped", files=skipped)
        return files

    def unread(self, pod: PodState) -> Refused | None:
        """Return why a pod's annotation gives it no networks: no meta-plugin reads it.

        Return None if all of its annotations are read, or if the node has no meta-plugin.
        """
        return conflist.unread(pod, self._readers)

    async def concerned(self, pod: PodState) -> bool:
        """Return whether kube-rdma has to make one of the networks that a pod asks for.

        Behind a meta-plugin these are the networks of kube-rdma's own CNI type: for all others the
        meta-plugin calls other plugins. Raise KubeError where nobody reads the pod's annotation, or
        the networks cannot be read.
        """
        from kube_rdma.attach.documents import cni_conf, networks, pod_networks

        if self._context.wiring is not Wiring.DELEGATE:
            return True
        if error := self.unread(pod):
            raise error
        asked = dict(pod.annotations)
        asks: tuple[model.NetworkAsk, ...] = ()
        with suppress(Refused):  # the meta-plugin has understood it, in its own way
            asks = networks.asks(asked.get(networks.ANNOTATION, ""), pod.namespace)
        for ask in asks:
            definition = await self._definitions.read(ask.namespace, ask.network)
            if definition and cni_conf.plugin_type(definition.config) == PLUGIN:
                return True
        named = {one.network for one in cni_conf.blocks(asked.get(pod_networks.ANNOTATION, ""))}
        files = await asyncio.to_thread(self._files) if named else ()
        texts = (cni_conf.text_of(files, name) for name in named)
        return any(text is not None and cni_conf.plugin_type(text) == PLUGIN for text in texts)

    def _files(self) -> tuple[ConfFile, ...]:
        return ConfFolder(inside(self._host, self._places.now.conf)).read()


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NetworkSite(Frozen):
    """Node name, host paths and other names of one node's networks, as the agent sees them."""

    node: str
    namespace: str  # of own objects, such as the nodes' leases
    host: Path  # the host's root
    state: Path  # /var/lib/kube-rdma
    socket: Path  # /run/kube-rdma/agent.sock
    runtime: Path  # the container runtime's socket
    global_namespaces: tuple[str, ...] | None = None  # as AttachDependencies has it


def host_links(names: Sequence[str] | None) -> tuple[model.SeenLink, ...]:
    """Return the node's network interfaces with these names, or (None) all."""
    with rtnl_read.open_rtnl() as netlink:
        if names is None:
            return rtnl_read.seen_links(netlink)
        return rtnl_read.seen_named(netlink, names)


def host_ways(links: Sequence[model.SeenLink]) -> tuple[model.LinkWays, ...]:
    """Return routes and rules over these interfaces; skip one that has been replaced."""
    with rtnl_read.open_rtnl() as netlink:
        now = {(one.seen.index, one.seen.mac) for one in rtnl_read.interfaces(netlink)}
        own = [link for link in links if (link.index, link.mac) in now]
        return rtnl_read.link_ways(netlink, own)


def host_functions(places: Sequence[FunctionPlace]) -> FunctionReports:
    """Return the settings of virtual functions whose physical one is on the node."""
    with rtnl_read.open_rtnl() as netlink:
        return seen_functions(netlink, places)


class NodeSources(Frozen):
    """Functions by which NodeNetworks reads the node; tests replace them."""

    survey: SurveyCache = field(default_factory=SurveyCache)
    links: node_view.Links = host_links
    functions: node_view.AskFunctions = host_functions
    ways: Callable[[Sequence[model.SeenLink]], tuple[model.LinkWays, ...]] = host_ways
    open_pod: Open = open_pod
    # of the namespace behind a descriptor
    inode: Callable[[int], int] = lambda descriptor: os.fstat(descriptor).st_ino
    pace: RepairTiming = field(default_factory=RepairTiming)
    shim: Callable[[], bytes] = shim  # the binary that the host gets
    infos: DeviceInfoFolder | None = None  # in which meta-plugins find device info files
    look: float = 300.0  # seconds between two checks whether addresses can be given
    conf: FolderTiming = field(default_factory=FolderTiming)
    rails: NodeRails = field(default_factory=NodeRails)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    mode_warnings: node_view.ModeWarnings = node_view.no_mode_warnings


class NodeNetworks:
    """The service that gives pods of one node their networks.

    It is run by ``await NodeNetworks(...).run(late)``. Its Events go to the table `events`, which
    another part of the process writes.
    """

    def __init__(
        self,
        site: NetworkSite,
        cluster: Cluster,
        events: Events,
        kubelet: KubeletView,
        sources: NodeSources | None = None,
    ) -> None:
        self._site = site
        self._cluster = cluster
        self._events = events
        self._kubelet = kubelet
        self._sources = sources or NodeSources()
        self._context = node_view.NodeContext()
        self._begun = asyncio.Event()  # the node was looked at
        self._needed = asyncio.Event()  # it has a card, or had one
        self._unsettled = "The node's CNI configuration was not looked at yet."
        self._places = HostPlaces(site.host, site.runtime)
        self._limits = ShareLimits(_groups(site.host), lambda: self._context.pools)
        self._node: node_view.NodeView | None = None
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
        self._wired = CniWiring(site.host, NetworkObjects(cluster), self._places, self._context)

    @property
    def stopwatch(self) -> Stopwatch:
        """Return the metric of how long calls take."""
        return self._sources.stopwatch

    def attachments(self) -> Iterable[model.Attachment]:
        """Return all attachments of this node's pods in the journal; none until it is open."""
        return self._attachments.by_key.values() if self._attachments else ()

    def cards(self) -> frozenset[CardId] | None:
        """Return the cards that attachments give to pods.

        Return None until the journal is open, and while it has a record that cannot be understood.
        """
        if self._attachments is None or self._attachments.journal.foreign:
            return None
        return frozenset(attached_cards(self._attachments.by_key.values()))

    def returned(self, card: CardId) -> None:
        """Request a check of the pods of a card that is usable again after it was not."""
        if self._returned:
            self._returned.returned(card)

    def shim_of_host(self) -> str | None:
        """Return the shim's path on the host, for the runtime's hooks; None without one."""
        with suppress(Refused):  # the runtime's folders are not known, so nothing lies there
            program = self._places.now.binaries / HOOK_PROGRAM
            if inside(self._site.host, program).exists():
                return str(program)
        return None

    def wiring(self) -> Wiring:
        """Return how the agent is called for pods now: chained, by a meta-plugin or not at all."""
        return self._context.wiring

    def offered(self, pools: Mapping[str, Pool], withdrawn: Sequence[str] = ()) -> None:
        """Note the offered pools, and the withdrawn resources that pods still hold."""
        self._context.pools, self._context.withdrawn = pools, withdrawn
        self._begun.set()
        if self._sources.survey.has_cards or any(pool.cards for pool in pools.values()):
            self._needed.set()

    def unsettled(self) -> tuple[str, ...]:
        """Return a sentence on why it is not certain yet who calls the agent for pods; or none.

        A configuration that is refused has no sentence: only a person can mend it, so nothing
        should wait for it.
        """
        return (self._unsettled,) if self._unsettled else ()

    async def concerned(self, pod: PodState) -> bool:
        """Return whether kube-rdma has to make a network that a pod asks for."""
        return await self._wired.concerned(pod)

    async def run(self, late: LateBindingChoice) -> None:
        """Serve pod networks until cancelled; `late` binds devices to attached interfaces."""
        site = self._site
        async with AsyncExitStack() as stack:
            stack.enter_context(self._kubelet.connected())
            needs = await self._attach_dependencies(stack, late)
            calls = CniRouter(needs, self._context)
            await calls.pipeline.recover()
            site.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._make_up(calls, MissedDeletes(site.socket.parent / "missed"))
            socket = await stack.enter_async_context(CniSocket(site.socket, calls.answer))
            tell = partial(_tell_pod, self._events)
            watch = PodWatchDependencies(self._cluster, site.node, site.state, self._context, tell)
            pods = NodePodWatch(watch)
            rounds = SandboxRepair(
                RepairDependencies(
                    networks=calls.pods,
                    listed=partial(read_sandboxes, site.runtime),
                    netns=partial(read_netns, site.runtime),
                    pods=partial(self._wanting, pods),
                    owed=pods.owed,
                    context=self._context,
                    restart=self._restart,
                    tell=tell,
                    refused=self._wired.unread,
                ),
                self._sources.pace,
            )
            returned = self._returned = ReturnedCards(
                lambda: needs.attachments.by_key,
                calls.pipeline.lost,
                lambda pod, reason, note: self._events.tell(
                    About("Pod", pod.name, pod.namespace), reason, note, warning=True
                ),
            )

            async def repair() -> None:
                # Until the cards of the node are known, no pod can get what it lacks.
                await self._begun.wait()
                await rounds.run()

            async with asyncio.TaskGroup() as tasks:
                parts: dict[str, Part] = {
                    "CNI socket": socket.serve,
                    "CNI configuration": partial(self._keep, self._keeper(pods, rounds)),
                    "pods of the node": partial(pods.follow, rounds.wake),
                    "sandboxes": repair,
                    "cards that came back": returned.run,
                    "unfinished attachments": calls.run,
                    "share limits": self.limits.run,
                    "address trouble": partial(
                        tell_trouble, needs.giver.check, self._tell, self._sources.look
                    ),
                }
                start(tasks, parts)

    async def _keep(self, keeper: Keeper) -> None:
        """Write the host's CNI configuration, from when the node has its first card.

        On a node that never had a card nothing is written, though the agent runs there. A node that
        has the shim had one: its configuration is kept up, as its pods may end after the card is
        gone.
        """
        if not self._needed.is_set():
            await self._begun.wait()
        if not self._needed.is_set():
            log.info("CNI configuration not needed", why="the node has no RDMA card and no pool")
            self._unsettled = ""
            await self._needed.wait()
        await keeper.run()

    async def _attach_dependencies(
        self, stack: AsyncExitStack, late: LateBindingChoice
    ) -> AttachDependencies:
        """Open the journals of attachments and the provider of addresses; return what ADDs need."""
        site, sources = self._site, self._sources
        pods, singles = (
            stack.enter_context(Journal(Folder(site.state / name), ATTACHMENTS))
            for name in ("attachments", "delegated")
        )
        ipam = IpamDependencies(self._cluster, site.namespace, Folder(site.state / "addresses"))
        boot = BootId((await asyncio.to_thread(BOOT_ID.read_text)).strip())
        giver = await stack.enter_async_context(NodeAddresses(NodeName(site.node), boot, ipam))
        asked = node_view.NodeViewDependencies(
            cluster=self._cluster,
            kubelet=self._kubelet,
            context=self._context,
            survey=sources.survey,
            links=sources.links,
            confs=self._wired.confs,
            functions=sources.functions,
            ways=sources.ways,
            rail=sources.rails.number,
            watched=giver.pools,
            attached=self._kubelet.claims.attached,
            warn=partial(_tell_pod, self._events),
            mode_warnings=sources.mode_warnings,
        )
        self._node = node_view.NodeView(asked)
        await self._places.find()
        tell = partial(self._tell, "JournalTrouble", warning=True)
        journal = AttachmentJournal(pods, singles, tell)
        attachments = PlanExecutor(journal, sources.open_pod, Plugins(self._places), WorkerPools())
        self._attachments = attachments
        return AttachDependencies(
            stopwatch=sources.stopwatch,
            global_namespaces=site.global_namespaces,
            node=self._node,
            giver=giver,
            late=late,
            attachments=attachments,
            inode=sources.inode,
            limits=self._limits,
            infos=sources.infos,
            outdated=OutdatedPods(
                partial(self._restart, outdated=True), partial(_tell_pod, self._events)
            ),
        )

    def _granted(self, holdings: Sequence[Holding]) -> tuple[model.GrantedShare, ...]:
        """Return the shares of kube-rdma among the holdings, as NodeView.granted does.

        Raise Unavailable until pod networks are served.
        """
        if self._node is None:
            raise Unavailable("Pod networks are not served yet: the agent has just started.")
        return self._node.granted(holdings)

    def _wanting(self, pods: NodePodWatch) -> tuple[PodState, ...]:
        """Return the pods of the node that the rounds of repair look after.

        These are the pods that ask for networks. Behind a meta-plugin they are only those whose
        annotation it does not read; there are none while nobody calls the agent.
        """
        if self._context.wiring is Wiring.DELEGATE:
            return tuple(filter(self._wired.unread, pods.asking))
        return pods.asking if self._context.wiring is Wiring.CHAIN else ()

    async def _restart(self, pod: PodState, why: str | None, *, outdated: bool = False) -> None:
        """Ask the controller to evict a pod; without `why` withdraw that request."""
        restarts = Restarts(self._cluster)
        if why is None:
            await restarts.withdraw(pod)
        else:
            request = model.RestartRequest(self._site.node, int(time.time()), why, outdated)
            await restarts.ask(pod, request)

    def _tell(self, reason: str, note: str, warning: bool) -> None:
        """Record an Event about the node."""
        about = About("Node", self._site.node, uid=self._site.node)
        self._events.tell(about, reason, note, warning=warning)

    def _keeper(self, pods: NodePodWatch, rounds: SandboxRepair) -> Keeper:
        def decide(files: tuple[ConfFile, ...], binaries: frozenset[str]) -> ConfPlan:
            before = self._context.wiring
            plan = self._wired.decide(files, binaries)
            # Pods may have started without the agent before the changes, or before the first plan.
            if plan.changes or plan.wiring is not before:
                rounds.wake()
            return plan

        host, places = self._site.host, self._places
        # Without the shim on the host no runtime can have called the agent.
        if inside(host, places.now.binaries / PLUGIN).exists():
            self._needed.set()
        else:
            pods.unwired()

        def tell(kept: FolderRound) -> None:
            _log(kept)
            if kept.error:
                is_final = isinstance(kept.error, Refused)
                if is_final:
                    pods.unwired()
                self._unsettled = "" if is_final else str(kept.error)
                self._tell("NetworkConfigurationRefused", str(kept.error), warning=True)
            elif kept.plan:
                pods.wired(kept.plan.wiring)
                sentence = describe_plan(kept.plan)
                self._unsettled = sentence if kept.plan.wiring is Wiring.NONE else ""
                self._tell("NetworkConfiguration", sentence, warning=False)

        shim, pace = self._sources.shim(), self._sources.conf
        return Keeper(host, places.find, shim, decide, tell, pace, shut_out)

    async def _make_up(self, calls: CniRouter, missed: MissedDeletes) -> None:
        """Do the DELs that came while the agent was away."""
        for attachment in missed.present():
            try:
                await calls.missed(attachment)
                missed.forget(attachment)
            except KubeError as error:
                log.warning("missed DEL failed", why=str(error))


async def tell_trouble(
    check: Callable[[], Awaitable[Sequence[Broken]]],
    tell: Callable[[str, str, bool], None],
    seconds: float,
) -> None:
    """Report when the node can give no addresses or has lost some, and when that is over.

    CNI has STATUS for it, but an error there can make the node NotReady, also for pods that ask for
    no network. The first check comes late: a node that starts has no right to give addresses yet.
    """
    notices = Notices()
    while True:
        await asyncio.sleep(seconds)
        try:
            why = " ".join(map(str, await check()))
        except KubeError as error:
            why = str(error)
        for trouble in notices.news("addresses", why) if why else ():
            log.warning("address allocation unavailable", why=trouble)
            tell("AddressTrouble", trouble, True)
        if not why and notices.over("addresses"):
            log.info("address allocation restored")
            tell("AddressTroubleOver", "Pods get addresses on this node as they should.", False)


def _groups(host: Path) -> RdmaGroups | None:
    """Return the node's control groups; None where the agent does not see them."""
    root = inside(host, HOST_CGROUPS)
    return RdmaGroups(HostCgroups(root)) if root.is_dir() else None


def _tell_pod(events: Events, pod: PodState, reason: str, note: str, warning: bool) -> None:
    events.tell(About("Pod", pod.name, pod.namespace, pod.uid), reason, note, warning=warning)


def _log(kept: FolderRound) -> None:
    """Log the outcome of one check of the host's CNI configuration."""
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
