"""Reads what `kube-rdma migrate` needs of the API server, as values of model/migrate.

Each function reads one kind and needs the verb list; config_text, reported_pools and node need get.
A DaemonSet's spec is handed on as it is, for a plan names what others wrote in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds import pod as kinds
from kube_rdma.adapters.cluster.kinds.node import NODE, NodeObjectSpec, NodeStatus, units
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.resource_api import DEVICE_CLASS, ExtendedClaim
from kube_rdma.model import migrate as model
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY

CLUSTER_POLICIES = NIC_CLUSTER_POLICY.read_as(kinds.DOCUMENT, NOTHING)  # of the cluster too
NODE_POLICIES = replace(CLUSTER_POLICIES, kind="NicNodePolicy", plural="nicnodepolicies")


class _SharingStatus(kinds.PodStatus, frozen=True, rename="camel"):
    extended_resource_claim_status: ExtendedClaim | None = None


_SHARING_POD = kinds.FULL_POD.read_as(
    ObjectCodec.of(kinds.FullPodSpec, writes=False), ObjectCodec.of(_SharingStatus, writes=False)
)
_KEY = "config.json"
_OPERATOR = "network-operator"
# The field of the first releases, and that of all since; a policy of the cluster has the second.
_FIELDS = ("devicePlugin", "rdmaSharedDevicePlugin")


async def daemon_sets(cluster: Cluster) -> tuple[model.PluginDaemonSet, ...]:
    """Return all DaemonSets of the cluster."""
    sets = []
    for stored in await cluster.list(kinds.DAEMON_SET):
        owner = next((one for one in stored.owners if one.controller), None)
        owned = (owner.kind, owner.name) if owner else ()
        ready = stored.status.number_ready if stored.status else 0
        place = (stored.namespace, stored.name)
        sets.append(model.PluginDaemonSet(*place, stored.spec, owned, ready=ready))
    return tuple(sets)


async def policies(
    cluster: Cluster, kind: ObjectKind[dict[str, Any], None] = CLUSTER_POLICIES
) -> tuple[model.VendorPolicy, ...]:
    """Return the policies of NVIDIA's operator that are of this kind, of all namespaces."""
    made = []
    for stored in await cluster.list(kind):
        present = [name for name in _FIELDS if isinstance(stored.spec.get(name), dict)]
        field = present[0] if present else _FIELDS[not stored.namespace]
        section = stored.spec.get(field)
        made.append(model.VendorPolicy(kind.kind, stored.namespace, stored.name, field, section))
    return tuple(made)


async def nodes(cluster: Cluster, mark: str) -> tuple[model.MigratingNode, ...]:
    """Return all nodes of the cluster, each with the value of its label `mark`."""
    return tuple(_node(each, mark) for each in await cluster.list(NODE))


async def holders(cluster: Cluster) -> tuple[model.HolderPod, ...]:
    """Return placed, unfinished pods whose containers ask for extended resources."""
    return tuple(
        model.HolderPod(each.namespace, each.name, each.spec.node_name, resources)
        for each in await cluster.list(kinds.FULL_POD)
        if each.spec.node_name and not kinds.status_of(each).is_over
        if (resources := each.spec.extended)
    )


async def operators(cluster: Cluster) -> tuple[str, ...]:
    """Return the namespace/name of ready Deployments of NVIDIA's network operator."""
    return tuple(
        f"{each.namespace}/{each.name}"
        for each in await cluster.list(kinds.DEPLOYMENTS)
        if each.status and each.status.ready_replicas
        if any(_OPERATOR in one.image for one in each.spec.template.spec.containers)
        or _OPERATOR in each.name
    )


async def config_text(cluster: Cluster, namespace: str, name: str) -> str | None:
    """Return the text config.json of a plugin's ConfigMap; None without it."""
    stored = await cluster.get(kinds.CONFIG_MAP, name, namespace)
    text = (stored.spec or {}).get(_KEY) if stored else None
    return text if isinstance(text, str) else None


def _node(stored: Stored[NodeObjectSpec, NodeStatus], mark: str) -> model.MigratingNode:
    offered = dict(sorted((stored.status or NodeStatus()).allocatable.items()))
    extended = {name: text for name, text in offered.items() if "/" in name}
    return model.MigratingNode(
        stored.name, extended, stored.label(mark) or "", stored.spec.unschedulable
    )


async def extended_names(cluster: Cluster) -> Mapping[str, str]:
    """Return DeviceClasses by the name of the resource that each serves."""
    return {
        one.spec.extended_resource_name: one.name
        for one in sorted(await cluster.list(DEVICE_CLASS), key=lambda one: one.name, reverse=True)
        if one.spec.extended_resource_name
    }


async def reported_pools(cluster: Cluster, node: str) -> Mapping[str, str] | None:
    """Return a node's resources and their modes from its NodeReport, None without a report."""
    stored = await cluster.get(NODE_REPORT, node)
    report = stored.status if stored else None
    return {pool.resource: pool.mode for pool in report.pools} if report else None


async def node(cluster: Cluster, name: str, mark: str) -> tuple[model.MigratingNode, str] | None:
    """Return a node with its label `mark`, and its kubelet's version; None if there is no node."""
    stored = await cluster.get(NODE, name)
    if stored is None:
        return None
    version = (stored.status or NodeStatus()).node_info.kubelet_version
    return _node(stored, mark), version


async def sharing_pods(cluster: Cluster, node: str) -> tuple[model.SharingPod, ...]:
    """Return a node's unfinished pods that ask for extended resources."""
    stored = await cluster.list(_SHARING_POD, Where(fields=f"spec.nodeName={node}"))
    pods = (_sharing(each) for each in stored if not (each.status and each.status.is_over))
    return tuple(pod for pod in pods if pod.asked)


def _sharing(pod: Stored[kinds.FullPodSpec, _SharingStatus]) -> model.SharingPod:
    asked: dict[str, int] = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for name in container.extended:
            amounts = {**container.resources.requests, **container.resources.limits}
            asked[name] = max(asked.get(name, 0), units(str(amounts[name])))
    claim = pod.status.extended_resource_claim_status if pod.status else None
    mapped = claim.request_mappings if claim else ()
    by_claim = frozenset(one.resource_name for one in mapped)
    return model.SharingPod(pod.namespace, pod.name, asked, by_claim)
