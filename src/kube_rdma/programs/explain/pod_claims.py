"""Reads the claims of a pod for `kube-rdma explain`: what they were given, with which parameters.

Part of programs/explain/evidence; rules/explain/claims says what it comes to. One request for the
pod, and one for each of its claims.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.claims import allocated, claims_of_pod
from kube_rdma.model.claims.parameters import ClaimParameters
from kube_rdma.model.claims.prepared import ClaimName
from kube_rdma.model.explain import ClaimsEvidence
from kube_rdma.model.finding import Finding, Stage
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.programs.claims.parameters import parameters_by_request


async def claims_evidence(cluster: Cluster, pod: PodName) -> ClaimsEvidence | None:
    """What the pod has by claims, None for one without any; raise KubeError."""
    claims = await claims_of_pod(cluster, pod)
    if claims is None or not claims.claims:
        return None
    names = dict.fromkeys(name for _, name in claims.claims)
    read = {name: await allocated(cluster, ClaimName(pod.namespace, name, "")) for name in names}
    made: dict[str, dict[str, ClaimParameters]] = {}
    misread: dict[str, tuple[Finding, ...]] = {}
    for claim in filter(None, read.values()):
        try:
            made[claim.claim.uid] = parameters_by_request(claim)
        except Refused as error:
            misread[claim.claim.uid] = Finding.of_refused(error, Stage.AGENT)
    return ClaimsEvidence(
        claims,
        tuple(filter(None, read.values())),
        made,
        misread,
        tuple(name for name, claim in read.items() if claim is None),
    )
