"""Which claims a pod has, and which of its containers use them.

claims/cluster reads it from the Pod, attach/rules/claim_holders joins it with what is prepared.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class ClaimUse(Frozen):
    """A container that names a claim of its pod; without a `request` it means all of them."""

    container: str
    claim: str  # as the pod calls it (spec.resourceClaims)
    request: str = ""


class PodClaims(Frozen):
    """A pod with its claims.

    `claims` are pairs: what the pod calls a claim, and the name of the ResourceClaim; a claim that
    is not made yet is left out. That of extended resources has the same word for both. `templates`
    are the pod's words for claims that were made for it.
    """

    namespace: str
    name: str
    uid: str
    claims: tuple[tuple[str, str], ...] = ()
    uses: tuple[ClaimUse, ...] = ()
    templates: tuple[str, ...] = ()
