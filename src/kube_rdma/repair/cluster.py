"""Reads RepairPolicies and the marks of nodes; writes taints, statuses and pauses."""

from __future__ import annotations

from functools import partial
from typing import Any

from kube_client.kinds import ObjectCodec, Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import read_or_refusal
from kube_rdma.adapters.cluster.kinds.node import NodeObjectSpec
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.model import repair as model
from kube_rdma.model.fabric import FAULTS
from kube_rdma.repair.policy import load_policy

_SPEC: ObjectCodec[bytes] = ObjectCodec(bytes)  # undecoded: a faulty spec gets a status too
REPAIR_POLICY = own_kind(
    "RepairPolicy", "repairpolicies", _SPEC, ObjectCodec.of(model.RepairPolicyStatus)
)


def seen_repair(stored: Stored[bytes, model.RepairPolicyStatus]) -> model.SeenRepair:
    """Decode a stored policy; one that is refused gets the reason instead of a policy."""
    paused = stored.annotation(model.PAUSED) is not None
    read = partial(load_policy, stored.spec, stored.name, paused=paused)
    policy, refusal = read_or_refusal(REPAIR_POLICY.kind, stored.name, read)
    place = (stored.name, stored.uid, stored.version, stored.generation)
    return model.SeenRepair(*place, policy, refusal, stored.status)


def repair_node(stored: Stored[NodeObjectSpec, Any]) -> model.RepairNode:
    """Return what repair reads of a Node, without the status, which changes all the time."""
    return model.RepairNode(
        stored.name,
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
