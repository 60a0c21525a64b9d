"""Rules about claims: entries of a pod that the API server refuses, selectors without a match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kube_base.frozen import Frozen
from kube_rdma.admission.rules import near_misses
from kube_rdma.admission.rules.shares import PodReview
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.finding import Finding, Severity

_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")
_DOMAIN = re.compile(r"""device\.(?:attributes|capacity)\[\s*["']([^"']+)["']\s*\]""")
_STANDARD = ("k8s.io", "kubernetes.io")  # of attributes that drivers have in common (KEP-4381)
_REFUSED = "the pod is refused"
_DRANET = "dra.net"
_OTHERS = (_DRANET, "gpu.nvidia.com", "gpu.intel.com", "gpu.amd.com")  # known drivers


def pod_claims(review: PodReview) -> Iterator[Finding]:
    """Refuse a pod's resourceClaims without exactly one claim name, and uses of missing entries.

    See kubernetes@v1.34 pkg/apis/core/validation, ValidatePodResourceClaims and
    validateContainerResourceClaims; `source` went with 1.31 (staging/src/k8s.io/api/core/v1).
    """
    for one in review.pod.claims:
        if len(one.named) == 1 and not one.old:
            continue
        problem = f"names {len(one.named)} of a claim and a template"
        if one.old:
            problem = "has its name below source, which Kubernetes dropped in 1.31"
        field = one.named[0] if one.named else "resourceClaimName or resourceClaimTemplateName"
        remedy = f"Write {field} beside name, and nothing else"
        yield Finding.of("claim", one.path, f"claim {one.name} {problem}: {_REFUSED}", remedy)
    known = [one.name for one in review.pod.claims]
    for container in review.pod.containers if review.pod.whole else ():
        for number, name in enumerate(container.claims):
            if name not in known:
                path = (*container.path, "resources", "claims", number)
                why = (
                    f"{container.name} names claim {name}, which is not in the pod's resourceClaims"
                )
                meant = near_misses.near(name, known)
                remedy = f"Did you mean {meant}?" if meant else "Add it to the list"
                yield Finding.of("claim", path, f"container {why}: {_REFUSED}", remedy)


class ClaimSelector(Frozen):
    """A CEL selector of a claim or class, with its place and the device class."""

    expression: str
    where: str
    device_class: str = ""  # in a class itself, its own name


def foreign_selectors(
    selectors: Iterable[ClaimSelector], classes: Mapping[str, str]
) -> Iterator[Finding]:
    """Warn of CEL selectors that read attributes of another driver than their class selects.

    Reading an attribute of a domain that a device lacks fails with "no such key"
    (k8s.io/dynamic-resource-allocation cel/compile.go). A driver may have several domains, so only
    those of other known drivers count against it. Against kube-rdma's driver every domain counts,
    except its own and those of Kubernetes.
    """
    of_classes = {name: {*_DRIVER.findall(text)} for name, text in classes.items()}
    known = set().union(_OTHERS, *of_classes.values())
    for one in selectors:
        drivers = of_classes.get(one.device_class, set())
        driver = next(iter(drivers)) if len(drivers) == 1 else ""
        asked, read = _DRIVER.findall(one.expression), _DOMAIN.findall(one.expression)
        for domain in dict.fromkeys([*asked, *read]) if driver else ():
            own = domain == driver or domain.endswith((f".{driver}", *_STANDARD))
            if not own and (driver == DRIVER or domain in known):
                problem = (
                    f"the selector reads what devices of {domain} have, and class "
                    f"{one.device_class} has devices of {driver}, so none matches"
                )
                if driver == DRIVER and domain == _DRANET and domain not in asked:
                    problem += " without --dranet-attributes of the agents"
                remedy = f'Read device.attributes["{driver}"], or name a class of {domain}'
                yield Finding(one.where, problem, "", remedy, Severity.WARNING)
