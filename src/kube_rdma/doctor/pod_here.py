"""What a doctor sees of a pod of its own node, as root there or in an agent's container.

    API server ─► ObservedPod ─► node's /proc, runtime ─► containers
                      └─► the agent's journal, cgroups ─► attachments, limits, namespace

doctor/evidence calls it. Each part is read by itself; what a container may not see is
looked for at the next door, and only then noted as not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FullPod
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.cgroups.files import HOST_CGROUPS, HostCgroups
from kube_rdma.adapters.kernel.cgroups.rdma import RdmaGroups
from kube_rdma.adapters.kernel.netlink.rdma_resources import read_queue_pairs
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.doctor.attachments import checked, recorded
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
from kube_rdma.doctor.pod import pod_by_api, with_namespace
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.doctor import ObservedLimit, ObservedPod, ObservedQueuePairs
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.queue_pairs import QueuePair


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
