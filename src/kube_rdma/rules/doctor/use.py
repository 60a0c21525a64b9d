"""KR433: whether the programs of a pod use RDMA now: what they chose, and not what they were told.

Beside rules/doctor/pod. Two things show it: queue pairs of the processes, which only a doctor in
the node's process namespace sees, and memory that they have pinned, which every doctor of the node
sees. Verbs pin what they register (drivers/infiniband/core/umem.c, pinned_vm).
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.model.doctor import Observation, ObservedContainer, ObservedQueuePairs
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.rules.doctor.check import Check
from kube_rdma.rules.doctor.holders import devices_of, sharing

_RUNNING = "Running"
_TOLD = ("UCX_TLS", "UCX_NET_DEVICES", "NCCL_NET", "NCCL_IB_HCA")


def container_pairs(
    seen: Observation, container: ObservedContainer
) -> tuple[ObservedQueuePairs, ...]:
    """The queue pairs of a container's processes, by device and transport."""
    pairs = (seen.pod.queue_pairs or ()) if seen.pod else ()
    return tuple(one for one in pairs if one.container == container.name)


def unused_devices(seen: Observation, container: ObservedContainer) -> list[str]:
    """Devices that a container has and none of its queue pairs is on; none where nobody saw."""
    if seen.pod is None or seen.pod.queue_pairs is None:
        return []
    used = {one.device for one in container_pairs(seen, container)}
    mine = (device.name for owner, device in devices_of(seen) if owner == container)
    return sorted(set(mine) - used)


def _unused(seen: Observation) -> Iterator[Finding]:
    pod = seen.pod
    assert pod is not None
    if pod.phase != _RUNNING:
        return
    for container in sharing(seen):
        if container.pinned or container_pairs(seen, container):
            continue
        words = ["No process of it has pinned memory"]
        if pod.queue_pairs is not None:
            words.append("none has a queue pair")
        yield Finding(
            container.name,
            f"{' and '.join(words)}{_although(container)}",
            "Its traffic does not use RDMA: the program is idle, or chose another transport",
            "If it is at work, UCX_LOG_LEVEL=info or NCCL_DEBUG=INFO shows what it chose, and why",
            Severity.ADVICE,
        )


def _although(container: ObservedContainer) -> str:
    """What it was told, beside what it does."""
    settings = dict(container.variables or ())
    words = [f"{name}={settings[name]}" for name in _TOLD if settings.get(name)]
    return f", although it has {' and '.join(words)}" if words else ""


CHECKS = (
    Check(
        "KR433",
        "use of RDMA",
        ("pod", "pod.containers", "pod.containers.pinned"),
        _unused,
    ),
)
