"""What a doctor sees of a pod by the API server, and in the pod's network namespace.

Beside doctor/evidence, which sees the node, and doctor/containers, which sees
what the pod's containers have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FullPod, FullPodStatus, status_of
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.journal.journal import glances
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.cgroups import HOST_CGROUPS, HostCgroups, RdmaGroups
from kube_rdma.adapters.kernel.ethtool import read_statistics
from kube_rdma.adapters.kernel.netlink.dcb import read_flow_control
from kube_rdma.adapters.kernel.netlink.rdma_read import read_queue_pairs
from kube_rdma.adapters.kernel.netlink.rtnl_read import (
    interfaces,
    open_rtnl,
    seen_links,
    seen_routes,
)
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, open_inside
from kube_rdma.adapters.kernel.pod.steps import PodNetwork, open_pod
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.pod import sysfs_inside
from kube_rdma.admission.cluster import whole_pod
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.documents import network_status
from kube_rdma.attach.rules.repair import as_read
from kube_rdma.attach.rules.step_table import check, looked_at
from kube_rdma.doctor.containers import (
    PROC,
    container_ids,
    is_open,
    namespace_by_runtime,
    processes_folder,
    uid_of,
    with_containers,
    with_specs,
)
from kube_rdma.doctor.errors import InterfaceStatistics, Statistics, watched_errors
from kube_rdma.doctor.rules.errors import roce_interfaces
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.admission import ContainerRole, ContainerTemplate, PodTemplate
from kube_rdma.model.attach.attachment import Attachment, SeenLink
from kube_rdma.model.device import QueuePair
from kube_rdma.model.doctor import (
    Observation,
    ObservedAttachment,
    ObservedContainer,
    ObservedErrors,
    ObservedFlowControl,
    ObservedLimit,
    ObservedLink,
    ObservedPod,
    ObservedQueuePairs,
    ObservedRoute,
)
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.survey import Survey
from kube_rdma.reports import cluster as reports

# What the agent of this node has in its journal of a pod, and CNI CHECK of it, without the agent.

OpenPod = Callable[[Namespace], AbstractContextManager[PodNetwork]]

FOLDERS = ("attachments", "delegated")  # of the agent's state; codec.py has what is in them


def recorded(state: Path, pod: PodName, uid: str = "") -> tuple[Attachment, ...] | None:
    """The attachments of a pod; a pod of that name and another uid is another pod.

    None where no agent with networks has written here. Raise Unavailable.
    """
    read = [glances(state / folder, "attachment", Attachment) for folder in FOLDERS]
    if all(records is None for records in read):
        return None
    return tuple(
        as_read(name, one)
        for records in read
        for name, one in records or ()
        if one.sandbox.pod == pod and uid in ("", one.sandbox.uid)
    )


def checked(
    attachments: Iterable[Attachment], opened: OpenPod = open_pod
) -> tuple[ObservedAttachment, ...]:
    """Each interface against the pod as it is; one that is being made is none yet.

    Raise Unavailable when the pod's namespace is gone, Refused when it may not be entered.
    """
    return tuple(
        interface
        for attachment in attachments
        if attachment.complete
        for interface in _checked(attachment, opened)
    )


def _checked(attachment: Attachment, opened: OpenPod) -> tuple[ObservedAttachment, ...]:
    sandbox = attachment.sandbox
    with opened(Path(sandbox.netns_path)) as pod:
        if pod.inode != sandbox.netns_inode:  # another one has come to its path
            raise Unavailable(f"the network namespace {sandbox.netns_path} is gone")
        view = pod.look(*looked_at(attachment.plans))
    return tuple(
        ObservedAttachment(plan.interface, plan.network, check(plan, view))
        for plan in attachment.plans
    )


# Links and routes of a network namespace as a doctor notes them: the node's, or a pod's.


def observed_links(below: Mapping[int, str] | None = None) -> tuple[ObservedLink, ...]:
    """The links of this thread's namespace; raise Unavailable.

    `below` are the node's names by index, for a namespace of a pod.
    """
    with open_rtnl() as netlink:
        links = seen_links(netlink)
        carriers = {one.seen.index: one.carrier for one in interfaces(netlink)}
    return noted(links, carriers, below)


def noted(
    links: Sequence[SeenLink],
    carriers: Mapping[int, bool | None],
    below: Mapping[int, str] | None = None,
) -> tuple[ObservedLink, ...]:
    """The links with the names of their parents.

    A parent is told by index alone, and indexes of two namespaces may be equal: of a pod's link,
    one that could be either has no name.
    """
    own = {link.index: link.name for link in links}
    names = own if below is None else {at: name for at, name in below.items() if at not in own}
    return tuple(
        ObservedLink(
            name=link.name,
            mtu=link.mtu,
            up=link.up,
            carrier=carriers.get(link.index),
            kind=link.kind,
            parent=names.get(link.parent or 0, ""),
            pci=link.pci or "",
            addresses=tuple(f"{address}/{length}" for address, length in link.addresses),
        )
        for link in links
    )


def node_indexes() -> dict[int, str]:
    """The names of this thread's links by index; raise Unavailable."""
    with open_rtnl() as netlink:
        return {one.seen.index: str(one.seen.name) for one in interfaces(netlink)}


def observed_routes() -> tuple[ObservedRoute, ...]:
    """Its unicast routes; raise Unavailable."""
    with open_rtnl() as netlink:
        routes = seen_routes(netlink, seen_links(netlink))
    return tuple(
        ObservedRoute(one.name, str(one.to), str(one.via or ""), one.table or 0) for one in routes
    )


OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]

_LOCK = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})


async def pod_by_api(cluster: Cluster, namespace: str, name: str) -> tuple[ObservedPod, FullPod]:
    """The pod as the API server has it; raise Refused when there is none."""
    template, whole = await read_pod(cluster, namespace, name)
    return await with_reason(cluster, observed_pod(template, whole), whole), whole


async def read_pod(cluster: Cluster, namespace: str, name: str) -> tuple[PodTemplate, FullPod]:
    """Both parts of a Pod object; raise Refused when there is none."""
    return present(await whole_pod(cluster, namespace, name), namespace, name)


def present(
    read: tuple[PodTemplate, FullPod] | None, namespace: str, name: str
) -> tuple[PodTemplate, FullPod]:
    """The parts of a pod that is there; raise Refused when there is none."""
    if read is None:
        raise Refused(
            f"there is no pod {name} in namespace {namespace}",
            remedy="Name one of kubectl get pods, with its namespace: pod/NAMESPACE/NAME",
        )
    return read


async def with_reason(cluster: Cluster, seen: ObservedPod, whole: FullPod) -> ObservedPod:
    """The same with what a pod that does not run waits for."""
    if seen.phase in ("Running", "Succeeded"):
        return seen
    why = _why(status_of(whole)) or await _event(cluster, seen.namespace, seen.name)
    return replace(seen, why=why)


def observed_pod(template: PodTemplate, whole: FullPod) -> ObservedPod:
    """What both say of it, without its processes."""
    status = whole.annotation(network_status.ANNOTATION) or ""
    title = f"{template.namespace}/{template.name}"
    asks = [*template.networks, *(template.blocks or ())]
    main = [one for one in template.containers if one.role is not ContainerRole.INIT]
    return ObservedPod(
        namespace=template.namespace,
        name=template.name,
        node=whole.spec.node_name,
        phase=status_of(whole).phase,
        host_network=template.host_network,
        networks=tuple(f"{one.namespace}/{one.network}" for one in asks),
        attached=tuple(network_status.address_uses(title, status)),
        findings=findings(template),
        containers=tuple(_container(one, claims=bool(whole.spec.resource_claims)) for one in main),
    )


def with_namespace(seen: ObservedPod, namespace: Path) -> ObservedPod:
    """The same with what its network namespace shows; raise Unavailable or Refused."""
    return replace(
        seen,
        links=open_inside(namespace, partial(observed_links, node_indexes())),
        routes=open_inside(namespace, observed_routes),
        survey=_survey(namespace),
    )


def _survey(namespace: Path) -> Survey | None:
    try:
        with sysfs_inside(namespace) as root:
            return read_survey(root)
    except OSError:
        return None


def _container(template: ContainerTemplate, *, claims: bool) -> ObservedContainer:
    """`claims`: the pod has claims of dynamic resource allocation, which this one may be given."""
    return ObservedContainer(
        template.name,
        tuple((ask.resource, ask.count) for ask in template.asks),
        asked_lock=template.privileged or bool(_LOCK & set(template.added)),
        granted=template.privileged or claims or bool(template.asks),
    )


def _why(status: FullPodStatus) -> str:
    """Why the pod was ended, or what a container waits for, else why a condition does not hold."""
    if status.message:
        return f"{status.reason}: {status.message}" if status.reason else status.message
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting and waiting.message:
            return f"{waiting.reason}: {waiting.message}"
    if status.container_statuses:
        return ""
    return next((c.message for c in status.conditions if c.status == "False" and c.message), "")


async def _event(cluster: Cluster, namespace: str, name: str) -> str:
    """The last word of scheduler, kubelet or agent about the pod; "" without the right to read."""
    about = ("Pod", namespace, name)
    try:
        every = await reports.events(cluster)
    except Refused:
        return ""
    events = [one for one in every if (one.kind, one.namespace, one.name) == about]
    last = max(events, key=lambda one: one.last, default=None)
    return f"{last.reason}: {last.note}" if last else ""


# What a doctor sees of a pod of its own node, as root there or in an agent's container.


class PodDoors(Frozen):
    """Where a pod of this node is looked for: the host's root, the agent's state, the runtime."""

    host: Path
    state: Path
    runtime: Path


async def pod_here(
    cluster: Cluster, doors: PodDoors, named: tuple[str, str], reader: PartReader
) -> ObservedPod:
    """The pod by the API server, by its processes, by the runtime and by the agent's journal."""
    seen, whole = await pod_by_api(cluster, *named)
    uid = uid_of(whole)
    limits = reader.part("pod.limits", lambda: observed_limits(doors.host, uid))
    seen = replace(seen, limits=limits)
    records = reader.part(
        "pod.attachments", lambda: _records(doors.state, seen, PodName(*named), uid)
    )
    if records is not None:
        state = reader.part("pod.attachments", lambda: checked(records)) if records else ()
        seen = replace(seen, attachments=state)
    return await _inside(seen, whole, doors, records or (), reader)


async def _inside(
    seen: ObservedPod,
    whole: FullPod,
    doors: PodDoors,
    records: tuple[Attachment, ...],
    reader: PartReader,
) -> ObservedPod:
    """The same with its containers, and with what its network namespace shows."""
    folder = processes_folder(doors.host)
    inside = reader.part("pod.containers", lambda: with_containers(seen, whole, folder))
    if inside:
        seen = inside[0]
    if any(None in (one.variables, one.nodes) for one in seen.containers or ()):
        made = await reader.asked(
            "pod.containers", lambda: with_specs(seen, whole, doors.runtime, doors.host)
        )
        seen = made or seen
    namespace = next(filter(is_open, _namespaces(inside and inside[1], records)), None)
    if namespace is None:
        namespace = await reader.asked(
            "pod.links", lambda: namespace_by_runtime(whole, doors.runtime)
        )
    if namespace is None:
        return seen
    entered = namespace
    seen = reader.part("pod.links", lambda: with_namespace(seen, entered)) or seen
    if not proc.processes_of(uid_of(whole), PROC):
        return seen  # the kernel tells of no process that is not in sight of this one
    names = {container: name for name, container in container_ids(whole).items()}
    pairs = reader.part(
        "pod.queue_pairs", lambda: queue_pairs_inside(entered, uid_of(whole), names)
    )
    return replace(seen, queue_pairs=pairs)


def _namespaces(process: Path | None, records: tuple[Attachment, ...]) -> Iterator[Path]:
    """Where the pod's network namespace may be open to this process."""
    if process:
        yield process
    if records:
        yield Path(records[0].sandbox.netns_path)


def _records(state: Path, seen: ObservedPod, pod: PodName, uid: str) -> tuple[Attachment, ...]:
    """The journal's word of the pod; of one with networks, no word is not that all is well."""
    records = recorded(state, pod, uid)
    if not records and (seen.networks or seen.attached):
        raise Unavailable(f"the agent's journal in {state} has no attachment of the pod")
    return records or ()


WhoseContainer = Callable[[int], str]
"""The id of the container of a process of the pod, "" for other processes."""


def queue_pairs_inside(
    namespace: Path, uid: str, names: Mapping[str, str]
) -> tuple[ObservedQueuePairs, ...]:
    """Return the queue pairs of the pod with this uid, on the devices of its network namespace.

    The kernel tells whose a queue pair is only where that process is in sight: to root on the node,
    or with hostPID. `names` are those of its containers by their ids. Raise Unavailable or Refused.
    """
    pairs = open_inside(namespace, read_queue_pairs)
    return counted_pairs(pairs, lambda pid: names.get(proc.container_of(pid, uid), ""))


def counted_pairs(
    pairs: Iterable[QueuePair], whose: WhoseContainer, program: Callable[[int], str] = proc.program
) -> tuple[ObservedQueuePairs, ...]:
    """They by container, device and transport; those of other processes are passed over."""
    groups: dict[tuple[str, str, str], list[QueuePair]] = {}
    for pair in pairs:
        if container := whose(pair.pid):
            groups.setdefault((container, pair.device, pair.type), []).append(pair)
    return tuple(
        ObservedQueuePairs(
            *key,
            count=len(of),
            ready=sum(one.ready for one in of),
            programs=tuple(sorted({name for one in of if (name := program(one.pid))})),
        )
        for key, of in sorted(groups.items())
    )


def observed_limits(host: Path, uid: str) -> tuple[ObservedLimit, ...]:
    """Device by device; none where the node cannot limit, or has no group of the pod.

    `host` is the node's root, `uid` the pod's as the kubelet has it. Raise Unavailable.
    """
    root = inside(host, HOST_CGROUPS)
    if not (root / "cgroup.controllers").is_file():
        return ()
    groups = RdmaGroups(HostCgroups(root))
    try:
        path = groups.find(uid)
    except Unavailable:  # a pod of another node, or one that has not begun
        return ()
    group = groups.read(path)
    limits = {entry.device: entry.limits for entry in group.limits}
    return tuple(
        ObservedLimit(
            use.device,
            use.handles,
            use.objects,
            limits[use.device].handles,
            limits[use.device].objects,
        )
        for use in group.current
        if use.device in limits
    )


# What a doctor reads of a machine that no file of sysfs has, also from beside a recorded tree.

FILE = "doctor.json"

FlowControl = Callable[[Iterable[tuple[str, str]]], tuple[ObservedFlowControl, ...]]
Watch = Callable[[float, Statistics], Awaitable[tuple[ObservedErrors, ...]]]


async def _watched(seconds: float, statistics: Statistics) -> tuple[ObservedErrors, ...]:
    return await watched_errors(seconds, statistics=statistics)


class UnfiledDoors(Frozen):
    """Who is asked for these parts; by default the kernel of this machine."""

    flow_control: FlowControl = read_flow_control
    watch: Watch = _watched
    statistics: Callable[[str], Mapping[str, int]] = read_statistics
    hypervisor: Callable[[], bool] = proc.read_hypervisor


KERNEL = UnfiledDoors()


async def read_unfiled(
    survey: Survey, interval: float, doors: UnfiledDoors = KERNEL
) -> Observation:
    """These parts now, the counters watched for `interval` seconds; what was not seen is named."""
    reader = PartReader()
    statistics = InterfaceStatistics(survey, doors.statistics)
    errors = await reader.asked("errors", lambda: doors.watch(interval, statistics.read))
    if statistics.refused:
        reader.keep("statistics of interfaces", statistics.refused)
    interfaces = roce_interfaces(survey)
    return Observation(
        "",
        errors=errors,
        flow_control=reader.part("flow_control", lambda: doors.flow_control(interfaces)),
        virtual_machine=reader.part("virtual_machine", doors.hypervisor),
        not_seen=tuple(reader.not_seen),
    )


def with_unfiled(seen: Observation, unfiled: Observation) -> Observation:
    """What was seen otherwise, with these parts."""
    return replace(
        seen,
        errors=unfiled.errors,
        flow_control=unfiled.flow_control,
        virtual_machine=unfiled.virtual_machine,
        not_seen=(*seen.not_seen, *unfiled.not_seen),
    )


def write_unfiled(unfiled: Observation, tree: Path) -> None:
    """Write these parts beside a recorded tree; raise Refused."""
    bundle.write(unfiled, tree / FILE)


def recorded_unfiled(tree: Path) -> Observation | None:
    """Those of a recorded tree; None where it has none. Raise Refused for another file."""
    path = tree / FILE
    return bundle.read(path) if path.exists() else None
