"""Makes copies of a pod, one for each node, and decides which nodes take part.

A copy is made out of one manifest, which has the tenant's own network, shares and image. It runs
nothing of its own: it waits until something is run in it. A node takes part that offers what the
pod asks for, as shares of the device plugin or by claims.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.claims.rules.cel.evaluate import Selectors
from kube_rdma.claims.rules.verdicts import judge, objections
from kube_rdma.model.claims import claim as model
from kube_rdma.model.claims.devices import ResourceSlice
from kube_rdma.model.kubernetes import quantity
from kube_rdma.model.repair import BURN_IN, KEY

# The name of every class as an extended resource, whatever it says itself (KEP-5004).
_OF_CLASS = "deviceclass.resource.kubernetes.io/"


class ClaimOffers(Frozen):
    """The reasons why nodes cannot meet claims; a reason is empty for a node that can."""

    resources: Mapping[str, Mapping[str, str]] = {}  # by extended resource of a class, and node
    templates: Mapping[str, str] = {}  # of the pod's own claims, by node
    unread: str = ""  # why it is not known
    remark: str = ""  # a sentence on DeviceTaintRules that were not read

    def lacks(self, resource: str, node: str) -> str:
        """Return why a node without shares cannot give the resource by claims; empty if it can."""
        plain = f"it offers no {resource}"
        if self.unread:
            return f"{plain}, and whether claims give it is not known: {self.unread}"
        why = self.resources.get(resource, {}).get(node)
        if why is None:
            return plain
        return f"{plain}, nor do claims: {why}" if why else ""


def claim_templates(manifest: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the claim templates of a pod; raise Refused if it names a claim itself.

    Copies cannot share a claim: it is allocated once, and its devices are those of one node.
    """
    entries = manifest.get("spec", {}).get("resourceClaims") or ()
    for entry in entries:
        if name := entry.get("resourceClaimName"):
            raise Refused(
                f"its copies cannot share the claim {name}, whose devices are those of one node",
                remedy="Write resourceClaimTemplateName, and make a template like the claim",
                where=where,
            )
    names = (entry.get("resourceClaimTemplateName") for entry in entries)
    return tuple(dict.fromkeys(name for name in names if name))


def amounts(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return how much of each extended resource the containers of a pod ask for."""
    totals: dict[str, int] = {}
    for container in manifest.get("spec", {}).get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name:
                totals[name] = totals.get(name, 0) + _whole(amount)
    return totals


def claims_for(
    resource: str, count: int, classes: Iterable[model.DeviceClass]
) -> tuple[model.ResourceClaim, ...]:
    """Return the claims that the scheduler could make for an extended resource, one per class."""
    named = (one.name for one in classes if resource in (one.resource, _OF_CLASS + one.name))
    requests = ((name, model.ClaimRequest("card", name, count=count)) for name in named)
    return tuple(
        model.ResourceClaim(model.ClaimName("", name, ""), (model.RequestChoices("card", (one,)),))
        for name, one in requests
    )


def unmet(
    claims: Sequence[model.ResourceClaim],
    node: model.ClaimNode,
    classes: tuple[model.DeviceClass, ...],
    slices: tuple[ResourceSlice, ...],
    selectors: Selectors,
) -> tuple[str, ...]:
    """Return for each claim why this node can never meet it, empty if it may."""
    near = tuple(one for one in slices if (one.spec.node_name or node.name) == node.name)
    return tuple(
        _why(model.ClaimWorld(claim, (node,), classes, near), node, selectors) for claim in claims
    )


def _why(world: model.ClaimWorld, node: model.ClaimNode, selectors: Selectors) -> str:
    verdict = judge(world, node, selectors)
    if verdict.outcome in (model.ClaimOutcome.MET, model.ClaimOutcome.NOT_JUDGED):
        return ""
    if verdict.outcome is model.ClaimOutcome.REFUSED:
        return verdict.why
    if not verdict.devices:
        return "no driver offers a device to it"
    return f"it lacks {verdict.lacking} of {verdict.wanted} devices{objections(verdict)}"


def _whole(amount: object) -> int:
    try:
        return int(quantity(str(amount)))
    except ValueError:
        return 1  # the API server refuses the copy, and says why


LABEL = "kube-rdma.io/verify"  # of a copy: which run it belongs to
CHECK_LABEL = "kube-rdma.io/bandwidth-check"  # and which BandwidthCheck, if any
# No signal without a handler ends PID 1, and a shell handles signals between two commands.
_WAIT = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]
_NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
# The scheduler's message (kubernetes v1.36.3, plugins/dynamicresources/dynamicresources.go), and
# what it means for a node that has such devices.
_UNALLOCATED = "cannot allocate all claims"
_HELD = "Cards that claims of other pods hold are not measured."
_NODE_FIELD, _OF_A_NODE = "metadata.name", "kubernetes.io/hostname"


def pod_for(manifest: Mapping[str, Any], node: str, run: str, where: str) -> dict[str, Any]:
    """Return a copy of a manifest for a node; raise Refused if it is no pod with a container.

    It tolerates the taints of a RepairPolicy: a node that is measured well may lose them. `where`
    is the place that the error names.
    """
    if manifest.get("kind") != "Pod" or not manifest.get("spec", {}).get("containers"):
        raise Refused(
            f"it is of kind {manifest.get('kind')!r}, and a Pod with a container is needed",
            remedy="Give the manifest of one pod, as your jobs have it",
            where=where,
        )
    made = copy.deepcopy(dict(manifest))
    metadata = made.setdefault("metadata", {})
    for name in ("name", "ownerReferences", "uid", "resourceVersion"):
        metadata.pop(name, None)
    metadata["name"] = f"kube-rdma-verify-{run}-{node}"
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: run}
    spec = made["spec"]
    spec.pop("nodeName", None)
    # The manifest may be of a pod that is bound to one node.
    (spec.get("nodeSelector") or {}).pop(_OF_A_NODE, None)
    spec["restartPolicy"] = "Never"
    spec["terminationGracePeriodSeconds"] = 1
    # The scheduler places it, by what is free; spec.nodeName would go past the scheduler.
    only = {"matchFields": [{"key": _NODE_FIELD, "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}
    spec["affinity"] = {"nodeAffinity": required}
    own = [{"key": key, "operator": "Exists"} for key in (KEY, BURN_IN)]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *own]
    first = spec["containers"][0]
    first["command"], first["args"] = list(_WAIT), []
    for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        first.pop(probe, None)
    spec["containers"] = [first]
    spec.pop("initContainers", None)
    return made


def owned(document: dict[str, Any], check: tuple[str, str, str, str]) -> None:
    """Make a BandwidthCheck (apiVersion, kind, name, uid) the owner of a copy."""
    version, kind, name, uid = check
    metadata = document["metadata"]
    metadata["labels"][CHECK_LABEL] = name
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    metadata["ownerReferences"] = [reference]


def fitting(
    nodes: Sequence[Mapping[str, Any]],
    names: Collection[str],
    resources: Collection[str],
    claims: ClaimOffers,
) -> Iterator[tuple[str, str]]:
    """Yield each node with the reason why it is left out, empty for those that take part.

    With `names` other nodes are not yielded. A node takes part that has the resources, as shares or
    by claims, and devices for the pod's claims. A cordoned one is left out.
    """
    for node in nodes:
        name, spec = node["metadata"]["name"], node.get("spec", {})
        if names and name not in names:
            continue
        missing = [why for each in unshared(node, resources) if (why := claims.lacks(each, name))]
        if spec.get("unschedulable"):
            yield name, "it is cordoned"
        elif missing:
            yield name, missing[0]
        else:
            yield name, claims.templates.get(name, "")


def unshared(node: Mapping[str, Any], resources: Collection[str]) -> list[str]:
    """Return the extended resources of which the node's allocatable has none."""
    allocatable = node.get("status", {}).get("allocatable", {})
    return [each for each in sorted(resources) if allocatable.get(each, "0") == "0"]


def away(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return by node why no copy can start there: its condition Ready is not true."""
    conditions = {
        node["metadata"]["name"]: entry
        for node in nodes
        for entry in node.get("status", {}).get("conditions") or ()
        if entry.get("type") == "Ready" and entry.get("status") != "True"
    }
    return {
        name: f"the node is not Ready: {entry.get('message') or entry.get('reason') or 'no reason'}"
        for name, entry in conditions.items()
    }


def without_image(document: Mapping[str, Any]) -> bool:
    """Decide whether a pod waits for an image that cannot be pulled (kubelet images/types.go)."""
    states = document.get("status", {}).get("containerStatuses") or ()
    reasons = {(each.get("state", {}).get("waiting") or {}).get("reason") for each in states}
    return bool(reasons & _NO_IMAGE)


def not_started(document: Mapping[str, Any]) -> str:
    """Return why a pod is not Ready, as scheduler, kubelet or runtime say it; empty if it is."""
    status = document.get("status", {})
    conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    if status.get("phase") == "Failed":
        return str(status.get("message") or status.get("reason") or "it failed")
    for container in status.get("containerStatuses") or ():
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason', 'Waiting')}: {waiting['message']}"
    why = str(conditions.get("PodScheduled", {}).get("message") or "it does not run yet")
    return f"{why} {_HELD}" if _UNALLOCATED in why else why
