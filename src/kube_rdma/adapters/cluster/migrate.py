"""What `kube-rdma migrate plan` reads of the API server, as values of model/migrate.

Each function is one kind and needs the verb list, a ConfigMap's get. A DaemonSet's spec is handed
on as it is, for a plan names what others wrote in it.
"""

from __future__ import annotations

from typing import Any

from kube_base.frozen import replace
from kube_client.kinds import NOTHING, Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.nic_cluster_policy import NIC_CLUSTER_POLICY
from kube_rdma.adapters.cluster.kinds.node import NODE, NodeObjectSpec, NodeStatus
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, status_of
from kube_rdma.adapters.cluster.kinds.workload import CONFIG_MAP, DAEMON_SET, DEPLOYMENTS, DOCUMENT
from kube_rdma.model.migrate import HolderPod, MigratingNode, PluginDaemonSet, VendorPolicy

CLUSTER_POLICIES = NIC_CLUSTER_POLICY.read_as(DOCUMENT, NOTHING)  # of the cluster too
NODE_POLICIES = replace(CLUSTER_POLICIES, kind="NicNodePolicy", plural="nicnodepolicies")

_KEY = "config.json"
_OPERATOR = "network-operator"
# The field of the first releases, and that of all since; a policy of the cluster has the second.
_FIELDS = ("devicePlugin", "rdmaSharedDevicePlugin")


async def daemon_sets(cluster: Cluster) -> tuple[PluginDaemonSet, ...]:
    """All DaemonSets of the cluster."""
    return tuple(map(_daemon_set, await cluster.list(DAEMON_SET)))


async def cluster_policies(cluster: Cluster) -> tuple[VendorPolicy, ...]:
    """The NicClusterPolicies, of the cluster or of all namespaces."""
    stored = await cluster.list(CLUSTER_POLICIES)
    return tuple(_policy(each, CLUSTER_POLICIES.kind) for each in stored)


async def node_policies(cluster: Cluster) -> tuple[VendorPolicy, ...]:
    """The NicNodePolicies."""
    return tuple(_policy(each, NODE_POLICIES.kind) for each in await cluster.list(NODE_POLICIES))


async def nodes(cluster: Cluster, mark: str) -> tuple[MigratingNode, ...]:
    """All nodes with the value of the label `mark`."""
    return tuple(_node(each, mark) for each in await cluster.list(NODE))


async def holders(cluster: Cluster) -> tuple[HolderPod, ...]:
    """The pods that ask for an extended resource and are on a node."""
    return tuple(
        HolderPod(each.namespace, each.name, each.spec.node_name, resources)
        for each in await cluster.list(FULL_POD)
        if each.spec.node_name and not status_of(each).is_over
        if (resources := tuple(dict.fromkeys(n for c in each.spec.containers for n in c.extended)))
    )


async def operators(cluster: Cluster) -> tuple[str, ...]:
    """The Deployments of NVIDIA's network operator that have a ready pod, by namespace and name."""
    return tuple(
        f"{each.namespace}/{each.name}"
        for each in await cluster.list(DEPLOYMENTS)
        if each.status and each.status.ready_replicas
        if any(_OPERATOR in one.image for one in each.spec.template.spec.containers)
        or _OPERATOR in each.name
    )


async def config_text(cluster: Cluster, namespace: str, name: str) -> str | None:
    """The plugin's configuration in a ConfigMap; None where there is none."""
    stored = await cluster.get(CONFIG_MAP, name, namespace)
    text = (stored.spec or {}).get(_KEY) if stored else None
    return text if isinstance(text, str) else None


def _daemon_set(stored: Stored[dict[str, Any], Any]) -> PluginDaemonSet:
    owner = next((one for one in stored.owners if one.controller), None)
    return PluginDaemonSet(
        stored.namespace, stored.name, stored.spec, (owner.kind, owner.name) if owner else ()
    )


def _policy(stored: Stored[dict[str, Any], None], kind: str) -> VendorPolicy:
    present = [name for name in _FIELDS if isinstance(stored.spec.get(name), dict)]
    field = present[0] if present else _FIELDS[not stored.namespace]
    return VendorPolicy(kind, stored.namespace, stored.name, field, stored.spec.get(field))


def _node(stored: Stored[NodeObjectSpec, NodeStatus], mark: str) -> MigratingNode:
    offered = dict(sorted((stored.status or NodeStatus()).allocatable.items()))
    extended = {name: text for name, text in offered.items() if "/" in name}
    return MigratingNode(stored.name, extended, stored.label(mark) or "", stored.spec.unschedulable)
