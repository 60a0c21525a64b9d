"""Which nodes give by claims what a copied pod asks for, where the device plugin gives nothing.

    pod ─► its claim templates and extended resources ─► claims ─┐
    slices, classes ─────────────────────────────────────────────┴─► by node why nothing is given

verify/claim_offers reads all of it, verify/rules/copies.fitting asks. The search is the
scheduler's (claims/rules/verdicts) with nothing held: a card that is in use now may be free soon,
and a copy waits for it as for a share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.claims.rules.cel.evaluate import Selectors
from kube_rdma.claims.rules.verdicts import judge, objections
from kube_rdma.model.claims.claim import Claim, ClaimNode, ClaimRequest, DeviceClass, RequestChoices
from kube_rdma.model.claims.listed import ListedSlice
from kube_rdma.model.claims.verdict import ClaimOutcome
from kube_rdma.model.claims.world import ClaimWorld
from kube_rdma.model.quantity import quantity

# The name of every class as an extended resource, whatever it says itself (KEP-5004).
_OF_CLASS = "deviceclass.resource.kubernetes.io/"


class ClaimOffers(Frozen):
    """By node why claims give nothing there, empty where they give it.

    `resources` has only those extended resources that a DeviceClass has, `templates` what the pod's
    own claims come to. `unread`: why it is not known.
    """

    resources: Mapping[str, Mapping[str, str]] = {}
    templates: Mapping[str, str] = {}
    unread: str = ""

    def lacks(self, resource: str, node: str) -> str:
        """Why a node whose plugin has no share gives none by claims either; empty if it does."""
        plain = f"it offers no {resource}"
        if self.unread:
            return f"{plain}, and whether claims give it is not known: {self.unread}"
        why = self.resources.get(resource, {}).get(node)
        if why is None:
            return plain
        return f"{plain}, nor do claims: {why}" if why else ""


def claim_templates(manifest: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The templates of a pod's claims; Refused for a claim by its name, which copies cannot share.

    A claim is allocated once: its devices are those of one node.
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
    """How much of each extended resource the containers of a pod ask for."""
    totals: dict[str, int] = {}
    for container in manifest.get("spec", {}).get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name:
                totals[name] = totals.get(name, 0) + _whole(amount)
    return totals


def claims_for(resource: str, count: int, classes: Iterable[DeviceClass]) -> tuple[Claim, ...]:
    """The claim that the scheduler makes for an extended resource, one for each class of it."""
    named = (one.name for one in classes if resource in (one.resource, _OF_CLASS + one.name))
    requests = ((name, ClaimRequest("card", name, count=count)) for name in named)
    return tuple(Claim("", name, (RequestChoices("card", (one,)),)) for name, one in requests)


def unmet(
    claims: Sequence[Claim],
    node: ClaimNode,
    classes: tuple[DeviceClass, ...],
    slices: tuple[ListedSlice, ...],
    selectors: Selectors,
) -> tuple[str, ...]:
    """Of each claim why this node never meets it, empty for one that it may meet."""
    near = tuple(one for one in slices if one.nodes.node in ("", node.name))
    return tuple(
        _why(ClaimWorld(claim, (node,), classes, near), node, selectors) for claim in claims
    )


def _why(world: ClaimWorld, node: ClaimNode, selectors: Selectors) -> str:
    verdict = judge(world, node, selectors)
    if verdict.outcome in (ClaimOutcome.MET, ClaimOutcome.NOT_JUDGED):
        return ""
    if verdict.outcome is ClaimOutcome.REFUSED:
        return verdict.why
    if not verdict.devices:
        return "no driver offers a device to it"
    return f"it lacks {verdict.lacking} of {verdict.wanted} devices{objections(verdict)}"


def _whole(amount: object) -> int:
    try:
        return int(quantity(str(amount)))
    except ValueError:
        return 1  # the API server refuses the copy, and says why
