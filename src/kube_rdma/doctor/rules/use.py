"""KR433: whether the programs of a pod use RDMA now: what they chose, and not what they were told.

Beside doctor/rules/pod. Two things show it: queue pairs of the processes, which only a doctor in
the node's process namespace sees, and memory that they have pinned, which every doctor of the node
sees. Verbs pin what they register (drivers/infiniband/core/umem.c, pinned_vm).
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.doctor.rules.check import Check
from kube_rdma.doctor.rules.holders import devices_of, sharing
from kube_rdma.model.doctor import ContainerUse, Observation, ObservedContainer
from kube_rdma.model.finding import Finding, Severity

_RUNNING = "Running"
_TOLD = ("UCX_TLS", "UCX_NET_DEVICES", "NCCL_NET", "NCCL_IB_HCA")


def uses(seen: Observation) -> tuple[ContainerUse, ...]:
    """Of each container with a card, as far as it was seen."""
    return tuple(_use(seen, container) for container in sharing(seen))


def _use(seen: Observation, container: ObservedContainer) -> ContainerUse:
    every = seen.pod.queue_pairs if seen.pod else None
    if every is None:
        return ContainerUse(container.name, container.pinned)
    pairs = tuple(one for one in every if one.container == container.name)
    mine = {device.name for owner, device in devices_of(seen) if owner == container}
    unused = sorted(mine - {one.device for one in pairs})
    return ContainerUse(container.name, container.pinned, pairs, tuple(unused))


def _unused(seen: Observation) -> Iterator[Finding]:
    pod = seen.pod
    assert pod is not None
    if pod.phase != _RUNNING:
        return
    for container in sharing(seen):
        if container.pinned or _use(seen, container).pairs:
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
