"""What the operator reads and writes: NicClusterPolicies, DaemonSets and ConfigMaps.

DaemonSets are written as whole documents of rules/operator by server-side apply, and read as
documents too: whether one differs is a matter of all its fields.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_base.frozen import Frozen
from kube_client.kinds import ObjectCodec, ObjectKind, Owner, Stored, Wanted
from kube_client.objects import Cluster
from kube_rdma.api.operator import nic_cluster_policy, nic_cluster_policy_status
from kube_rdma.api.operator.nic_cluster_policy_status import NicClusterPolicyStatus
from kube_rdma.model.operator.cluster_policy import ClusterPolicy, DaemonSetProgress

Json = dict[str, Any]


class _DaemonSetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of status that is read."""

    desired_number_scheduled: int = 0
    number_available: int = 0
    observed_generation: int = 0


class PolicyText(Frozen):
    """The spec of a policy as it was written: the policy, or why it is refused."""

    policy: ClusterPolicy | None
    refusal: Refused | None = None


def _text(data: bytes) -> PolicyText:
    try:
        return PolicyText(nic_cluster_policy.load(data, ""))
    except Refused as refusal:
        return PolicyText(None, refusal)


_DOCUMENT: ObjectCodec[Json] = ObjectCodec(
    partial(decoded, what=dict[str, Any]), msgspec.json.encode
)
NIC_CLUSTER_POLICY: ObjectKind[PolicyText, NicClusterPolicyStatus] = ObjectKind(
    "mellanox.com",
    "v1alpha1",
    "NicClusterPolicy",
    "nicclusterpolicies",
    namespaced=True,
    spec=ObjectCodec(_text),
    status=ObjectCodec(nic_cluster_policy_status.decode, nic_cluster_policy_status.encode),
)
DAEMON_SET: ObjectKind[Json, _DaemonSetStatus] = ObjectKind(
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets",
    namespaced=True,
    spec=_DOCUMENT,
    status=ObjectCodec.of(_DaemonSetStatus, writes=False),
)
CONFIG_MAP: ObjectKind[Json, Any] = ObjectKind(
    "",
    "v1",
    "ConfigMap",
    "configmaps",
    namespaced=True,
    spec=_DOCUMENT,
    status=ObjectCodec(lambda _: None),
    content="data",
)


def policy_of(stored: Stored[PolicyText, Any]) -> ClusterPolicy | None:
    """The policy of an object, None when it is refused."""
    if stored.spec.policy is None:
        return None
    return replace(
        stored.spec.policy,
        name=stored.name,
        namespace=stored.namespace,
        uid=stored.uid,
        created=stored.created,
    )


def progress_of(stored: Stored[Json, _DaemonSetStatus]) -> DaemonSetProgress:
    """How far a DaemonSet is."""
    status = stored.status or _DaemonSetStatus()
    return DaemonSetProgress(
        status.desired_number_scheduled,
        status.number_available,
        current=status.observed_generation >= stored.generation,
    )


async def apply_document(cluster: Cluster, kind: ObjectKind[Json, Any], document: Json) -> None:
    """Write a document, taking its fields from whoever else wrote them; made if missing."""
    meta = document["metadata"]
    owners = tuple(
        Owner(
            owner["apiVersion"],
            owner["kind"],
            owner["name"],
            owner["uid"],
            owner["controller"],
            owner["blockOwnerDeletion"],
        )
        for owner in meta["ownerReferences"]
    )
    wanted = Wanted(
        meta["name"],
        meta["namespace"],
        document[kind.content],
        labels=tuple(sorted(meta["labels"].items())),
        owners=owners,
    )
    await cluster.apply(kind, wanted, force=True)
