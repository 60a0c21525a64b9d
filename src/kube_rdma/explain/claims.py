"""Collects what decides about a ResourceClaim: it, slices, classes, nodes, and what others hold.

cli/explain calls it, claims/rules/verdicts says what it comes to. It changes nothing. A
part that cannot be read leaves no verdict, so each one raises: half of the devices are a lie.
"""

from __future__ import annotations

from shlex import quote

from kube_base.errors import Refused
from kube_client.kinds import EVERYWHERE, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.claim_objects import (
    DEVICE_CLASS,
    WHOLE_CLAIM,
    WHOLE_SLICE,
    claim_of,
    device_class,
    listed_slice,
)
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.doctor.pod import OpenCluster
from kube_rdma.model.claims.claim import ClaimNode
from kube_rdma.model.claims.world import ClaimWorld


async def read_claim(
    namespace: str, name: str, node: str | None, opener: OpenCluster
) -> ClaimWorld:
    """The claim with all that decides about it, of all nodes or of one; raise Refused."""
    async with opener() as cluster:
        stored = await cluster.get(WHOLE_CLAIM, name, namespace)
        if stored is None:
            raise Refused(
                f"there is no claim {namespace}/{name}",
                remedy=f"Name one of kubectl -n {quote(namespace)} get resourceclaims",
            )
        claim = claim_of(stored)
        if claim.held is not None:
            return ClaimWorld(claim)
        slices = [listed_slice(one) for one in await cluster.list(WHOLE_SLICE)]
        classes = [device_class(one) for one in await cluster.list(DEVICE_CLASS)]
        others = [claim_of(one) for one in await cluster.list(WHOLE_CLAIM)]
        return ClaimWorld(
            claim=claim,
            nodes=await _nodes(cluster, node),
            classes=tuple(classes),
            slices=tuple(slices),
            others=tuple(one for one in others if one.held is not None),
        )


async def _nodes(cluster: Cluster, name: str | None) -> tuple[ClaimNode, ...]:
    where = Where(name=name) if name else EVERYWHERE
    nodes = await cluster.list(NODE, where)
    if name and not nodes:
        raise Refused(
            f"there is no node {name}", remedy="Name one of kubectl get nodes", where="--node"
        )
    return tuple(ClaimNode(one.name, dict(one.labels)) for one in nodes)
