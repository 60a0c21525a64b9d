"""NodePolicies as the controller sees them, with their status, which it writes."""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_client.kinds import ObjectCodec, Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.model.pools.node_policy import ClusterNodePolicy
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.reports.node_policy_status import NodePolicyStatus

_STATUS = ObjectCodec.of(NodePolicyStatus)
NODE_POLICY_STATUS = NODE_POLICY.read_as(NODE_POLICY.spec, _STATUS)


class SeenPolicy(Frozen):
    """A policy, or why it is refused, with the status that it has."""

    name: str
    version: str
    generation: int
    policy: ClusterNodePolicy | None
    refusal: str
    status: NodePolicyStatus | None


def seen_policy(stored: Stored[bytes, NodePolicyStatus]) -> SeenPolicy:
    """What an object says."""
    policy, refusal = None, ""
    try:
        policy = policy_of(stored)
    except Refused as error:
        refusal = str(error)
    except Exception as error:  # noqa: BLE001  of one object
        refusal = object_failed(NODE_POLICY.kind, stored.name, error)
    version, generation = stored.version, stored.generation
    return SeenPolicy(stored.name, version, generation, policy, refusal, stored.status)


async def write_status(cluster: Cluster, seen: SeenPolicy, status: NodePolicyStatus) -> None:
    """Write the status of the policy that was seen; Conflict when it is gone or another by now."""
    await cluster.apply_status(
        NODE_POLICY_STATUS, seen.name, "", status, force=True, version=seen.version
    )
