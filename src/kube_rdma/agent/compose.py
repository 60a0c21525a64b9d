"""Opens what the agent works with on a real node, as the command's options name it.

What the host lacks is mostly no error but makes a smaller agent. The kubelet's folder of device
plugins has to be there, for --claims also its plugins_registry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_base.plain_text import ended
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
from kube_rdma.agent.changes import BOOT_ID, FunctionSources
from kube_rdma.agent.loop import AgentDependencies
from kube_rdma.agent.node.node_events import NodeEvent, NodeEvents
from kube_rdma.attach import late_binding
from kube_rdma.attach.binder import Binder, BinderDependencies, always
from kube_rdma.attach.rules.late_binding import KUBELET, cdi_works, holders
from kube_rdma.hardware.kernel_events import Announcements, KernelSources
from kube_rdma.hardware.survey import OwnAddresses, SurveyCache, rerouted, take_survey
from kube_rdma.lib.health import HealthChecks
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import HeldShare, Runtime
from kube_rdma.model.metrics import MetricNames
from kube_rdma.model.pools import PoolSpec
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

T = TypeVar("T")
Ask = Callable[[], Awaitable[tuple[bool, str]]]

log = structlog.get_logger()


class LabelMode(StrEnum):
    """The ways in which the agent treats the labels of its node."""

    WRITE = "write"
    WRITE_NFD = "write-nfd"  # those of Node Feature Discovery too
    LEAVE = "leave"
    REMOVE = "remove"  # those that an agent wrote


class AgentOptions(Frozen, kw_only=True):
    """The options of the command `agent`; paths are as this process sees them."""

    config: Path | None = None
    node: str | None = None  # name of this node's object; with it the API server is used
    connect: Callable[[], AbstractAsyncContextManager[Cluster]]
    registry: Registry = Registry.DEVICE_PLUGINS
    # files and folders of the host
    kubelet_root: Path | None = None  # None: it is looked for
    state_dir: Path
    cdi_dir: Path
    runtime_socket: Path
    socket: Path  # of the shim
    host: Path  # the host's root
    # what the agent does
    networks: bool = False
    startup_taint: bool = False  # take it off this node
    claims: bool = False  # the cards are for ResourceClaims too
    dranet: bool = False  # slices have DRANET's names of attributes too
    labels: LabelMode = LabelMode.WRITE
    namespace: str = "kube-rdma"  # of own objects
    # namespaces of networks for pods of all others
    global_namespaces: tuple[str, ...] | None = None
    metrics: tuple[str | None, int] | None = None  # host and port; None: not served
    health: tuple[str | None, int] | None = None  # of /livez and /readyz; None: not served
    metric_names: tuple[MetricNames, ...] = ()
    metrics_pods: bool = False
    no_lldp: bool = False  # receive none on the ports of pools


@asynccontextmanager
async def opened(options: AgentOptions) -> AsyncIterator[AgentDependencies]:
    """Yield all dependencies of the agent for its options; raise a KubeError where one fails."""
    root = options.kubelet_root
    folders = find_folders(KNOWN if root is None else (root, FIXED))
    kubelet = KubeletView(PodResources(folders.pod_resources) if folders.pod_resources else None)
    own = OwnAddresses()
    kept = SurveyCache(
        partial(take_survey, brief=True, own=own.now), routes=partial(rerouted, own=own.now)
    )
    needs = AgentDependencies(
        config=options.config,
        kernel=_kernel(kept),
        serve=partial(serve, options.registry, folders),
        kubelet=kubelet,
        late=late_binding.LateBindingChoice(_never(options, "the agent runs without role node")),
        device_infos=DeviceInfoFolder() if FOLDER.parent.parent.is_dir() else None,
        own=own,
        health=partial(HealthChecks.run, address=options.health) if options.health else None,
    )
    async with AsyncExitStack() as stack:
        if options.node is None:
            needs = replace(needs, functions=FunctionSources(_SRIOV.make, uses=read_uses))
            yield _with_metrics(needs, options)
            return
        boot = BOOT_ID.read_text().strip()
        needs = replace(
            needs,
            # opened when a policy wants some
            functions=FunctionSources(
                _SRIOV.make, memory(options, stack, "functions", FUNCTIONS), boot, read_uses
            ),
            # without it a restart could change what shares mean below a pod
            applied=memory(options, stack, "pools", POOLS),
            # without it a card could get an address of another rail, which leads nowhere
            rails=NodeRails(memory(options, stack, "rails", RAILS), boot=boot),
        )
        yield _with_metrics(await _with_node(needs, options, folders, kept, stack), options)


def memory(
    options: AgentOptions, stack: AsyncExitStack, name: str, kinds: Mapping[str, type[T]]
) -> Callable[[], Journal[T]]:
    """Return a function that opens the journal `name` in the agent's state folder."""
    return lambda: stack.enter_context(Journal(Folder(options.state_dir / name), kinds))


@asynccontextmanager
async def labelling(options: AgentOptions) -> AsyncIterator[LabelSources]:
    """Yield what the agent needs to label its node, as role `node` alone does."""
    from kube_rdma.adapters.cluster.events import Events
    from kube_rdma.adapters.cluster.nodes import Nodes
    from kube_rdma.agent.node.node_labels import LabelSources

    assert options.node
    async with options.connect() as cluster:
        events = NodeEvents(cluster, options.node, Events(cluster, options.node))
        kernel = _kernel(SurveyCache(partial(take_survey, brief=True)))
        yield LabelSources(kernel, events, _labels(options, Nodes(cluster)))


def _labels(options: AgentOptions, nodes: Nodes) -> NodeLabels | None:
    """Return the writer of this node's labels, None where the mode leaves them alone."""
    from kube_rdma.agent.node.node_labels import NodeLabels, host_release

    if options.labels is LabelMode.LEAVE:
        return None
    host = host_release(options.host) if options.labels is LabelMode.WRITE_NFD else None
    return NodeLabels(nodes, host, removes=options.labels is LabelMode.REMOVE)


async def _with_node(
    needs: AgentDependencies,
    options: AgentOptions,
    folders: Folders,
    kept: SurveyCache,
    stack: AsyncExitStack,
) -> AgentDependencies:
    """Return the dependencies with those of role `node`: API server, late binding and more."""
    # Imported here: role `plugin` alone needs neither the memory nor the time of the client.
    from kube_rdma.adapters.cluster.events import Events
    from kube_rdma.adapters.cluster.nodes import Nodes, Pods
    from kube_rdma.agent.node.report import NodePolicies
    from kube_rdma.claims.publisher import ClaimedGpus
    from kube_rdma.pools.kind import NODE_POLICY

    assert options.node
    cluster = await stack.enter_async_context(options.connect())
    version = await _kubelet_version(Nodes(cluster), options.node, needs.own)
    needs.own.connected(cluster.local_address)
    notices = Notices()

    async def ask() -> tuple[bool, str]:
        return cdi_works(version, await _runtime(options.runtime_socket, notices))

    checkpoint = DeviceCheckpoint(folders.device_plugins)
    pods = partial(Pods(cluster).on_node, options.node)
    needs.kubelet.record = KubeletRecord(checkpoint.read, pods)
    events = Events(cluster, options.node)
    needs = replace(
        needs,
        node=NodeEvents(cluster, options.node, events),
        keepers=_keepers(options, cluster),
        policies=NodePolicies(partial(cluster.watch, NODE_POLICY)),
    )
    if not options.no_lldp:
        from kube_rdma.adapters.files.neighbours import FILE, write_neighbours
        from kube_rdma.fabric.neighbours import Neighbours

        file = options.socket.with_name(FILE.name)
        keep = partial(write_neighbours, file=file) if options.networks else lambda _: None
        needs = replace(needs, neighbours=Neighbours(keep=keep))
    if options.networks:
        needs = replace(needs, networks=_networks(needs, options, cluster, events, kept))
    make = partial(_binder, needs, options, Pods(cluster), stack)
    needs = replace(needs, late=await _late(options, folders, ask, make))
    if not options.claims:
        needs.kubelet.slices = ClaimedGpus(cluster, options.node)
        return needs
    claim_notices = Notices()

    async def works() -> tuple[bool, str]:
        # The kubelet that knows claims knows CDI devices too; the runtime may not.
        return cdi_works(CLAIMS_KUBELET, await _runtime(options.runtime_socket, claim_notices))

    return with_claims(needs, options, cluster, works, folders.plugins_registry, stack)


async def _late(
    options: AgentOptions, folders: Folders, ask: Ask, make: Callable[[], Binder]
) -> late_binding.LateBindingChoice:
    """Return late binding, which is tried again later where it does not work yet.

    Without the kubelet's pod-resources socket it is not tried again.
    """
    if folders.pod_resources is None:
        why = "the kubelet's pod-resources socket is not mounted"
        return late_binding.LateBindingChoice(_never(options, why))
    works, why = await ask()
    if works:
        return late_binding.LateBindingChoice(make())
    return late_binding.LateBindingChoice(_never(options, why), ask, make)


def with_claims(
    needs: AgentDependencies,
    options: AgentOptions,
    cluster: Cluster,
    works: Ask,
    plugins_registry: Path | None,
    stack: AsyncExitStack,
) -> AgentDependencies:
    """Return the dependencies with ResourceSlices and the driver of ResourceClaims.

    `works` returns whether the runtime gives containers the CDI devices that claims name, and why.
    `plugins_registry` is the kubelet's folder; raise Refused if it is None, as it is not there.
    """
    # Few agents serve claims and need the memory.
    from kube_rdma.adapters.cni.shim_files import ClaimedNamespaces
    from kube_rdma.adapters.journal.codec import CLAIMS
    from kube_rdma.adapters.runtime.settings import ClaimFiles, PodSettings
    from kube_rdma.attach.claim_settings import ClaimSettings
    from kube_rdma.claims import prepared_claims
    from kube_rdma.claims.cluster import allocated, claims_of_pod, write_statuses
    from kube_rdma.claims.driver import ClaimDriver
    from kube_rdma.claims.publisher import ClaimedGpus, SlicePublisher

    assert options.node
    if plugins_registry is None:
        raise Refused(
            "the kubelet's plugins_registry is not there, in which it finds drivers of claims",
            remedy="Mount the host's folder of that name (hostPath), or leave --claims out",
            where="--claims",
        )
    settings = options.socket.parent / "settings"

    async def holders_of(resources: Collection[str]) -> Mapping[HeldShare, str]:
        # Late binding knows also those that the kubelet has forgotten.
        bound = holders(await needs.late.now.held())
        named = {share: f"pod {pod}" for share, pod in bound.items()}
        return named | await needs.kubelet.plugin_holders(resources)

    gpus = needs.kubelet.slices = ClaimedGpus(cluster, options.node)
    rail, dranet = needs.rails.number, options.dranet
    slices = SlicePublisher(cluster, options.node, rail, dranet=dranet, heard=gpus.hear)
    statuses = prepared_claims.ClaimStatuses(partial(write_statuses, cluster))
    networks = needs.networks
    claims = prepared_claims.PreparedClaims(
        prepared_claims.ClaimDependencies(
            journal=stack.enter_context(Journal(Folder(options.state_dir / "claims"), CLAIMS)),
            cdi=CdiFolder(options.cdi_dir),
            read=partial(allocated, cluster),
            pod=partial(claims_of_pod, cluster),
            node=options.node,
            boot=BOOT_ID.read_text().strip(),
            shim=networks.shim_of_host if networks else lambda: None,
            claimed=ClaimedNamespaces(options.state_dir / "claimed"),
            statuses=statuses,
            metadata=prepared_claims.ClaimMetadata(
                ClaimFiles(settings / "metadata"), slices.attributes
            ),
            settings=ClaimSettings(PodSettings(settings / "claims")),
            wiring=networks.wiring if networks else lambda: Wiring.NONE,
            holders=holders_of,
            sandboxes=partial(read_sandboxes, options.runtime_socket),
            hold=networks.limits.prepared if networks else None,
            tell=partial(needs.node.tell, NodeEvent.JOURNAL_TROUBLE),
        )
    )
    needs.kubelet.claims = claims
    offered = slices.offered
    driver = ClaimDriver(claims, plugins_registry, options.node, works, statuses.run, offered)
    return replace(needs, keepers=(*needs.keepers, slices), claims=driver)


def _keepers(options: AgentOptions, cluster: Cluster) -> tuple[NodeKeeper[Any], ...]:
    """Return those writers of the node's taint, condition, labels and report that are wanted."""
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


def _with_metrics(needs: AgentDependencies, options: AgentOptions) -> AgentDependencies:
    """Return the dependencies with an exporter of metrics."""
    from kube_rdma.metrics.exporter import Exporter, MetricsSite, MetricsSources

    sources = MetricsSources(needs.kubelet)
    if needs.networks:
        networks = needs.networks
        sources = replace(
            sources,
            attachments=networks.attachments,
            uses=networks.limits.uses,
            stopwatch=networks.stopwatch,
        )
    site = MetricsSite(options.metrics, options.metric_names, options.metrics_pods)
    return replace(needs, metrics=Exporter(site, sources))


def _never(options: AgentOptions, why: str) -> late_binding.NoLateBinding:
    """Return an object that binds nothing late, with early settings if there is a state folder."""
    return late_binding.NoLateBinding(why, late_binding.EarlySettings(_early(options)))


def _early(options: AgentOptions) -> Path | None:
    """Return the folder for settings that Allocate gives.

    Return None for role `plugin` without a state folder.
    """
    state = options.state_dir
    return state / "settings" if options.node or state.is_dir() else None


def _networks(
    needs: AgentDependencies,
    options: AgentOptions,
    cluster: Cluster,
    events: Events,
    kept: SurveyCache,
) -> NodeNetworks:
    """Return the pod networks of this node, which do not run yet."""
    from kube_rdma.attach.node_networks import NetworkSite, NodeNetworks, NodeSources

    assert options.node
    site = NetworkSite(
        node=options.node,
        namespace=options.namespace,
        host=options.host,
        state=options.state_dir,
        socket=options.socket,
        runtime=options.runtime_socket,
        global_namespaces=options.global_namespaces,
    )
    node = NodeSources(
        kept,
        infos=needs.device_infos,
        rails=needs.rails,
        mode_warnings=partial(mode_warnings, cluster),
    )
    return NodeNetworks(site, cluster, events, needs.kubelet, node)


async def mode_warnings(cluster: Cluster, pod: PodState, spec: PoolSpec) -> tuple[str, ...]:
    """Return sentences about parts of a pod that do not suit its pool's mode.

    Raise KubeError if the pod cannot be read.
    """
    # An agent starts without the capability admission, too.
    from kube_rdma.admission.cluster import whole_pod
    from kube_rdma.admission.rules.findings import of_mode

    read = await whole_pod(cluster, pod.namespace, pod.name)
    findings = of_mode(read[0], spec) if read else ()
    return tuple(f"{finding.problem}. {ended(finding.remedy)}" for finding in findings)


def _binder(
    needs: AgentDependencies, options: AgentOptions, pods: Pods, stack: AsyncExitStack
) -> Binder:
    to = BinderDependencies(
        journal=memory(options, stack, "bindings", BINDINGS)(),
        cdi=CdiFolder(options.cdi_dir),
        kubelet=needs.kubelet,
        pods=pods,
        links_inside=needs.kernel.links_inside,
        sandboxes=partial(read_sandboxes, options.runtime_socket),
        networks=options.networks,
        shim=needs.networks.shim_of_host if needs.networks else lambda: None,
        settings=SettingsFolder(options.socket.parent / "settings"),
        early=_early(options),
        concerned=needs.networks.concerned if needs.networks else always,
        tell=partial(needs.node.tell, NodeEvent.JOURNAL_TROUBLE),
    )
    return Binder(to)


async def _kubelet_version(nodes: Nodes, name: str, own: OwnAddresses) -> str | None:
    """Return the kubelet's version, None without a Node object.

    If the API server does not answer, it is the oldest that has CDI devices by default.

    The Node's addresses are noted, too, before the first card is offered.
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
    sources = KernelSources(
        kept.take,
        announcements,
        links_inside=links_inside,
        port_states=partial(read_states, Path("/sys")),
        uses=read_uses,
    )
    if not HOST_DEV.is_dir():
        return sources
    announcements.append(("device nodes", partial(CharNodes, CHAR_NODES)))
    return replace(sources, missing=partial(missing, folder=CHAR_NODES))
