"""What an upgrade of drivers reads of pods and reports, as values of model/driver_upgrade."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from kube_rdma.adapters.cluster.errors import NotInstalled
from kube_rdma.adapters.cluster.kinds import ObjectCodec, ObjectKind, Stored, Where
from kube_rdma.adapters.cluster.nodes import whole
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.report_objects import NODE_REPORT
from kube_rdma.api.node_report import node_report
from kube_rdma.model.driver_upgrade import DriverPod, ShareHolder
from kube_rdma.model.node_report import NodeReport
from kube_rdma.model.pod import MIRROR

_ENDED = ("Succeeded", "Failed")


class _Amounts(msgspec.Struct, frozen=True):
    limits: dict[str, str] = {}


class _UsingContainer(msgspec.Struct, frozen=True):
    image: str = ""
    resources: _Amounts = msgspec.field(default_factory=_Amounts)


class _PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str


class UsingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of spec that is read."""

    node_name: str = ""
    containers: tuple[_UsingContainer, ...] = ()
    init_containers: tuple[_UsingContainer, ...] = ()


class UsingStatus(msgspec.Struct, frozen=True):
    """The part of status that is read."""

    phase: str = ""
    conditions: tuple[_PodCondition, ...] = ()


USING_POD = ObjectKind(
    "",
    "v1",
    "Pod",
    "pods",
    namespaced=True,
    spec=ObjectCodec.of(UsingSpec, writes=False),
    status=ObjectCodec.of(UsingStatus, writes=False),
)
StoredPod = Stored[UsingSpec, UsingStatus]


def driver_pod(pod: StoredPod, image: str, *, unloads: bool) -> DriverPod:
    """A driver's pod, of which `image` is what its DaemonSet has by now."""
    conditions = pod.status.conditions if pod.status else ()
    return DriverPod(
        name=pod.name,
        uid=pod.uid,
        current=[container.image for container in pod.spec.containers] == [image],
        ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
        deleting=pod.deleting,
        unloads=unloads,
    )


async def using_pods(cluster: Cluster) -> tuple[tuple[str, frozenset[str], ShareHolder], ...]:
    """All pods that run or will: their node, the resources that they have, who they are.

    Needs the verb list of pods.
    """
    pods = await cluster.list(USING_POD)
    return tuple(
        (
            pod.spec.node_name,
            frozenset(_resources(pod.spec)),
            ShareHolder(pod.namespace, pod.name, pod.uid, pod.deleting, stays=_stays(pod)),
        )
        for pod in pods
        if pod.spec.node_name and not (pod.status and pod.status.phase in _ENDED)
    )


async def all_reports(cluster: Cluster, nodes: Collection[str]) -> dict[str, NodeReport]:
    """What these nodes report, by name; nothing where the kind is not installed."""
    try:
        stored = await cluster.list(NODE_REPORT, Where())
    except NotInstalled:
        return {}
    return {
        report.name: node_report(report.status)
        for report in stored
        if report.name in nodes and report.status
    }


def _stays(pod: StoredPod) -> bool:
    """Whether an eviction would be in vain, as kubectl's drain has it."""
    return (
        any(owner.kind == "DaemonSet" for owner in pod.owners) or pod.annotation(MIRROR) is not None
    )


def _resources(spec: UsingSpec) -> Iterator[str]:
    for container in (*spec.containers, *spec.init_containers):
        for name, amount in container.resources.limits.items():
            if "/" in name and whole(amount):
                yield name
