"""What a version of Kubernetes does not have of an installation, so that it is left out.

Helm asks the cluster for its version, `kube-rdma render` takes the value kubernetesVersion. What a
version has are values below `platform`, which objects ask like any other
(kube_rdma_tools/chart_templates writes the same for Helm).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kube_rdma.model.install.blueprint import Json, Values

VALUE = "kubernetesVersion"
# The minor version that has each: kubernetes.io "Feature Gates (removed)", and for mutating
# policies the release notes of 1.36. kubectl and Helm refuse a definition with rules before.
SINCE: Mapping[str, int] = {
    "definitionRules": 25,
    "validatingPolicies": 30,
    "mutatingPolicies": 36,
    "appArmorField": 30,
}
OLDEST = 22  # minor version that has all other kinds
_NEWEST = 99
_MINOR = re.compile(r"v?1\.(\d+)")


def with_version(values: Values) -> Json:
    """All values of an installation, with what its version of Kubernetes has below `platform`."""
    minor = _minor(values[VALUE])
    served = {name: minor >= since for name, since in SINCE.items()}
    return {**values, "platform": {**values["platform"], **served}}


def lacking(values: Values) -> tuple[str, ...]:
    """What the values ask for that their version does not have, a sentence each."""
    platform, admission = values["platform"], values["admission"]
    pods = admission["pods"]
    wishes = (
        (
            "ValidatingAdmissionPolicy",
            "validatingPolicies",
            admission["install"] or pods["check"],
            "left out",
        ),
        (
            "MutatingAdmissionPolicy",
            "mutatingPolicies",
            pods["complete"],
            "left out, and no pod is completed",
        ),
    )
    policies = tuple(
        f"Kubernetes {values[VALUE]} has no {kind}, which comes with 1.{SINCE[name]}: {effect}."
        for kind, name, wanted, effect in wishes
        if wanted and not platform[name]
    )
    if _minor(values[VALUE]) < OLDEST:
        policies = (
            f"Kubernetes {values[VALUE]} is older than 1.{OLDEST}, which kube-rdma needs.",
            *policies,
        )
    if not values["crds"]["install"] or platform["definitionRules"]:
        return policies
    rules = (
        f"Kubernetes {values[VALUE]} checks no rules of definitions, which come with "
        f"1.{SINCE['definitionRules']}: left out. Agents and the controller check them."
    )
    return (*policies, rules)


def _minor(version: str) -> int:
    """The minor version that a text names; the newest for none."""
    named = _MINOR.match(version)
    return int(named[1]) if named else _NEWEST
