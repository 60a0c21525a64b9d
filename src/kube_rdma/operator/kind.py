"""NicClusterPolicies, in the fields of NVIDIA's operator: a spec that is refused says why.

Its release 0.1.0 defined them in namespaces, all later ones (0.2.0 to 26.7) for the whole cluster.
A definition's scope never changes, so an operator is told which it has.
"""

from __future__ import annotations

from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.model.operator.cluster_policy import ClusterPolicy
from kube_rdma.operator.documents import nic_cluster_policy
from kube_rdma.operator.documents.nic_cluster_policy_status import NicClusterPolicyStatus


class PolicyText(Frozen):
    """The spec of a policy as it was written: the policy, or why it is refused."""

    policy: ClusterPolicy | None
    refusal: Refused | None = None


def _text(data: bytes) -> PolicyText:
    try:
        return PolicyText(nic_cluster_policy.load(data, ""))
    except Refused as refusal:
        return PolicyText(None, refusal)
    except Exception as error:  # noqa: BLE001  of one object
        why = object_failed("NicClusterPolicy", "", error)
        return PolicyText(None, Refused(why, remedy="Change its spec"))


def _kind(*, namespaced: bool) -> ObjectKind[PolicyText, NicClusterPolicyStatus]:
    return ObjectKind(
        "mellanox.com",
        "v1alpha1",
        "NicClusterPolicy",
        "nicclusterpolicies",
        namespaced=namespaced,
        spec=ObjectCodec(_text),
        status=ObjectCodec.of(NicClusterPolicyStatus),
    )


NIC_CLUSTER_POLICY = _kind(namespaced=True)
NIC_CLUSTER_POLICY_OF_CLUSTER = _kind(namespaced=False)
# For who asks how policies are: a spec that is garbled is named in the status.
NIC_CLUSTER_POLICY_STATUS = NIC_CLUSTER_POLICY.read_as(NOTHING, NIC_CLUSTER_POLICY.status)


def policy_of(stored: Stored[PolicyText, Any], namespace: str = "") -> ClusterPolicy | None:
    """The policy of an object, None when it is refused.

    `namespace` is where the objects of one go that belongs to the cluster: the operator's.
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
