"""Opens the agent's doors on a real node, as the command's options name them.

What is missing is not an error but a smaller agent: each door that stays closed is said once, with
what it costs. Only the kubelet's folder of device plugins has to be there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_rdma.adapters.files.device_info import FOLDER, DeviceInfoFolder
from kube_rdma.adapters.journal.codec import BINDINGS, FUNCTIONS, POOLS, RAILS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.device_nodes import FOLDER as CHAR_FOLDER
from kube_rdma.adapters.kernel.device_nodes import CharNodes, missing
from kube_rdma.adapters.kernel.netlink.events import RtnlEvents, Uevents
from kube_rdma.adapters.kernel.pod.namespaces import links_inside
from kube_rdma.adapters.kernel.sriov.functions import SriovCards, give_addresses
from kube_rdma.adapters.kernel.sriov.netdev_usage import read_uses
from kube_rdma.adapters.kernel.sysfs.counters import read_states
from kube_rdma.adapters.kubelet.device_plugin import Registry, serve
from kube_rdma.adapters.kubelet.folders import FIXED, KNOWN, DeviceCheckpoint, Folders, find_folders
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.cri import read_runtime, read_sandboxes
from kube_rdma.adapters.runtime.settings import SettingsFolder
from kube_rdma.agent.dependencies import AgentDependencies
from kube_rdma.agent.node.node_events import NodeEvent
from kube_rdma.agent.node.ready_file import ReadyFile
from kube_rdma.agent.virtual_functions import BOOT_ID, Sources
from kube_rdma.attach.binder import Binder, BinderDependencies, always
from kube_rdma.attach.late_binding import AskedAgain, EarlySettings, LateBinding, NoLateBinding
from kube_rdma.attach.rules.late_binding import KUBELET, cdi_works
from kube_rdma.hardware.kernel_events import Announcements, KernelSources
from kube_rdma.hardware.survey import OwnAddresses, SurveyCache, rerouted, take_survey
from kube_rdma.model.late_binding import Runtime
from kube_rdma.model.metrics import MetricNames
from kube_rdma.model.pools import AppliedPools, MadeFunctions, RailRecord
from kube_rdma.pools.kubelet_view import KubeletRecord, KubeletView
from kube_rdma.pools.rails import NodeRails

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.adapters.cluster.events import Events
    from kube_rdma.adapters.cluster.nodes import Nodes, Pods
    from kube_rdma.agent.node.node_labels import LabelSources, NodeLabels
    from kube_rdma.attach.node_networks import NodeNetworks
    from kube_rdma.reports.node_keeper import NodeKeeper

HOST_DEV = Path("/host/dev")  # where the host's /dev is mounted for the agent, if it is
CHAR_NODES = HOST_DEV / CHAR_FOLDER
CLAIMS_KUBELET = "1.34"  # the first with resource.k8s.io/v1 and its drivers (KEP-4381)
_SRIOV = SriovCards(give=give_addresses)

log = structlog.get_logger()


class AgentPlaces(Frozen):
    """Files and folders of the host, at the paths that this process sees."""

    kubelet_root: Path | None  # None: it is looked for
    state_dir: Path
    cdi_dir: Path
    runtime_socket: Path
    socket: Path  # of the shim
    host: Path  # the host's root
    ready_file: Path | None = None  # of the container, for its startup probe


class LabelWish(StrEnum):
    """What is to become of the node's labels. REMOVE: those go that an agent wrote.

    WRITE_NFD writes those of Node Feature Discovery too.
    """

    WRITE = "write"
    WRITE_NFD = "write-nfd"
    LEAVE = "leave"
    REMOVE = "remove"


class AgentOptions(Frozen):
    """The options of the command."""

    config: Path | None
    node: str | None  # name of this node's object; with it the API server is used
    connect: Callable[[], AbstractAsyncContextManager[Cluster]]
    registry: Registry
    places: AgentPlaces
    networks: bool = False
    startup_taint: bool = False  # take it off this node
    claims: bool = False  # the cards are for ResourceClaims too
    dranet: bool = False  # slices have DRANET's names of attributes too
    labels: LabelWish = LabelWish.WRITE
    namespace: str = "kube-rdma"  # of own objects
    everybodys: tuple[str, ...] | None = None  # namespaces of networks for pods of all others
    metrics: tuple[str | None, int] | None = None  # host and port, None: nobody is answered
    metric_names: tuple[MetricNames, ...] = ()
    metrics_pods: bool = False


@asynccontextmanager
async def opened(options: AgentOptions) -> AsyncIterator[AgentDependencies]:
    """The doors of this node; raise Refused for what cannot be used at all."""
    root = options.places.kubelet_root
    folders = find_folders(KNOWN if root is None else (root, FIXED))
    kubelet = KubeletView(PodResources(folders.pod_resources) if folders.pod_resources else None)
    own = OwnAddresses()
    kept = SurveyCache(
        partial(take_survey, brief=True, own=own.now), routes=partial(rerouted, own=own.now)
    )
    doors = AgentDependencies(
        config=options.config,
        kernel=_kernel(kept),
        serve=partial(serve, options.registry, folders),
        kubelet=kubelet,
        late=_never(options, "the agent runs without role node"),
        device_infos=DeviceInfoFolder() if FOLDER.parent.parent.is_dir() else None,
        own=own,
        ready=ReadyFile(options.places.ready_file) if options.places.ready_file else None,
    )
    async with AsyncExitStack() as stack:
        if options.node is None:
            doors = replace(doors, functions=Sources(_SRIOV.make, uses=read_uses))
            yield _with_metrics(doors, options)
            return
        doors = replace(
            doors, functions=_functions(options, stack), applied=partial(_applied, options, stack)
        )
        boot = BOOT_ID.read_text().strip()
        doors = replace(doors, rails=NodeRails(partial(_rails, options, stack), boot=boot))
        yield _with_metrics(await _with_node(doors, options, folders, kept, stack), options)


@asynccontextmanager
async def labelling(options: AgentOptions) -> AsyncIterator[LabelSources]:
    """The doors of role `node` alone, which labels its node."""
    from kube_rdma.adapters.cluster.events import Events
    from kube_rdma.adapters.cluster.nodes import Nodes
    from kube_rdma.agent.node.cluster_node_events import ClusterNodeEvents
    from kube_rdma.agent.node.node_labels import LabelSources

    assert options.node
    async with options.connect() as cluster:
        events = ClusterNodeEvents(cluster, options.node, Events(cluster, options.node))
        kernel = _kernel(SurveyCache(partial(take_survey, brief=True)))
        yield LabelSources(kernel, events, _labels(options, Nodes(cluster)))


def _labels(options: AgentOptions, nodes: Nodes) -> NodeLabels | None:
    """The labels of this node, None where they are left alone."""
    from kube_rdma.agent.node.node_labels import NodeLabels, host_release

    if options.labels is LabelWish.LEAVE:
        return None
    host = host_release(options.places.host) if options.labels is LabelWish.WRITE_NFD else None
    return NodeLabels(nodes, host, removes=options.labels is LabelWish.REMOVE)


async def _with_node(
    doors: AgentDependencies,
    options: AgentOptions,
    folders: Folders,
    kept: SurveyCache,
    stack: AsyncExitStack,
) -> AgentDependencies:
    """The doors of role `node` too: the API server, and late binding where it works."""
    # Imported here: role `plugin` alone needs neither the memory nor the time of the client.
    from kube_rdma.adapters.cluster.events import Events
    from kube_rdma.adapters.cluster.nodes import Nodes, Pods
    from kube_rdma.agent.node.cluster_node_events import ClusterNodeEvents
    from kube_rdma.agent.node.report import NodePolicies
    from kube_rdma.claims.publisher import ClaimedGpus
    from kube_rdma.pools.kind import NODE_POLICY

    assert options.node
    cluster = await stack.enter_async_context(options.connect())
    version = await _kubelet_version(Nodes(cluster), options.node, doors.own)
    doors.own.connected(cluster.local_address)
    notices = Notices()

    async def ask() -> tuple[bool, str]:
        return cdi_works(version, await _runtime(options.places.runtime_socket, notices))

    doors.kubelet.slices = ClaimedGpus(cluster, options.node)
    checkpoint = DeviceCheckpoint(folders.device_plugins)
    pods = partial(Pods(cluster).on_node, options.node)
    doors.kubelet.record = KubeletRecord(checkpoint.read, pods)
    events = Events(cluster, options.node)
    doors = replace(
        doors,
        node=ClusterNodeEvents(cluster, options.node, events),
        keepers=_keepers(options, cluster),
        policies=NodePolicies(partial(cluster.watch, NODE_POLICY)),
    )
    if options.networks:
        doors = replace(doors, networks=_networks(options, cluster, events, doors, kept))
    make = partial(_binder, doors, options, Pods(cluster), stack)
    doors = replace(doors, late=await _late(options, folders, ask, make))
    return _with_claims(doors, options, folders, cluster, stack) if options.claims else doors


Ask = Callable[[], Awaitable[tuple[bool, str]]]


async def _late(
    options: AgentOptions, folders: Folders, ask: Ask, make: Callable[[], Binder]
) -> LateBinding:
    """Late binding, where kubelet and runtime can do it now, or once they can."""
    if folders.pod_resources is None:
        return _never(options, "the kubelet's pod-resources socket is not mounted")
    works, why = await ask()
    return make() if works else AskedAgain(_never(options, why), ask, make)


def _with_claims(
    doors: AgentDependencies,
    options: AgentOptions,
    folders: Folders,
    cluster: Cluster,
    stack: AsyncExitStack,
) -> AgentDependencies:
    """The doors with slices and the driver of claims; few agents need their memory."""
    from kube_rdma.agent.claims import ClaimSite, with_claims

    assert options.node
    notices = Notices()

    async def works() -> tuple[bool, str]:
        # The kubelet that knows claims knows CDI devices too; the runtime may not.
        return cdi_works(CLAIMS_KUBELET, await _runtime(options.places.runtime_socket, notices))

    places = options.places
    site = ClaimSite(
        node=options.node,
        boot=BOOT_ID.read_text().strip(),
        state=places.state_dir,
        cdi=places.cdi_dir,
        settings=places.socket.parent / "settings",
        plugins_registry=folders.plugins_registry,
        works=works,
        sandboxes=partial(read_sandboxes, places.runtime_socket),
        dranet=options.dranet,
    )
    return with_claims(doors, site, cluster, stack)


def _keepers(options: AgentOptions, cluster: Cluster) -> tuple[NodeKeeper[Any], ...]:
    """Those of what the cluster knows of this node, as the options wish."""
    from kube_rdma.adapters.cluster.nodes import Nodes
    from kube_rdma.agent.node.marks import CardCondition, StartupTaint
    from kube_rdma.agent.node.report import NodeReporter
    from kube_rdma.reports.node_report import NodeReports

    assert options.node
    keepers = (
        StartupTaint(Nodes(cluster)) if options.startup_taint else None,
        CardCondition(Nodes(cluster)),
        _labels(options, Nodes(cluster)),
        NodeReporter(NodeReports(cluster, options.node)),
    )
    return tuple(filter(None, keepers))


def _with_metrics(doors: AgentDependencies, options: AgentOptions) -> AgentDependencies:
    """The doors with an exporter."""
    from kube_rdma.metrics.exporter import Exporter, MetricsSite, MetricsSources

    sources = MetricsSources(doors.kubelet)
    if doors.networks:
        networks = doors.networks
        sources = replace(
            sources,
            attachments=networks.attachments,
            uses=networks.uses,
            stopwatch=networks.stopwatch,
        )
    site = MetricsSite(options.metrics, options.metric_names, options.metrics_pods)
    return replace(doors, metrics=Exporter(site, sources))


def _never(options: AgentOptions, why: str) -> NoLateBinding:
    """No late binding; what containers are told lies on the host's disk, where that is here."""
    return NoLateBinding(why, EarlySettings(_early(options)))


def _early(options: AgentOptions) -> Path | None:
    """Where settings lie that Allocate gives; role `plugin` alone may have no place for them."""
    state = options.places.state_dir
    return state / "settings" if options.node or state.is_dir() else None


def _networks(
    options: AgentOptions,
    cluster: Cluster,
    events: Events,
    doors: AgentDependencies,
    kept: SurveyCache,
) -> NodeNetworks:
    """Pod networks, which nobody serves yet."""
    from kube_rdma.attach.node_networks import NetworkSite, NodeKernel, NodeNetworks

    assert options.node
    places = options.places
    site = NetworkSite(
        node=options.node,
        namespace=options.namespace,
        host=places.host,
        state=places.state_dir,
        socket=places.socket,
        runtime=places.runtime_socket,
        everybodys=options.everybodys,
    )
    machine = NodeKernel(kept, infos=doors.device_infos, rails=doors.rails)
    return NodeNetworks(site, cluster, events, doors.kubelet, machine)


def _binder(
    doors: AgentDependencies, options: AgentOptions, pods: Pods, stack: AsyncExitStack
) -> Binder:
    journal = stack.enter_context(Journal(Folder(options.places.state_dir / "bindings"), BINDINGS))
    to = BinderDependencies(
        journal=journal,
        cdi=CdiFolder(options.places.cdi_dir),
        kubelet=doors.kubelet,
        pods=pods,
        links_inside=doors.kernel.links_inside,
        sandboxes=partial(read_sandboxes, options.places.runtime_socket),
        networks=options.networks,
        shim=doors.networks.shim_of_host if doors.networks else lambda: None,
        settings=SettingsFolder(options.places.socket.parent / "settings"),
        early=_early(options),
        concerned=doors.networks.concerned if doors.networks else always,
        tell=partial(doors.node.tell, NodeEvent.JOURNAL_TROUBLE),
    )
    return Binder(to)


def _functions(options: AgentOptions, stack: AsyncExitStack) -> Sources:
    """Virtual functions with a memory, which is opened when a policy wishes for some."""

    def journal() -> Journal[MadeFunctions]:
        folder = Folder(options.places.state_dir / "functions")
        return stack.enter_context(Journal(folder, FUNCTIONS))

    return Sources(_SRIOV.make, journal, BOOT_ID.read_text().strip(), read_uses)


def _applied(options: AgentOptions, stack: AsyncExitStack) -> Journal[AppliedPools]:
    """The memory of what shares mean, without which a restart could change it below a pod."""
    return stack.enter_context(Journal(Folder(options.places.state_dir / "pools"), POOLS))


def _rails(options: AgentOptions, stack: AsyncExitStack) -> Journal[RailRecord]:
    """The memory of which card is on which rail: an address of another rail leads nowhere."""
    return stack.enter_context(Journal(Folder(options.places.state_dir / "rails"), RAILS))


async def _kubelet_version(nodes: Nodes, name: str, own: OwnAddresses) -> str | None:
    """The kubelet's version; while it is unknown, the oldest that does what is needed.

    The addresses of the Node object are noted besides, before the first card is offered.

    Cards are served without the API server too, and what pods hold must not change its meaning
    because the agent started on a bad day.
    """
    try:
        node = await nodes.read(name)
    except Unavailable as error:
        log.warning("kubelet version unknown", why=str(error))
        return ".".join(map(str, KUBELET))
    if node is None:
        return None
    own.seen(node)
    return node.kubelet_version


async def _runtime(socket: Path, notices: Notices) -> Runtime | None:
    try:
        runtime = await read_runtime(socket)
    except Unavailable as error:
        notices.warn(log, "container runtime features unknown", "runtime", str(error))
        return None
    notices.over("runtime")
    return runtime


def _kernel(kept: SurveyCache) -> KernelSources:
    announcements: list[tuple[str, Announcements]] = [
        ("devices that come and go", Uevents),
        ("links and addresses", RtnlEvents),
    ]
    states = partial(read_states, Path("/sys"))
    if not HOST_DEV.is_dir():
        return KernelSources(
            kept.take,
            announcements,
            links_inside=links_inside,
            port_states=states,
            uses=read_uses,
        )
    announcements.append(("device nodes", partial(CharNodes, CHAR_NODES)))
    gone = partial(missing, folder=CHAR_NODES)
    return KernelSources(kept.take, announcements, gone, links_inside, states, read_uses)
