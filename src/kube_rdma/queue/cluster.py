"""Reads Workloads of Kueue and what their admission check depends on; describes what is written.

Facts of Kueue are those of sigs.k8s.io/kueue@v0.17.0, apis/kueue/v1beta2. Its earlier version
v1beta1 has another form of topology assignments. A Workload's spec is text of its tenant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.adapters.cluster.kinds.own import DefinitionSpec, StoredReport
from kube_rdma.adapters.cluster.kinds.pod import DOCUMENT, Json, WorkloadTemplate, extended_requests
from kube_rdma.attach.cluster import network_of
from kube_rdma.ipam.objects import IPPoolStatus
from kube_rdma.model import queue as model
from kube_rdma.model.kubernetes import Condition, SparsePart
from kube_rdma.model.preflight import REQUEST
from kube_rdma.model.reports import NodeReport

_EIGHT = msgspec.Meta(max_length=8)  # podSets, as in Kueue's definition


class CheckStatus(SparsePart):
    """The status of an AdmissionCheck."""

    conditions: tuple[Condition, ...] = ()


class _PodSet(msgspec.Struct, frozen=True):
    template: WorkloadTemplate
    count: int
    name: str = "main"


class QueuedSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Workload's spec on which its admission check depends."""

    pod_sets: Annotated[tuple[_PodSet, ...], _EIGHT] = ()


class _Assignment(msgspec.Struct, frozen=True, rename="camel"):
    name: str = "main"
    flavors: dict[str, str] = {}
    count: int | None = None
    topology_assignment: dict[str, Any] | None = None


class _Admission(msgspec.Struct, frozen=True, rename="camel"):
    pod_set_assignments: Annotated[tuple[_Assignment, ...], _EIGHT] = ()


class QueuedStatus(SparsePart):
    """The fields of a Workload's status that are read, of which `admission_checks` is written."""

    admission_checks: tuple[model.CheckEntry, ...] = ()
    admission: _Admission | None = None
    conditions: tuple[Condition, ...] = ()


_API, _CHECKS = ("kueue.x-k8s.io", "v1beta2"), ("AdmissionCheck", "admissionchecks")
_WORKLOAD = (ObjectCodec.of(QueuedSpec, writes=False), ObjectCodec.of(QueuedStatus))
ADMISSION_CHECK = ObjectKind(*_API, *_CHECKS, False, DOCUMENT, ObjectCodec.of(CheckStatus))
RESOURCE_FLAVOR = ObjectKind(*_API, "ResourceFlavor", "resourceflavors", False, DOCUMENT, NOTHING)
# Eight of a page: a Workload has the templates of up to eight kinds of pods.
WORKLOAD = ObjectKind(*_API, "Workload", "workloads", True, *_WORKLOAD, page=8)
StoredCheck = Stored[Json, CheckStatus]


def rails_check(stored: StoredCheck) -> StoredCheck | None:
    """Return an AdmissionCheck that kube-rdma's controller answers; None for any other."""
    is_ours = stored.spec.get("controllerName") == model.CONTROLLER and not stored.deleting
    return stored if is_ours else None


def waiting_workload(stored: Stored[QueuedSpec, QueuedStatus]) -> model.WaitingWorkload | None:
    """Return a Workload whose admission checks Kueue waits for; None for any other.

    A controller that answers while Kueue evicts the Workload leaves it in Retry for ever (Kueue's
    keps/3258-delayed-admission-check-retries).
    """
    status = stored.status or QueuedStatus()
    holds = {each.type for each in status.conditions if each.status == "True"}
    is_waiting = any(each.state == model.PENDING for each in status.admission_checks)
    is_reserved = "QuotaReserved" in holds and not holds & {"Evicted", "Finished"}
    if not (is_waiting and is_reserved and status.admission) or stored.deleting:
        return None
    given = {each.name: each for each in status.admission.pod_set_assignments}
    pods = []
    for each in stored.spec.pod_sets:
        one = given.get(each.name)
        if not one:
            return None  # Kueue has not placed all pods
        pods.append(_pods(each, one, stored.namespace))
    names = (stored.namespace, stored.name, stored.uid, stored.version)
    return model.WaitingWorkload(*names, status.admission_checks, tuple(pods))


def _pods(pod_set: _PodSet, given: _Assignment, namespace: str) -> model.WaitingPods:
    from kube_rdma.attach.documents import networks  # for Workloads that wait alone

    spec, annotations = pod_set.template.spec, pod_set.template.metadata.annotations
    try:
        asks = networks.asks(annotations.get(networks.ANNOTATION, ""), namespace)
    except Refused:
        asks = ()  # the agent refuses such pods, with the reason
    return model.WaitingPods(
        pod_set.count if given.count is None else given.count,
        extended_requests(spec),
        bool(spec.resource_claims),
        tuple(f"{ask.namespace}/{ask.network}" for ask in asks),
        tuple(sorted({*given.flavors.values()})),
        spec.node_selector,
        _hosts(given.topology_assignment or {}),
        REQUEST in annotations,
    )


def _hosts(topology: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Return how many pods Kueue puts on each node, by hostname; None if it names no nodes.

    Kueue writes it, and its definition sees to its form.
    """
    if topology.get("levels", [])[-1:] != [model.HOSTNAME]:
        return None
    hosts = Counter[str]()
    for each in topology["slices"]:
        values, counts = each["valuesPerLevel"][-1], each["podCounts"]
        of = values.get("individual") or {"roots": [values["universal"]]}
        names = [f"{of.get('prefix', '')}{root}{of.get('suffix', '')}" for root in of["roots"]]
        pods = counts.get("individual") or [counts["universal"]] * len(names)
        hosts.update(dict(zip(names, pods, strict=True)))
    return hosts


# What kube-rdma knows of nodes and addresses.


def judged_report(stored: StoredReport) -> NodeReport | None:
    """Return a NodeReport with its ill cards alone; None before its agent has written it."""
    return stored.status and replace(stored.status, cards=stored.status.ill)


def addresses_left(stored: Stored[bytes, IPPoolStatus]) -> Mapping[str, int]:
    """Return the addresses by family that nodes can get of an IPPool; {} before it was counted.

    Nodes hold addresses in advance, and give them back when another node waits. So held ones count
    as long as no node waits.
    """
    status, left = stored.status, Counter[str]()
    if status and status.observed_generation == stored.generation:
        short = {each.family for each in status.wants}
        for each in status.usage:
            left[each.family] += each.free + (0 if each.family in short else each.held)
    return left


def pool_of_network(stored: Stored[DefinitionSpec, None]) -> str | None:
    """Return the one IPPool of a network; None if it has none or several."""
    network = network_of(stored)
    return network.pools[0] if network and len(network.pools) == 1 else None
