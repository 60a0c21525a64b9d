"""NicClusterPolicies, in the fields of NVIDIA's operator: a spec that is refused says why."""

from __future__ import annotations

from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.api.operator import nic_cluster_policy
from kube_rdma.api.operator.nic_cluster_policy_status import NicClusterPolicyStatus
from kube_rdma.model.operator.cluster_policy import ClusterPolicy


class PolicyText(Frozen):
    """The spec of a policy as it was written: the policy, or why it is refused."""

    policy: ClusterPolicy | None
    refusal: Refused | None = None


def _text(data: bytes) -> PolicyText:
    try:
        return PolicyText(nic_cluster_policy.load(data, ""))
    except Refused as refusal:
        return PolicyText(None, refusal)


NIC_CLUSTER_POLICY: ObjectKind[PolicyText, NicClusterPolicyStatus] = ObjectKind(
    "mellanox.com",
    "v1alpha1",
    "NicClusterPolicy",
    "nicclusterpolicies",
    namespaced=True,
    spec=ObjectCodec(_text),
    status=ObjectCodec.of(NicClusterPolicyStatus),
)
# For who asks how policies are: a spec that is garbled is named in the status.
NIC_CLUSTER_POLICY_STATUS = NIC_CLUSTER_POLICY.read_as(NOTHING, NIC_CLUSTER_POLICY.status)


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
