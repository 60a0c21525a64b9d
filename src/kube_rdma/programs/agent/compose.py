"""Opens the agent's doors on a real node, as the command's options name them.

What is missing is not an error but a smaller agent: each door that stays closed is said once, with
what it costs. Only the kubelet's folder of device plugins has to be there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from kube_rdma.adapters.files.device_info import FOLDER, DeviceInfoFolder
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.format import BINDINGS, FUNCTIONS, POOLS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.device_nodes import FOLDER as CHAR_FOLDER
from kube_rdma.adapters.kernel.device_nodes import CharNodes, missing
from kube_rdma.adapters.kernel.netlink.rtnl_events import RtnlEvents
from kube_rdma.adapters.kernel.netlink.uevents import Uevents
from kube_rdma.adapters.kernel.pod.namespaces import links_inside
from kube_rdma.adapters.kernel.sriov.addresses import give_addresses
from kube_rdma.adapters.kernel.sriov.functions import SriovCards
from kube_rdma.adapters.kernel.sriov.netdev_usage import read_uses
from kube_rdma.adapters.kernel.sysfs.port_watch import read_states
from kube_rdma.adapters.kubelet.folders import FIXED, KNOWN, Folders, find_folders
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.kubelet.registry import Registry, serve
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.cri import read_runtime
from kube_rdma.model.binding import PodName
from kube_rdma.model.errors import Unavailable
from kube_rdma.model.function import MadeFunctions
from kube_rdma.model.pod import PodState
from kube_rdma.model.pool import AppliedPools
from kube_rdma.model.runtime import Runtime
from kube_rdma.programs.agent.dependencies import AgentDependencies, PodNetworkService
from kube_rdma.programs.agent.device_plugin.kubelet_view import KubeletView
from kube_rdma.programs.agent.late_binding.binder import Binder, BinderDependencies
from kube_rdma.programs.agent.late_binding.late import Late, Never
from kube_rdma.programs.agent.node.kernel_events import Announcements, KernelSources
from kube_rdma.programs.agent.node.survey_cache import KeptSurvey
from kube_rdma.programs.agent.virtual_functions import BOOT_ID, Sources
from kube_rdma.rules.late_binding.cdi import KUBELET, cdi_works

if TYPE_CHECKING:
    from kube_rdma.adapters.cluster.nodes import Nodes

HOST_DEV = Path("/host/dev")  # where the host's /dev is mounted for the agent, if it is
CHAR_NODES = HOST_DEV / CHAR_FOLDER
_SRIOV = SriovCards(give=give_addresses)

log = structlog.get_logger()


@dataclass(frozen=True)
class AgentPlaces:
    """Files and folders of the host, at the paths that this process sees."""

    kubelet_root: Path | None  # None: it is looked for
    state_dir: Path
    cdi_dir: Path
    runtime_socket: Path
    socket: Path  # of the shim
    host: Path  # the host's root


@dataclass(frozen=True)
class AgentOptions:
    """The options of the command."""

    config: Path | None
    node: str | None  # name of this node's object; with it the API server is used
    kubeconfig: Path | None
    registry: Registry
    places: AgentPlaces
    networks: bool = False
    namespace: str = "kube-rdma"  # of own objects


@asynccontextmanager
async def opened(options: AgentOptions) -> AsyncIterator[AgentDependencies]:
    """The doors of this node; raise Refused for what cannot be used at all."""
    root = options.places.kubelet_root
    folders = find_folders(KNOWN if root is None else (root, FIXED))
    kubelet = KubeletView(PodResources(folders.pod_resources) if folders.pod_resources else None)
    kept = KeptSurvey()
    doors = AgentDependencies(
        config=options.config,
        kernel=_kernel(kept),
        serve=partial(serve, options.registry, folders),
        kubelet=kubelet,
        device_infos=DeviceInfoFolder() if FOLDER.parent.parent.is_dir() else None,
    )
    async with AsyncExitStack() as stack:
        if options.node is None:
            yield replace(doors, functions=Sources(_SRIOV.make, uses=read_uses))
            return
        doors = replace(
            doors, functions=_functions(options, stack), applied=partial(_applied, options, stack)
        )
        yield await _with_node(doors, options, folders, kept, stack)


async def _with_node(
    doors: AgentDependencies,
    options: AgentOptions,
    folders: Folders,
    kept: KeptSurvey,
    stack: AsyncExitStack,
) -> AgentDependencies:
    """The doors of role `node` too: the API server, and late binding where it works."""
    # Imported here: role `plugin` alone needs neither the memory nor the time of the client.
    from kube_rdma.adapters.cluster.connect import connect
    from kube_rdma.adapters.cluster.nodes import Nodes
    from kube_rdma.adapters.cluster.pods import Pods
    from kube_rdma.programs.agent.node.online import Online

    assert options.node
    cluster = await stack.enter_async_context(connect(options.kubeconfig))
    version = await _kubelet_version(Nodes(cluster), options.node)
    pods = Pods(cluster)

    async def read_pod(name: PodName) -> PodState | None:
        return await pods.read(name.namespace, name.name)

    works, why = cdi_works(version, await _runtime(options.places.runtime_socket))
    if works and folders.pod_resources is None:
        works, why = False, "the kubelet's pod-resources socket is not mounted"
    late: Late = Never(why)
    networks: PodNetworkService | None = None

    async def concerned(pod: PodState) -> bool:
        return networks is None or await networks.concerned(pod)

    node = Online(cluster, options.node)
    if works:
        late = _binder(replace(doors, node=node), options, (read_pod, concerned), stack)
    if options.networks:
        from kube_rdma.programs.agent.pod_networks.service import Machine, NetworkSite, NodeNetworks

        places = options.places
        site = NetworkSite(
            *(options.node, options.namespace, places.host, places.state_dir, places.socket),
            runtime=places.runtime_socket,
        )
        machine = Machine(kept, infos=doors.device_infos)
        networks = NodeNetworks(site, cluster, doors.kubelet, late, machine)
    return replace(doors, node=node, late=late, networks=networks)


def _binder(
    doors: AgentDependencies,
    options: AgentOptions,
    pods: tuple[
        Callable[[PodName], Awaitable[PodState | None]], Callable[[PodState], Awaitable[bool]]
    ],
    stack: AsyncExitStack,
) -> Binder:
    read_pod, concerned = pods
    journal = stack.enter_context(Journal(Folder(options.places.state_dir / "bindings"), BINDINGS))
    to = BinderDependencies(
        journal,
        CdiFolder(options.places.cdi_dir),
        doors.kubelet,
        read_pod,
        doors.kernel.links_inside,
        options.networks,
        concerned,
        doors.node.journal,
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


async def _kubelet_version(nodes: Nodes, name: str) -> str | None:
    """The kubelet's version; while it is unknown, the oldest that does what is needed.

    Cards are served without the API server too, and what pods hold must not change its meaning
    because the agent started on a bad day.
    """
    try:
        node = await nodes.read(name)
    except Unavailable as error:
        log.warning("kubelet version unknown", why=str(error))
        return ".".join(map(str, KUBELET))
    return node.kubelet_version if node else None


async def _runtime(socket: Path) -> Runtime | None:
    try:
        return await read_runtime(socket)
    except Unavailable as error:
        log.warning("container runtime features unknown", why=str(error))
        return None


def _kernel(kept: KeptSurvey) -> KernelSources:
    announcements: list[tuple[str, Announcements]] = [
        ("devices that come and go", Uevents),
        ("links and addresses", RtnlEvents),
    ]
    states = partial(read_states, Path("/sys"))
    if not HOST_DEV.is_dir():
        return KernelSources(
            kept.take, announcements, links_inside=links_inside, port_states=states
        )
    announcements.append(("device nodes", partial(CharNodes, CHAR_NODES)))
    gone = partial(missing, folder=CHAR_NODES)
    return KernelSources(kept.take, announcements, gone, links_inside, states)
