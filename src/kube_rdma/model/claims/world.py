"""What decides about a claim, read at one time: the claim and all that the scheduler looks at.

explain/claims collects it, claims/rules/verdicts judges it.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.claims.claim import Claim, ClaimNode, DeviceClass
from kube_rdma.model.claims.listed import ListedSlice


class ClaimWorld(Frozen):
    """`others` are claims that hold devices; `slices` are in the order of their list."""

    claim: Claim
    nodes: tuple[ClaimNode, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ListedSlice, ...] = ()
    others: tuple[Claim, ...] = ()
