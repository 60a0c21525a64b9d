"""Reads RepairPolicies and the marks of nodes; writes taints, statuses and pauses."""

from __future__ import annotations

from typing import Any

from kube_base.errors import Refused
from kube_client.kinds import ObjectCodec, Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.cluster.kinds.node import NodeObjectSpec
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.model import repair as model
from kube_rdma.model.fabric import FAULTS
from kube_rdma.repair.policy import load_policy

_SPEC: ObjectCodec[bytes] = ObjectCodec(bytes)  # undecoded: a faulty spec gets a status too
REPAIR_POLICY = own_kind(
    "RepairPolicy", "repairpolicies", _SPEC, ObjectCodec.of(model.RepairPolicyStatus)
)
StoredPolicy = Stored[bytes, model.RepairPolicyStatus]


def seen_repair(stored: StoredPolicy) -> model.SeenRepair:
    """Decode a stored policy; one that is refused gets the reason instead of a policy."""
    policy, refusal = None, ""
    try:
        paused = stored.annotation(model.PAUSED) is not None
        policy = load_policy(stored.spec, stored.name, paused=paused)
    except Refused as error:
        refusal = str(error)
    except Exception as error:  # noqa: BLE001  of one object
        refusal = object_failed(REPAIR_POLICY.kind, stored.name, error)
    place = (stored.name, stored.uid, stored.version, stored.generation)
    return model.SeenRepair(*place, policy, refusal, stored.status)


def repair_node(stored: Stored[NodeObjectSpec, Any]) -> model.RepairNode:
    """Return what repair reads of a Node, without the status, which changes all the time."""
    return model.RepairNode(
        stored.name,
        stored.uid,
        dict(stored.labels),
        next((taint for taint in stored.spec.taints if taint.key == model.KEY), None),
        stored.annotation(model.IGNORED) is not None,
        stored.annotation(FAULTS) or "",
    )


async def write_status(
    cluster: Cluster, seen: model.SeenRepair, status: model.RepairPolicyStatus
) -> None:
    """Write the status of the policy that was read; raise Conflict if it has changed since."""
    await cluster.apply_status(
        REPAIR_POLICY, seen.name, "", status, force=True, version=seen.version
    )


async def pause(cluster: Cluster, name: str, why: str | None) -> None:
    """Pause a policy with a reason, or let it go on without; raise Conflict if it is gone."""
    await cluster.patch(REPAIR_POLICY, name, annotations=((model.PAUSED, why),))


async def policies(cluster: Cluster) -> tuple[model.SeenRepair, ...]:
    """Return the RepairPolicies that can be read."""
    return tuple(map(seen_repair, (await cluster.see(REPAIR_POLICY)).objects))
