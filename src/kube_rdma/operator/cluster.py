"""Reads and writes for the operator: progress and documents of its parts, pods that use drivers.

DaemonSets are written as whole documents of operator/rules by server-side apply. DaemonSets are
read as documents too, because all fields are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from shlex import quote
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_client.errors import NotInstalled
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Owner, Stored, Wanted, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.cluster.kinds import pod as kinds
from kube_rdma.adapters.cluster.kinds.node import whole
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.model import operator
from kube_rdma.model.kubernetes import MIRROR
from kube_rdma.model.reports import NodeReport
from kube_rdma.operator.documents import nic_cluster_policy

_OF_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
CLAIM = "resource.k8s.io/claim"  # stands for a pod's ResourceClaims, whatever driver they are for


def driver_pod(
    pod: kinds.FullPod, template: Mapping[str, Any], *, unloads: bool, placed: bool
) -> operator.DriverPod:
    """Return what rules read of a driver's pod; `template` is its DaemonSet's pod template now.

    A pod that is not `placed` any more is about to be deleted by its DaemonSet's controller.
    """
    images = [container["image"] for container in template["spec"]["containers"]]
    fields = template["metadata"].get("annotations", {}).get(operator.DRIVER_FIELDS)
    return operator.DriverPod(
        name=pod.name,
        uid=pod.uid,
        current=[container.image for container in pod.spec.containers] == images
        and pod.annotation(operator.DRIVER_FIELDS) == fields,
        ready=is_ready(pod),
        deleting=pod.deleting or not placed,
        unloads=unloads,
    )


def is_ready(pod: kinds.FullPod) -> bool:
    """Return whether the pod is ready, by its condition Ready."""
    conditions = kinds.status_of(pod).conditions
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


async def using_pods(
    cluster: Cluster, drain: operator.DrainPolicy | None, wait_for: str
) -> tuple[tuple[str, frozenset[str], operator.ShareHolder], ...]:
    """Return each unfinished pod on a node: the node's name, the pod's resources and identity.

    Pods that `drain` leaves alone are marked `stays`. So are pods that the selector `wait_for`
    chooses, which have the resource ``""`` too. It needs the verb list of pods. Raise Refused for
    an invalid selector.
    """
    pods = await cluster.list(kinds.FULL_POD)
    drained = await _chosen(cluster, drain.selector) if drain and drain.selector else None
    awaited = await _chosen(cluster, wait_for) if wait_for else frozenset()
    uses = []
    for pod in pods:
        if not pod.spec.node_name or kinds.status_of(pod).is_over:
            continue
        is_awaited, is_spared = pod.uid in awaited, drained is not None and pod.uid not in drained
        stays = is_awaited or is_spared or _stays(pod, drain or operator.DrainPolicy())
        resources = frozenset((*_resources(pod.spec), *([""] if is_awaited else [])))
        holder = operator.ShareHolder(pod.namespace, pod.name, pod.uid, pod.deleting, stays=stays)
        uses.append((pod.spec.node_name, resources, holder))
    return tuple(uses)


async def _chosen(cluster: Cluster, selector: str) -> frozenset[str]:
    """Return the uids of the pods that a label selector chooses; the API server evaluates it."""
    return frozenset(pod.uid for pod in await cluster.list(kinds.FULL_POD, Where(labels=selector)))


async def all_reports(
    cluster: Cluster, nodes: Collection[str]
) -> tuple[dict[str, NodeReport], frozenset[str]]:
    """Return NodeReports by node, and the nodes whose report cannot be read.

    Both are empty where the kind is not installed.
    """
    try:
        seen = await cluster.see(NODE_REPORT)
    except NotInstalled:
        return {}, frozenset()
    own = (report for report in seen.objects if report.name in nodes)
    return {report.name: report.status for report in own if report.status}, seen.unread


def _stays(pod: kinds.FullPod, drain: operator.DrainPolicy) -> bool:
    """Return whether a pod cannot be drained.

    Such a pod would come back at once, or kubectl drain would refuse it with these options.
    """
    daemon = any(owner.kind == "DaemonSet" for owner in pod.owners)
    if daemon or pod.annotation(MIRROR) is not None:
        return True
    bare = not any(owner.controller for owner in pod.owners)
    local = any(volume.empty_dir is not None for volume in pod.spec.volumes)
    return (bare and not drain.force) or (local and not drain.delete_empty_dir)


def _resources(spec: kinds.FullPodSpec) -> Iterator[str]:
    for container in (*spec.containers, *spec.init_containers):
        for name, amount in container.resources.limits.items():
            if "/" in name and whole(str(amount)):
                yield name
    if spec.resource_claims:
        yield CLAIM


def progress_of(
    stored: Stored[kinds.Json, kinds.WorkloadStatus], pods: Collection[kinds.FullPod] = ()
) -> operator.DaemonSetProgress:
    """Return how far the pods of a DaemonSet are; `pods` are its own that run or wait."""
    status = stored.status or kinds.WorkloadStatus()
    return operator.DaemonSetProgress(
        status.desired_number_scheduled,
        status.number_available,
        current=status.observed_generation >= stored.generation,
        unpulled=_unpulled(pods),
    )


def _unpulled(pods: Collection[kinds.FullPod]) -> str:
    """Return a sentence about an image that nodes cannot pull; "" if all can.

    While a pull is retried the kubelet's reason changes between two words, so both are named: the
    sentence does not change.
    """
    by_node = sorted(pods, key=lambda pod: (pod.spec.node_name, pod.name))
    lacking = [(pod, why) for pod in by_node if (why := _pull_fault(pod))]
    if not lacking:
        return ""
    pod, why = lacking[0]
    more = f", and {len(lacking) - 1} more nodes" if lacking[1:] else ""
    where = f"kubectl -n {quote(pod.namespace)} describe pod {quote(pod.name)}"
    return f"node {pod.spec.node_name} cannot pull {why}; see {where}{more}"


def _pull_fault(pod: kinds.FullPod) -> str:
    images = {container.name: container.image for container in pod.spec.containers}
    for status in kinds.status_of(pod).container_statuses:
        word = status.state.waiting.reason if status.state.waiting else ""
        if word in kinds.PULL_FAULTS:
            return f"{images.get(status.name, status.name)} ({kinds.PULL_FAULTS[word]})"
    return ""


async def apply_document(
    cluster: Cluster, kind: ObjectKind[kinds.Json, Any], document: kinds.Json
) -> None:
    """Create or change an object so that it has the document's fields, whoever wrote it before."""
    meta = document["metadata"]
    owners = tuple(Owner(*map(owner.get, _OF_OWNER)) for owner in meta["ownerReferences"])
    wanted = Wanted(
        meta["name"],
        meta["namespace"],
        document[kind.content],
        labels=tuple(sorted(meta["labels"].items())),
        owners=owners,
    )
    await cluster.apply(kind, wanted, force=True)


# NicClusterPolicies, in the fields of NVIDIA's operator: a spec that is refused says why.


class PolicyText(Frozen):
    """The spec of a NicClusterPolicy as written: its meaning, or why it is refused."""

    policy: operator.ClusterPolicy | None
    refusal: Refused | None = None


def _text(data: bytes) -> PolicyText:
    try:
        return PolicyText(nic_cluster_policy.load(data, ""))
    except Refused as refusal:
        return PolicyText(None, refusal)
    except Exception as error:  # noqa: BLE001  of one object
        why = object_failed("NicClusterPolicy", "", error)
        return PolicyText(None, Refused(why, remedy="Change its spec"))


_NAMES = ("mellanox.com", "v1alpha1", "NicClusterPolicy", "nicclusterpolicies")
_STATUS = ObjectCodec.of(nic_cluster_policy.NicClusterPolicyStatus)
NIC_CLUSTER_POLICY = ObjectKind(*_NAMES, True, spec=ObjectCodec(_text), status=_STATUS)
NIC_CLUSTER_POLICY_OF_CLUSTER = replace(NIC_CLUSTER_POLICY, namespaced=False)
# For readers of statuses alone: the status names a garbled spec.
NIC_CLUSTER_POLICY_STATUS = NIC_CLUSTER_POLICY.read_as(NOTHING, NIC_CLUSTER_POLICY.status)


def policy_of(
    stored: Stored[PolicyText, Any], namespace: str = ""
) -> operator.ClusterPolicy | None:
    """Return the policy of an object, with its name and namespace; None when it is refused.

    `namespace` is the operator's, where the objects of a cluster-wide policy go.
    """
    if stored.spec.policy is None:
        return None
    return replace(
        stored.spec.policy,
        name=stored.name,
        namespace=stored.namespace or namespace,
        uid=stored.uid,
        created=stored.created,
    )
