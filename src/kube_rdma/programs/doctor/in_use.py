"""What the programs of a pod use of RDMA now: the queue pairs of its processes, by container.

Beside programs/doctor/containers, which sees what the processes have pinned. The kernel tells of a
queue pair whose it is only where that process is in sight: to root on the node, or with hostPID.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.netlink.rdma_resources import read_queue_pairs
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.model.doctor import ObservedQueuePairs
from kube_rdma.model.queue_pairs import QueuePair

WhoseContainer = Callable[[int], str]
"""The id of the container of a process of the pod, "" for other processes."""


def queue_pairs_inside(
    namespace: Path, uid: str, names: Mapping[str, str]
) -> tuple[ObservedQueuePairs, ...]:
    """Those of the pod with this uid, on the devices of its network namespace.

    `names` are those of its containers by their ids. Raise Unavailable or Refused.
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
