"""One request of the API server about a pod, or what configures devices: what it is answered.

    bytes ─► api/admission/review ─┬─► api/admission/pod_manifest ─► rules/admission ─► bytes
                                   └─► programs/claims/objects ─► bytes

The core of an admission webhook; what carries the bytes is not its business. Whatever cannot be
judged is admitted with a warning: a pod is refused by a rule, never because of kube-rdma.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.api.admission import pod_manifest
from kube_rdma.api.admission import review as admission_review
from kube_rdma.api.claims import claim_configs
from kube_rdma.api.text.document import Document, name, of_value
from kube_rdma.model.admission.facts import NOTHING_KNOWN, USUAL, AdmissionFacts, AdmissionSettings
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.finding import Finding
from kube_rdma.programs.claims.objects import judged
from kube_rdma.rules.admission.completions import completions
from kube_rdma.rules.admission.findings import findings
from kube_rdma.rules.admission.patch import operations
from kube_rdma.rules.admission.shares import of_pools, with_shares
from kube_rdma.views.findings import sentence


def validated(
    body: bytes, facts: AdmissionFacts = NOTHING_KNOWN, settings: AdmissionSettings = USUAL
) -> bytes:
    """Whether the object is admitted, and what its author is warned of.

    Raise Refused for a body that is no request.
    """
    request = admission_review.decode(body)
    if request.devices is not None:
        refusal = _refusal(of_value(request.devices), request.devices_kind)
        return admission_review.encode(request.uid, refusal=refusal)
    pod = _template(request)
    if not isinstance(pod, PodTemplate):
        return admission_review.encode(request.uid, warnings=pod)
    judged = findings(pod, facts, settings)
    refusals = [_sentence(one) for one in judged if one.is_error]
    warnings = [_sentence(one) for one in judged if not one.is_error]
    return admission_review.encode(
        request.uid, refusal=" ".join(refusals), warnings=[f"kube-rdma: {one}" for one in warnings]
    )


def completed(
    body: bytes, facts: AdmissionFacts = NOTHING_KNOWN, settings: AdmissionSettings = USUAL
) -> bytes:
    """What is added to the pod, where it asks for shares of kube-rdma; raise Refused likewise."""
    request = admission_review.decode(body)
    pod = _template(request)
    if not isinstance(pod, PodTemplate) or request.pod is None:
        return admission_review.encode(request.uid)
    patch = operations(request.pod, completions(pod, with_shares(settings, of_pools(facts))))
    return admission_review.encode(request.uid, patch=patch)


def _refusal(document: Document, kind: str) -> str:
    """Why parameters for kube-rdma's driver are not taken, with every fault; empty if they are."""
    try:
        for place in claim_configs.places(document, claim_configs.GROUP, kind):
            judged(document, place)
    except Refused as refused:
        return " ".join(str(refused).splitlines())
    return ""


def _template(request: admission_review.ReviewRequest) -> PodTemplate | tuple[str, ...]:
    """The pod; warnings where it has not the form of one, nothing where it is another object."""
    if request.pod is None:
        return ()
    try:
        return pod_manifest.load(of_value(request.pod), request.namespace)
    except Refused as refused:
        return (f"kube-rdma did not judge this pod: {refused.where}: {refused.problem}",)


def _sentence(finding: Finding) -> str:
    return sentence(replace(finding, subject=name(finding.path)))
