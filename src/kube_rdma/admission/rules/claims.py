"""Rules about claims: entries of a pod that the API server refuses, selectors that match nothing.

The API server takes a Deployment with such a template and refuses each of its pods, so that only
an Event says why there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kube_base.frozen import Frozen
from kube_rdma.admission.rules import near_misses
from kube_rdma.admission.rules.shares import PodReview
from kube_rdma.lib.phrases import listed
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.finding import Finding, Severity

_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
_DOMAIN = re.compile(r"""device\.(?:attributes|capacity)\[\s*["']([^"']+)["']\s*\]""")
_STANDARD = ("k8s.io", "kubernetes.io")  # of attributes that drivers have in common (KEP-4381)
_OTHERS = ("dra.net", "gpu.nvidia.com", "gpu.intel.com", "gpu.amd.com")  # known drivers


def pod_claims(review: PodReview) -> Iterator[Finding]:
    """Refuse entries of resourceClaims that have not one name, and names that no entry has.

    See kubernetes@v1.34 pkg/apis/core/validation, ValidatePodResourceClaims and
    validateContainerResourceClaims; `source` went with 1.31 (staging/src/k8s.io/api/core/v1).
    """
    for one in review.pod.claims:
        if len(one.named) == 1 and not one.old:
            continue
        problem = f"claim {one.name} names {len(one.named)} of a claim and a template"
        if one.old:
            problem = (
                f"claim {one.name} has its name below source, which Kubernetes dropped in 1.31"
            )
        field = one.named[0] if one.named else "resourceClaimName or resourceClaimTemplateName"
        remedy = f"Write {field} beside name, and nothing else"
        yield Finding.of("claim", one.path, f"{problem}: the pod is refused", remedy)
    known = [one.name for one in review.pod.claims]
    for container in review.pod.containers if review.pod.whole else ():
        for number, name in enumerate(container.claims):
            if name not in known:
                meant = near_misses.near(name, known)
                guess = f"Did you mean {meant}? " if meant else ""
                yield Finding.of(
                    "claim",
                    (*container.path, "resources", "claims", number, "name"),
                    f"container {container.name} names claim {name}, which is not in the pod's "
                    "resourceClaims: the pod is refused",
                    f"{guess}The list has {listed(known) or 'none'}",
                )


class ClaimSelector(Frozen):
    """A CEL expression of a request or class, its place, and the class of the request."""

    expression: str
    where: str
    device_class: str = ""  # empty in a class itself


def foreign_selectors(
    selectors: Iterable[ClaimSelector], classes: Mapping[str, str]
) -> Iterator[Finding]:
    """Warn of selectors that read attributes of another driver than that of the class.

    Such a device has no attribute of that domain, so the expression fails with "no such key"
    (k8s.io/dynamic-resource-allocation cel/compile.go). A driver may have several domains, so only
    those of other known drivers are held against it; kube-rdma's devices have their own alone.
    """
    of_classes = {name: {*_DRIVER.findall(text)} for name, text in classes.items()}
    known = set().union(_OTHERS, *of_classes.values())
    for one in selectors:
        drivers = of_classes.get(one.device_class, ())
        if len(drivers) != 1:
            continue
        (driver,) = drivers
        read = [*_DRIVER.findall(one.expression), *_DOMAIN.findall(one.expression)]
        for domain in dict.fromkeys(read):
            if domain == driver or domain.endswith((f".{driver}", *_STANDARD)):
                continue
            if driver == DRIVER or domain in known:
                yield Finding(
                    one.where,
                    f"the selector reads what devices of {domain} have, and class "
                    f"{one.device_class} has devices of {driver}, so none matches",
                    remedy=f'Read device.attributes["{driver}"], or name a class of {domain}',
                    severity=Severity.WARNING,
                )
