"""Decides names, labels and version of a release, and when it may be uninstalled.

By default, names of the agents' ClusterRole and policies begin with the namespace. Objects in it
have the same names in every release of a preset. `fullnameOverride` is put into both, so that
several releases can be in one namespace. The names are added to the values below `platform`, where
blueprints find them; kube_rdma_tools/chart_templates writes the same for Helm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed
from kube_rdma.model.install import Blueprint, Hole, Json, Node, Values
from kube_rdma.model.kubernetes import PodState, Toleration

PRODUCT = "kube-rdma"
FULL_NAME = "fullnameOverride"
MANAGER = PRODUCT  # of objects that Helm does not manage
# The values that `with_release` adds below `platform`.
NAMES = ("base", "prefix", "own", "controller", "agentAccount", "instance", "manager", "version")


def with_release(values: Values) -> Json:
    """Return the values with the names of the installation's objects added below `platform`."""
    full, platform = values[FULL_NAME], values["platform"]
    base = full or PRODUCT
    role = "operator" if platform["operator"] else "controller"
    names: dict[str, Any] = {
        "base": base,
        # Of what the whole cluster sees: roles, and policies of the API server.
        "prefix": full or values["namespace"]["name"],
        "own": f"{full}." if full else "",
        "controller": values["controller"]["name"] or f"{base}-{role}",
        # What a policy deploys has accounts of this name wherever its operator is.
        "agentAccount": f"{PRODUCT}-agent" if platform["operator"] else f"{base}-agent",
        "instance": full or values["preset"],
        "manager": MANAGER,
        "version": version_label(values["image"]["tag"], values["image"]["digest"]),
    }
    if full:
        names |= {"daemonSet": f"{full}-agent", "label": f"{full}-agent"}
        names["configMap"] = f"{full}-agent" if platform["configMap"] else ""
    return {**values, "platform": {**platform, **names}}


# The labels that Kubernetes recommends, on every object and every pod of an installation.

GROUP = "app.kubernetes.io/"
_LONGEST = 63  # characters of a label's value
_ENDS = "-_."  # which none begins or ends with


def recommended(component: str, instance: Node, version: Node, manager: Node) -> Json:
    """Return the six labels that Kubernetes recommends, for an object of the installation."""
    return {
        f"{GROUP}name": PRODUCT,
        f"{GROUP}instance": instance,
        f"{GROUP}version": version,
        f"{GROUP}component": component,
        f"{GROUP}part-of": PRODUCT,
        f"{GROUP}managed-by": manager,
    }


def labelled(blueprint: Blueprint, part: str) -> Blueprint:
    """Return a blueprint with the recommended labels on its object and its pod template."""
    labels = recommended(
        blueprint.component or part,
        Hole("platform.instance"),
        Hole("platform.version"),
        Hole("platform.manager"),
    )
    body = _with(blueprint.body, labels)
    spec = body.get("spec")
    if isinstance(spec, dict) and "template" in spec:
        body = {**body, "spec": {**spec, "template": _with(spec["template"], labels)}}
    return replace(blueprint, body=body)


def image_values(text: str) -> Json:
    """Return the value `image` for an image's name: REPOSITORY, with :TAG or @DIGEST behind it."""
    name, _, digest = text.partition("@")
    path, slash, last = name.rpartition("/")  # a port has a colon too, and a slash behind it
    last, _, tag = last.partition(":")
    named = {"repository": f"{path}{slash}{last}", "tag": tag, "digest": digest}
    return {part: word for part, word in named.items() if word}


def version_label(tag: str, digest: str = "") -> str:
    """Return the version of an image as a label value: its digest if it has one, else its tag."""
    return (digest or tag).replace(":", "-")[:_LONGEST].strip(_ENDS)


def _with(body: Json, labels: Json) -> dict[str, Any]:
    """Return an object with more labels in its metadata, behind those that it has."""
    metadata = {**body["metadata"], "labels": {**body["metadata"].get("labels", {}), **labels}}
    return {**body, "metadata": metadata}


# What makes an object a part of a release of Helm, which then takes over what `kube-rdma install`
# made: checkOwnership of Helm's pkg/action/validate.go.

HELM = "Helm"
RELEASE, RECORDS = "rdma", "kube-system"  # usual name, and the namespace of Helm's records
_OWNER = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_HOOK = "helm.sh/hook"
_MOST = 200  # characters of annotations that a page shows


def with_helm(values: Values, *, defines_networks: bool) -> Json:
    """Return the values as Helm completes them: its labels, and the networks' CRD if lacking."""
    crds, platform = values["crds"], values["platform"]
    if defines_networks and platform["networks"] and crds["install"]:
        crds = {**crds, "networkAttachmentDefinitions": True}
    names = {"instance": values[FULL_NAME] or RELEASE, "manager": HELM}
    return {**values, "crds": crds, "platform": {**platform, **names}}


def tolerated(written: Json) -> Toleration:
    """Return a toleration of the values, unchecked: the API server checks it."""
    fields = Toleration.__struct_fields__
    return Toleration(
        **{name: str(text) for name, text in written.items() if name in fields and text}
    )


def owned(document: Json, release: str) -> Json:
    """Return an object with the annotations by which it is this release's."""
    metadata = document["metadata"]
    owner = dict(zip(_OWNER, (release, RECORDS), strict=True))
    annotations = {**metadata.get("annotations", {}), **owner}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def others(found: Json, release: str) -> str:
    """Return who manages an object of the cluster; "" if it is the release."""
    metadata = found["metadata"]
    manager = (metadata.get("labels") or {}).get(f"{GROUP}managed-by", "")
    owner = tuple(map((metadata.get("annotations") or {}).get, _OWNER))
    if manager != HELM:
        return f"{manager} made it" if manager else "nobody's name is on it"
    is_ours = owner == (release, RECORDS)
    return "" if is_ours else f"it is of Helm's release {owner[0]} in {owner[1]}"[:_MOST]


def is_made_once(document: Json) -> bool:
    """Return whether an object is made by the first installation and then left to its users."""
    return (document["metadata"].get("annotations") or {}).get(_HOOK) == "post-install"


# Parts of an installation that a version of Kubernetes lacks, so that they are left out.

VALUE = "kubernetesVersion"
# The minor version that has each: kubernetes.io "Feature Gates (removed)", and for mutating
# policies the release notes of 1.36. kubectl and Helm refuse a definition with rules before.
SINCE: Mapping[str, int] = {
    "definitionRules": 25,
    "validatingPolicies": 30,
    "addressFunctions": 31,  # of CEL: ip, isIP ("Common Expression Language in Kubernetes")
    "mutatingPolicies": 36,
    "appArmorField": 30,
}
POLICIES: Mapping[str, str] = {
    "ValidatingAdmissionPolicy": "validatingPolicies",
    "MutatingAdmissionPolicy": "mutatingPolicies",
}
"""The name in SINCE of each kind of admission policy."""
OLDEST = 22  # minor version that has all other kinds
_NEWEST = 99
_MINOR = re.compile(r"v?1\.(\d+)")


def with_version(values: Values) -> Json:
    """Return the values with what their version of Kubernetes supports added below `platform`.

    Each feature's name is true or false there.
    """
    minor = _minor(values[VALUE])
    served = {name: minor >= since for name, since in SINCE.items()}
    return {**values, "platform": {**values["platform"], **served}}


def lacking(values: Values) -> tuple[str, ...]:
    """Return what the values ask for and their version of Kubernetes lacks, one sentence each."""
    platform, admission = values["platform"], values["admission"]
    pods = admission["pods"]
    judges, completes = admission["install"] or pods["check"], pods["complete"]
    without = "left out, and no pod is completed"
    wanted_kinds = zip(POLICIES.items(), (judges, completes), ("left out", without), strict=True)
    policies = tuple(
        f"Kubernetes {values[VALUE]} has no {kind}, which comes with 1.{SINCE[name]}: {effect}."
        for (kind, name), wanted, effect in wanted_kinds
        if wanted and not platform[name]
    )
    if admission["install"] and platform["validatingPolicies"] > platform["addressFunctions"]:
        since = f"1.{SINCE['addressFunctions']}"
        agents = (
            f"Kubernetes {values[VALUE]} has no CEL functions for addresses, which come with "
            f"{since}: the policy that limits each agent to its own node is left out."
        )
        policies = (*policies, agents)
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
    """Return the minor version in a version of Kubernetes; _NEWEST for another text."""
    named = _MINOR.match(version)
    return int(named[1]) if named else _NEWEST


# The end of an installation: pods and drivers that must be gone before.

_ENDED = frozenset(("Succeeded", "Failed"))


def still_needed(pods: Iterable[PodState], annotation: str) -> Refused | None:
    """Return why agents may not be uninstalled yet; None if they may.

    Unfinished pods with this annotation have networks that only an agent can take back.
    """
    names = sorted(
        f"{pod.namespace}/{pod.name}"
        for pod in pods
        if annotation in dict(pod.annotations) and pod.phase not in _ENDED
    )
    if not names:
        return None
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Refused(
        f"pods have networks that only an agent can take back: {shown}",
        remedy="End them first; to leave them to themselves, write --force (helm: --no-hooks)",
    )


def drivers_run(nodes: Iterable[str], daemon_sets: Iterable[str]) -> Refused | None:
    """Return why an operator may not be uninstalled yet: drivers run; None if it may.

    `nodes` and `daemon_sets` are the names of those that have drivers.
    """
    names, sets = sorted(set(nodes)), sorted(daemon_sets)
    if not sets:
        return None
    where = f"on nodes {listed(names)}" if names else f"by DaemonSet {listed(sets)}"
    return Refused(
        f"drivers of a NicClusterPolicy run {where}, and would all be unloaded at once",
        remedy="Delete the policy and wait until the operator has unloaded them node by node "
        "(docs/drivers.md); to end them all the same: helm uninstall --no-hooks",
    )
