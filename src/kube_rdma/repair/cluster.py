"""Reads RepairPolicies and marks of nodes; writes statuses, checks, receipts, rules of cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from kube_base.frozen import replace
from kube_client import wire
from kube_client.calls import make
from kube_client.kinds import ObjectCodec, Owner, Stored, Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import read_or_refusal
from kube_rdma.adapters.cluster.events import About
from kube_rdma.adapters.cluster.kinds.node import NodeObjectSpec
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT, REPAIR_POLICY
from kube_rdma.adapters.cluster.kinds.resource_api import TAINT_RULE, DeviceNames
from kube_rdma.model import repair as model
from kube_rdma.model.claims.devices import DRIVER, TaintRuleSpec
from kube_rdma.model.fabric import FAULTS
from kube_rdma.model.reports import BurnInReceipt
from kube_rdma.model.verify import BandwidthCheckStatus
from kube_rdma.repair.policy import load_policy
from kube_rdma.verify.cluster import BANDWIDTH_CHECK


def seen_repair(stored: Stored[bytes, model.RepairPolicyStatus]) -> model.SeenRepair:
    """Decode a stored policy; one that is refused gets the reason instead of a policy."""
    paused = stored.annotation(model.PAUSED) is not None
    read = partial(load_policy, stored.spec, stored.name, paused=paused)
    policy, refusal = read_or_refusal(REPAIR_POLICY.kind, stored.name, read)
    policy = policy and replace(policy, uid=stored.uid)
    place = (stored.name, stored.uid, stored.version, stored.generation)
    return model.SeenRepair(*place, policy, refusal, stored.status)


def about(seen: model.SeenRepair) -> About:
    """Return the reference by which Events name a policy."""
    kind = REPAIR_POLICY
    return About(kind.kind, seen.name, uid=seen.uid, api_version=kind.api_version)


def repair_node(stored: Stored[NodeObjectSpec, Any]) -> model.RepairNode:
    """Return what repair reads of a Node, without the status, which changes all the time."""
    taints = {taint.key: taint for taint in stored.spec.taints}
    return model.RepairNode(
        stored.name,
        dict(stored.labels),
        taints.get(model.KEY),
        stored.annotation(model.IGNORED) is not None,
        stored.annotation(FAULTS) or "",
        model.BURN_IN in taints,
        stored.annotation(model.BURN_IN) or "",
        stored.spec.unschedulable,
        stored.created,
    )


def named_devices(stored: Stored[DeviceNames, None]) -> tuple[str, tuple[str, ...]] | None:
    """Return the node of a slice and its devices; None for a slice that is not kube-rdma's."""
    spec = stored.spec
    if not spec.node_name or (spec.driver, spec.pool.name) != (DRIVER, spec.node_name):
        return None
    return spec.node_name, tuple(device.name for device in spec.devices)


def card_rule(stored: Stored[TaintRuleSpec, None]) -> model.CardRule | None:
    """Return the rule of a card; None for a DeviceTaintRule without a RepairPolicy as its owner."""
    owners = (one.uid for one in stored.owners if one.kind == REPAIR_POLICY.kind)
    owner, policy = next(owners, None), stored.label(model.KEY)
    if not owner or not policy or stored.deleting:
        return None
    # The API server adds the time.
    spec = replace(stored.spec, taint=replace(stored.spec.taint, time_added=""))
    card = stored.annotation(model.CARD) or ""
    return model.CardRule(stored.name, policy, owner, card, spec)


async def create_rule(
    cluster: Cluster, rule: model.CardRule, why: str
) -> Stored[TaintRuleSpec, None]:
    """Create the rule of a card; raise Conflict if there is a rule of this name, whoever's."""
    owner = Owner(REPAIR_POLICY.api_version, REPAIR_POLICY.kind, rule.policy, rule.owner)
    notes = ((model.KEY, why), (model.CARD, rule.card))
    labels = ((model.KEY, rule.policy),)
    wanted = Wanted(rule.name, "", rule.spec, labels, annotations=notes, owners=(owner,))
    return await cluster.create(TAINT_RULE, wanted)


async def delete_rule(cluster: Cluster, rule: model.CardRule) -> bool:
    """Delete the rule of a card, if it is as it was seen; return whether it was deleted.

    Kubernetes writes its status meanwhile, which does not count.
    """
    stored = await cluster.get(TAINT_RULE, rule.name)
    if stored is None or card_rule(stored) != rule:
        return False
    return await cluster.delete(TAINT_RULE, stored, unchanged=False)


async def write_status(
    cluster: Cluster, seen: model.SeenRepair, status: model.RepairPolicyStatus
) -> None:
    """Write the status of the policy that was read; raise Conflict if it has changed since."""
    await cluster.apply_status(
        REPAIR_POLICY, seen.name, "", status, force=True, version=seen.version
    )


# BandwidthChecks that measure new nodes, and what is kept of them.

StoredCheck: TypeAlias = Stored[dict[str, Any], BandwidthCheckStatus]
CHECK = BANDWIDTH_CHECK.read_as(ObjectCodec.of(dict[str, Any]), BANDWIDTH_CHECK.status)
_PARTNERS = "kube-rdma.io/burn-in-partners"  # an annotation: which nodes of a check were not new
_MANAGER = "kube-rdma-burn-in"  # of the field status.receipt; the agent has the others
_OF_ROUNDS = {"pairs": "all", "everySeconds": 60, "againstLast": False}


def check_name(policy: str) -> str:
    """Return the name of the BandwidthCheck that measures new nodes for a policy."""
    return f"burn-in-{policy}"


def spec_of_rounds(stored: StoredCheck | None) -> Mapping[str, Any]:
    """Return the spec of a policy's checks but for its nodes; {} without a template to copy."""
    spec = stored.spec if stored else {}
    kept = {key: value for key, value in spec.items() if key != "nodes"}
    return kept | _OF_ROUNDS if kept.get("template") else {}


def burn_in_round(stored: StoredCheck, policy: str) -> model.BurnInRound | None:
    """Return what a check measures, and how far it is; None if it is not one of this policy."""
    if stored.label(model.BURN_IN) != policy:
        return None
    spec = {key: value for key, value in stored.spec.items() if key != "nodes"}
    nodes, partners = stored.spec.get("nodes", ()), stored.annotation(_PARTNERS) or ""
    place = (
        stored.generation,
        stored.created,
        tuple(nodes),
        frozenset(filter(None, partners.split(","))),
    )
    return model.BurnInRound(*place, spec, stored.status)


async def begin_round(
    cluster: Cluster,
    namespace: str,
    seen: model.SeenRepair,
    spec: Mapping[str, Any],
    partners: Sequence[str],
) -> None:
    """Create a check, which goes with the policy; raise Conflict if one is there."""
    owner = Owner(REPAIR_POLICY.api_version, REPAIR_POLICY.kind, seen.name, seen.uid)
    wanted = Wanted(
        check_name(seen.name),
        namespace,
        dict(spec),
        labels=((model.BURN_IN, seen.name),),
        annotations=((_PARTNERS, ",".join(partners)),),
        owners=(owner,),
    )
    await cluster.create(CHECK, wanted)


async def write_receipt(cluster: Cluster, node: str, receipt: BurnInReceipt) -> None:
    """Write a receipt into the report of a node, and no other field; raise Conflict without it."""
    status = msgspec.json.encode({"receipt": receipt})
    request = replace(
        make("patch", NODE_REPORT, node, ""),
        subresource="status",
        query=(("fieldManager", _MANAGER), ("force", "true")),
        body=wire.document(NODE_REPORT, Wanted(node), status=status),
        content_type=wire.APPLY,
    )
    await cluster.write(request)


async def pause(cluster: Cluster, name: str, why: str | None) -> None:
    """Pause a policy with a reason, or let it go on without; raise Conflict if it is gone."""
    await cluster.patch(REPAIR_POLICY, name, annotations=((model.PAUSED, why),))


async def policies(cluster: Cluster) -> tuple[model.SeenRepair, ...]:
    """Return the RepairPolicies that can be read."""
    return tuple(map(seen_repair, (await cluster.see(REPAIR_POLICY)).objects))
