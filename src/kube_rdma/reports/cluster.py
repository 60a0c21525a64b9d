"""Reads at the API server what `kube-rdma status` judges, as values of model/reports.

Each function reads one or two kinds with a few requests, and needs the verb list; write_status
needs patch of nodepolicies/status. Only the fields that are judged are decoded, so that faults in
other fields hide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_client import wire
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import read_or_refusal
from kube_rdma.adapters.cluster.kinds import own, pod
from kube_rdma.adapters.cluster.kinds.node import NODE, node_state
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT, StoredReport
from kube_rdma.attach.cluster import network_of
from kube_rdma.attach.documents import networks, pod_networks
from kube_rdma.ipam.cluster import IP_POOL_TEXT, pool_of_text
from kube_rdma.ipam.objects import IPPoolStatus
from kube_rdma.model import reports as model
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.operator import ComponentName
from kube_rdma.model.pools import ClusterNodePolicy
from kube_rdma.model.preflight import REQUEST
from kube_rdma.model.repair import RepairEntry
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY_STATUS
from kube_rdma.operator.documents.nic_cluster_policy import OWN_REASONS, NicClusterPolicyStatus
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.reports.node_policy_status import NodePolicyStatus

# NodePolicies as the controller sees them, with their status, which it writes.

_STATUS = ObjectCodec.of(NodePolicyStatus)
NODE_POLICY_STATUS = NODE_POLICY.read_as(NODE_POLICY.spec, _STATUS)


class SeenPolicy(Frozen):
    """A NodePolicy as stored: its policy or the reason for its refusal, and its status."""

    name: str
    version: str
    generation: int
    policy: ClusterNodePolicy | None
    refusal: str
    status: NodePolicyStatus | None


def seen_policy(stored: Stored[bytes, NodePolicyStatus]) -> SeenPolicy:
    """Decode a stored NodePolicy; one that is refused gets the reason instead of a policy."""
    read = partial(policy_of, stored)
    policy, refusal = read_or_refusal(NODE_POLICY.kind, stored.name, read)
    version, generation = stored.version, stored.generation
    return SeenPolicy(stored.name, version, generation, policy, refusal, stored.status)


async def write_status(cluster: Cluster, seen: SeenPolicy, status: NodePolicyStatus) -> None:
    """Write the status of the policy that was read; raise Conflict if it has changed since."""
    await cluster.apply_status(
        NODE_POLICY_STATUS, seen.name, "", status, force=True, version=seen.version
    )


# The policy of config/admission; an installation has its own, with the namespace before.
GUARD = "agents-own-node.kube-rdma.io"
MEASURED = "pods-preflight.kube-rdma.io"  # likewise, of controller.preflight
_LONGEST = 300  # characters of a reason that a container gives
_EVENTS = (  # the last ones are signed so by adapters/cluster/events
    "reason=FailedScheduling",
    "reason=FailedCreatePodSandBox",
    "reportingComponent=kube-rdma.io/agent",
)


class _About(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _About = _About()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None
    type: str = ""  # Normal or Warning


EVENT = ObjectKind("", "v1", "Event", "events", namespaced=True, spec=NOTHING, status=NOTHING)
BINDING = ObjectKind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
    spec=NOTHING,
    status=NOTHING,
)


async def nodes(cluster: Cluster) -> tuple[NodeState, ...]:
    """Return the state of all nodes of the cluster."""
    return tuple(map(node_state, await cluster.list(NODE)))


async def workloads(cluster: Cluster) -> tuple[model.Workload, ...]:
    """Return all DaemonSets and Deployments of the cluster, not only kube-rdma's."""
    sets = map(_daemon_set, await cluster.list(pod.DAEMON_SETS))
    return (*sets, *map(_deployment, await cluster.list(pod.DEPLOYMENTS)))


async def pods_of(cluster: Cluster, workload: model.Workload) -> tuple[model.ProgramPod, ...]:
    """Return the pods in a workload's namespace that the matchLabels of its selector choose."""
    labels = ",".join(f"{key}={value}" for key, value in workload.labels)
    pods = await cluster.list(pod.FULL_POD, Where(namespace=workload.namespace, labels=labels))
    return tuple(_program_pod(each, workload.title) for each in pods)


async def reports(cluster: Cluster) -> Mapping[str, model.NodeReport]:
    """Return the statuses of NodeReports by node, without absent or unreadable ones."""
    stored = await stored_reports(cluster)
    return {name: each.status for name, each in stored.items() if each.status}


async def stored_reports(cluster: Cluster) -> Mapping[str, StoredReport]:
    """Return the objects of NodeReports by node, without unreadable ones."""
    return {each.name: each for each in (await cluster.see(NODE_REPORT)).objects}


async def policies(cluster: Cluster) -> tuple[model.PolicyState, ...]:
    """Return the NicClusterPolicies of the cluster, without unreadable ones."""
    return tuple(map(_policy, (await cluster.see(NIC_CLUSTER_POLICY_STATUS)).objects))


async def repairs(cluster: Cluster) -> Mapping[str, tuple[RepairEntry, ...]]:
    """Return what the statuses of RepairPolicies say of nodes and cards."""
    seen = await cluster.see(own.REPAIR_POLICY)
    return {one.name: one.status.nodes for one in seen.objects if one.status}


async def node_policies(cluster: Cluster) -> tuple[model.NodePolicyState, ...]:
    """Return the readable NodePolicies of the cluster, with what their statuses say."""
    return tuple(map(_node_policy, (await cluster.see(NODE_POLICY_STATUS)).objects))


async def pools(cluster: Cluster) -> tuple[model.AddressPool, ...]:
    """Return the readable IPPools of the cluster, with what their statuses say."""
    return tuple(map(_pool, (await cluster.see(IP_POOL_TEXT)).objects))


async def definitions(cluster: Cluster) -> tuple[Network, ...]:
    """Return the networks of the NetworkAttachmentDefinitions, without faulty ones."""
    return tuple(filter(None, map(network_of, await cluster.list(DEFINITION))))


async def waiting(cluster: Cluster) -> tuple[model.WaitingPod, ...]:
    """Return the pods of all namespaces in phase Pending."""
    pending = Where(fields="status.phase=Pending")
    return tuple(map(_waiting, await cluster.list(pod.FULL_POD, pending)))


async def events(cluster: Cluster) -> tuple[model.ClusterEvent, ...]:
    """Return the stored Events that one of `_EVENTS` chooses.

    Field selectors let the API server filter them, for a cluster may have tens of thousands.
    """
    some = [await events_of(cluster, choice) for choice in _EVENTS]
    return tuple(event for events in some for event in events)


async def events_of(
    cluster: Cluster, choice: str, namespace: str = "", most: int = 0
) -> tuple[model.ClusterEvent, ...]:
    """Return the Events that a field selector chooses, at most `most` unless that is 0."""
    query = (("fieldSelector", choice), *((("limit", str(most)),) if most else ()))
    request = wire.ApiRequest("list", "", "v1", "events", namespace, query=query)
    documents = wire.page(await cluster.write(request)).items
    return tuple(_event(wire.parse(each, _Event)) for each in documents)


async def bindings(cluster: Cluster) -> tuple[str, ...]:
    """Return the names of the bindings of validating policies."""
    return tuple(stored.name for stored in await cluster.list(BINDING))


def guarded(names: Sequence[str], namespaces: Iterable[str]) -> bool:
    """Decide whether an admission policy keeps these namespaces' agents to their own nodes.

    A binding's name may have a release's name between that of its namespace and the policy's.
    """
    bound = {name.partition(".")[0] for name in names if name.endswith(f".{GUARD}")}
    return GUARD in names or bound.issuperset(namespaces)


def _node_policy(stored: Stored[bytes, NodePolicyStatus]) -> model.NodePolicyState:
    status = stored.status
    if status is None or status.observed_generation != stored.generation:
        return model.NodePolicyState(stored.name)
    # Ready says the same as the first of its parts that does not hold.
    wrong = next((c for c in status.conditions if c.status != "True" and c.type != "Ready"), None)
    return model.NodePolicyState(
        stored.name,
        seen=True,
        nodes=status.nodes,
        applied=status.applied,
        pending=status.pending,
        refused=status.refused,
        overruled=status.overruled,
        reason=wrong.reason if wrong else "",
        message=wrong.message if wrong else "",
    )


def _daemon_set(stored: Stored[pod.WorkloadSpec, pod.WorkloadStatus]) -> model.Workload:
    status = stored.status or pod.WorkloadStatus()
    counts = (status.desired_number_scheduled, status.number_ready, status.updated_number_scheduled)
    return _seen(stored, *counts)


def _deployment(stored: Stored[pod.WorkloadSpec, pod.WorkloadStatus]) -> model.Workload:
    status = stored.status or pod.WorkloadStatus()
    return _seen(stored, stored.spec.replicas, status.ready_replicas, status.updated_replicas)


def _seen(
    stored: Stored[pod.WorkloadSpec, pod.WorkloadStatus], desired: int, ready: int, updated: int
) -> model.Workload:
    container = next(iter(stored.spec.template.spec.containers), pod.Container())
    return model.Workload(
        None,
        *(stored.namespace, stored.name, desired, ready, updated, container.image),
        nodes=_nodes(stored.spec.template.spec),
        words=(*container.command, *container.args),
        labels=tuple(sorted(stored.spec.selector.match_labels.items())),
    )


def _nodes(spec: pod.FullPodSpec) -> model.ChosenNodes:
    return model.ChosenNodes(tuple(sorted(spec.node_selector.items())), spec.tolerations)


def _program_pod(stored: pod.FullPod, title: str) -> model.ProgramPod:
    status = pod.status_of(stored)
    states = status.container_statuses
    ready = bool(states) and all(each.ready for each in states) and not stored.deleting
    why = "" if ready else next((text for each in states if (text := _why(each))), status.phase)
    at = (stored.namespace, stored.name, stored.spec.node_name)
    return model.ProgramPod(title, *at, ready, why)


def _why(container: pod.ContainerStatus) -> str:
    """Return what a container waits for, or how it ended; "" if it is ready, or if unknown."""
    if container.ready:
        return ""
    ends = (container.state.waiting, container.state.terminated, container.last_state.terminated)
    for end in ends:
        if end and end.reason:
            text = f"{end.reason}: {end.message}" if end.message else end.reason
            return " ".join(text.split())[:_LONGEST]
    return ""


def _policy(stored: Stored[None, NicClusterPolicyStatus]) -> model.PolicyState:
    # Nobody has written the status of a new policy: it has the defaults of its definition.
    status = stored.status if stored.status != NicClusterPolicyStatus() else None
    notes = [
        f"{part.type}: {part.message}"
        for part in (status.conditions if status else ())
        if part.status == "False" and part.type != "Ready"
    ]
    return model.PolicyState(
        f"{stored.namespace}/{stored.name}".lstrip("/"),
        status.state if status else "",
        status.reason if status else "",
        tuple(notes),
        ours=bool(status and _is_ours(status)),
    )


def _is_ours(status: NicClusterPolicyStatus) -> bool:
    """Decide whether kube-rdma's operator wrote a status, and not NVIDIA's, by its contents."""
    words = {each.reason for each in status.conditions if each.type == "Ready"}
    return bool(words & OWN_REASONS) or any(
        part.name == ComponentName.PEER_DRIVER for part in status.applied_states
    )


def _pool(stored: Stored[bytes, IPPoolStatus]) -> model.AddressPool:
    status = stored.status or IPPoolStatus()
    routed = False
    with suppress(Refused):  # its status says so
        routed = pool_of_text(stored).routed
    conditions = {each.type: each for each in status.conditions}
    ready, full = conditions.get("Ready"), conditions.get("NearlyFull")
    broken = ready.message if ready and ready.status == "False" else ""
    scarce = full.message if full and full.status == "True" else ""
    short = tuple(sorted({want.node for want in status.wants}))
    counts = (status.ranges, status.used, status.free)
    return model.AddressPool(stored.name, *counts, broken, scarce, short, routed)


def _waiting(stored: pod.FullPod) -> model.WaitingPod:
    asks = any(stored.annotation(key) for key in (networks.ANNOTATION, pod_networks.ANNOTATION))
    place = (stored.spec.node_name, stored.spec.extended, asks, _nodes(stored.spec))
    measures = stored.annotation(REQUEST) is not None
    return model.WaitingPod(stored.namespace, stored.name, *place, preflight=measures)


def _event(event: _Event) -> model.ClusterEvent:
    about, series = event.involved_object, event.series
    last = (series and series.last_observed_time) or event.last_timestamp or event.event_time
    return model.ClusterEvent(
        about.kind,
        about.namespace,
        about.name,
        event.reason,
        event.message,
        last or "",
        event.type != "Normal",
    )
