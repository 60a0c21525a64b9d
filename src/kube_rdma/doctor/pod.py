"""Reads a pod for `kube-rdma doctor`, and for explain, on its own node.

    ObservedPod of api_pod.py ─► journal, cgroup ─► containers.py ─► network namespace, queue pairs

doctor/evidence calls pod_here on the pod's node, as root there or in an agent's container. Nothing
is started in the pod, and the agent is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.journal.journal import glances
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.cgroups import HOST_CGROUPS, HostCgroups, RdmaGroups
from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.adapters.kernel.netlink.rdma_read import read_queue_pairs
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, open_inside
from kube_rdma.adapters.kernel.pod.steps import PodNetwork, open_pod
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.pod import sysfs_inside
from kube_rdma.attach.rules.records import as_read
from kube_rdma.attach.rules.undo import check, looked_at
from kube_rdma.doctor import containers
from kube_rdma.doctor.api_pod import pod_by_api
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model import doctor as model
from kube_rdma.model.attach.attachment import Attachment, SeenLink
from kube_rdma.model.device import QueuePair
from kube_rdma.model.late_binding import PodName

OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]
OpenPod = Callable[[Namespace], AbstractContextManager[PodNetwork]]

_JOURNALS = ("attachments", "delegated")  # of the agent's state; codec.py has what is in them


# The agent's journal of the pod, and CNI CHECK of it, without the agent.


def recorded(state: Path, pod: PodName, uid: str = "") -> tuple[Attachment, ...] | None:
    """Return the attachments that the agents' journals below `state` record for a pod.

    Return None where there is no journal. With `uid` only attachments of the pod with that uid
    count. Raise Unavailable for a journal that cannot be read.
    """
    read = [glances(state / folder, "attachment", Attachment) for folder in _JOURNALS]
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
) -> tuple[model.ObservedAttachment, ...]:
    """Return each attached interface with what is wrong with it now; skip incomplete attachments.

    Raise Unavailable when the pod's namespace is gone, Refused when it may not be entered.
    """
    seen: list[model.ObservedAttachment] = []
    for attachment in attachments:
        if not attachment.complete:
            continue
        sandbox, plans = attachment.sandbox, attachment.plans
        with opened(Path(sandbox.netns_path)) as pod:
            if pod.inode != sandbox.netns_inode:  # another one has come to its path
                raise Unavailable(f"the network namespace {sandbox.netns_path} is gone")
            view = pod.look(*looked_at(plans))
        seen += (
            model.ObservedAttachment(one.interface, one.network, check(one, view)) for one in plans
        )
    return tuple(seen)


# Links and routes of a network namespace: the node's, or a pod's.


def observed_links(below: Mapping[int, str] | None = None) -> tuple[model.ObservedLink, ...]:
    """Return the links of this thread's network namespace; raise Unavailable if netlink fails.

    `below` has the names of the node's links by index, for the namespace of a pod.
    """
    with rtnl_read.open_rtnl() as netlink:
        links = rtnl_read.seen_links(netlink)
        carriers = {one.seen.index: one.carrier for one in rtnl_read.interfaces(netlink)}
    return noted(links, carriers, below)


def noted(
    links: Sequence[SeenLink],
    carriers: Mapping[int, bool | None],
    below: Mapping[int, str] | None = None,
) -> tuple[model.ObservedLink, ...]:
    """Return links as the doctor shows them, each with its carrier and the name of its parent.

    `below` has the names of the node's links by index, for links of a pod. Indexes of two
    namespaces may be equal: a parent gets no name if a link of the pod has its index.
    """
    own = {link.index: link.name for link in links}
    names = own if below is None else {at: name for at, name in below.items() if at not in own}
    return tuple(
        model.ObservedLink(
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


def observed_routes() -> tuple[model.ObservedRoute, ...]:
    """Return the unicast routes of this thread's namespace; raise Unavailable if netlink fails."""
    with rtnl_read.open_rtnl() as netlink:
        routes = rtnl_read.seen_routes(netlink, rtnl_read.seen_links(netlink))
    return tuple(
        model.ObservedRoute(one.name, str(one.to), str(one.via or ""), one.table or 0)
        for one in routes
    )


def with_namespace(seen: model.ObservedPod, namespace: Path) -> model.ObservedPod:
    """Add the links, routes and RDMA devices of a pod's network namespace to what was seen of it.

    Raise Unavailable or Refused where the namespace cannot be entered.
    """
    with rtnl_read.open_rtnl() as netlink:
        below = {one.seen.index: str(one.seen.name) for one in rtnl_read.interfaces(netlink)}
    links = open_inside(namespace, partial(observed_links, below))
    routes = open_inside(namespace, observed_routes)
    try:
        with sysfs_inside(namespace) as root:
            survey = read_survey(root)
    except OSError:
        survey = None
    return replace(seen, links=links, routes=routes, survey=survey)


# All of a pod on its own node.


async def pod_here(
    cluster: Cluster,
    pod: PodName,
    reader: PartReader,
    resources: Iterable[str] = (),
    *,
    host: Path,
    state: Path,
    runtime: Path,
) -> model.ObservedPod:
    """Return a pod of this node, seen through API server, /proc, container runtime and journal.

    `resources` are those of the node's pools, `host` is the root of the node, `state` the agent's
    folder, `runtime` the socket of the CRI.
    """
    seen, whole = await pod_by_api(cluster, pod, resources)
    uid = containers.uid_of(whole)
    limits = reader.part("pod.limits", lambda: observed_limits(host, uid))

    def records() -> tuple[Attachment, ...]:
        made = recorded(state, pod, uid)
        if not made and (seen.networks or seen.attached):  # nothing shows that all is well
            raise Unavailable(f"the agent's journal in {state} has no attachment of the pod")
        return made or ()

    made = reader.part("pod.attachments", records)
    if made is not None:
        checks = reader.part("pod.attachments", lambda: checked(made))
        seen = replace(seen, attachments=checks)
    seen = replace(seen, limits=limits)
    folder = containers.processes_folder(host)
    inside = reader.part("pod.containers", lambda: containers.with_containers(seen, whole, folder))
    full = inside[0] if inside else seen
    if any(None in (one.variables, one.nodes) for one in full.containers or ()):
        specs = partial(containers.with_specs, full, whole, runtime, host)
        full = await reader.asked("pod.containers", specs) or full
    recorded_netns = Path(made[0].sandbox.netns_path) if made else None
    places = (inside[1] if inside else None, recorded_netns)
    namespace = next((one for one in places if one and containers.is_open(one)), None)
    if namespace is None:
        by_runtime = partial(containers.namespace_by_runtime, whole, runtime)
        namespace = await reader.asked("pod.links", by_runtime)
    if namespace is None:
        return full
    full = reader.part("pod.links", partial(with_namespace, full, namespace)) or full
    if not proc.processes_of(uid, containers.PROC):
        return full  # the kernel names no process outside of this PID namespace
    names = {container: name for name, container in containers.container_ids(whole).items()}

    def queue_pairs() -> tuple[model.ObservedQueuePairs, ...]:
        pairs = open_inside(namespace, read_queue_pairs)
        return counted_pairs(pairs, lambda pid: names.get(proc.container_of(pid, uid), ""))

    return replace(full, queue_pairs=reader.part("pod.queue_pairs", queue_pairs))


def counted_pairs(
    pairs: Iterable[QueuePair],
    container_of: Callable[[int], str],
    program: Callable[[int], str] = proc.program,
) -> tuple[model.ObservedQueuePairs, ...]:
    """Count queue pairs by container, device and transport.

    `container_of` returns the container of a process, "" for a process that is not of the pod.
    """
    groups: dict[tuple[str, str, str], list[QueuePair]] = {}
    for pair in pairs:
        if container := container_of(pair.pid):
            groups.setdefault((container, pair.device, pair.type), []).append(pair)
    return tuple(
        model.ObservedQueuePairs(
            *key,
            count=len(of),
            ready=sum(one.ready for one in of),
            programs=tuple(sorted({name for one in of if (name := program(one.pid))})),
        )
        for key, of in sorted(groups.items())
    )


def observed_limits(host: Path, uid: str) -> tuple[model.ObservedLimit, ...]:
    """Return what a pod uses, and may use at most, of each RDMA device, by its cgroup.

    Return () where the node has no cgroups v2, or no such pod. `host` is the node's root, `uid` the
    pod's as the kubelet has it. Raise Unavailable where the cgroup cannot be read.
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
        model.ObservedLimit(use.device, use.handles, use.objects, most.handles, most.objects)
        for use in group.current
        if (most := limits.get(use.device))
    )
