"""Decides on which nodes drivers belong, and which labels of a node say that they are there.

    policy, nodes ─► places ─► operator/rules/upgrade, which decides when labels change

A driver's DaemonSet selects a label that nobody but the operator writes, with the driver's group as
its value. Labels of Node Feature Discovery only say which value a node should have. A node that
loses them keeps its driver, for a label that is gone says nothing about cards. A driver leaves a
node if the policy is gone, has no such driver or excludes the node. So it does if the node's
distribution or kernel changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.model.operator import ClusterPolicy, ComponentName, DriverPlace, PolicyNode

# The nodes that a policy's nodeAffinity allows, as the scheduler reads it.

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WHOLE = re.compile(r"[-+]?[0-9]{1,19}")
_NAME = "metadata.name"  # the only field of a node that can be asked for


def _number(text: str | None) -> int | None:
    """Return a whole number as Go's ParseInt takes it; None for any other text."""
    return int(text) if text and _WHOLE.fullmatch(text) else None


def _compares(value: str | None, values: Sequence[str], sign: int) -> bool:
    mine, theirs = _number(value), _number(values[0] if len(values) == 1 else None)
    return mine is not None and theirs is not None and (mine - theirs) * sign > 0


OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compares(value, values, 1),
    "Lt": lambda value, values: _compares(value, values, -1),
}


def allows(affinity: Mapping[str, Any] | None, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a policy's affinity allows a node; without required terms it allows all.

    One term has to match, with all of its expressions; a term without any matches no node.
    """
    required = (affinity or {}).get(REQUIRED)
    if required is None:
        return True
    return any(_holds(term, name, labels) for term in required.get("nodeSelectorTerms", ()))


def _holds(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    asked = [
        *((one, labels.get(one["key"])) for one in term.get("matchExpressions") or ()),
        *((one, name if one["key"] == _NAME else None) for one in term.get("matchFields") or ()),
    ]
    return bool(asked) and all(
        OPERATORS[one["operator"]](value, one.get("values") or ()) for one, value in asked
    )


# Names of DaemonSets: those of the Network Operator where the API server takes them.

_LEGAL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MOST = 253  # characters of a DNS subdomain (RFC 1123, as apimachinery checks it)
_MOST_OF_LABEL = 63  # characters of a label's value
_HASH = 8


def legal_names(wanted: Iterable[str]) -> Mapping[str, str]:
    """Return a legal object name for each wanted name; different names stay different."""
    names = {name: _spelled(name) for name in set(wanted)}
    counts = Counter(names.values())
    return {
        name: spelled if name == spelled or counts[spelled] == 1 else _hashed(name, spelled)
        for name, spelled in names.items()
    }


def label_value(name: str) -> str:
    """Return a legal object name cut to a label value's length; different ones stay different."""
    return name if len(name) <= _MOST_OF_LABEL else _hashed(name, name, _MOST_OF_LABEL)


def _spelled(name: str) -> str:
    """Return a name that Kubernetes allows: the name itself, or the nearest to it."""
    if len(name) <= _MOST and _LEGAL.fullmatch(name):
        return name
    parts = re.sub(r"[^-.a-z0-9]", "-", name.lower()).split(".")
    spelled = ".".join(part.strip("-") for part in parts if part.strip("-"))
    return spelled if len(spelled) <= _MOST else _hashed(name, spelled)


def _hashed(name: str, spelled: str, most: int = _MOST) -> str:
    digest = sha256(name.encode()).hexdigest()[:_HASH]
    return f"{spelled[: most - _HASH - 1].rstrip('-.')}-{digest}"


# Groups of nodes that can share a driver's image: same architecture, distribution and kernel.

_FEATURE = "feature.node.kubernetes.io"
CARDS_LABEL = f"{_FEATURE}/pci-15b3.present"
GPUS_LABEL = f"{_FEATURE}/pci-10de.present"
KERNEL_LABEL = f"{_FEATURE}/kernel-version.full"
DISTRIBUTION_LABEL = f"{_FEATURE}/system-os_release.ID"
RELEASE_LABEL = f"{_FEATURE}/system-os_release.VERSION_ID"
ARCHITECTURE_LABEL = "kubernetes.io/arch"


class NodeGroup(Frozen, order=True):
    """A kind of node for which driver images are built.

    `kernel` is empty where one image serves all kernels.
    """

    architecture: str
    distribution: str
    release: str
    kernel: str = ""

    @property
    def tag(self) -> str:
        """Return the tag in names of images and DaemonSets, as ``amd64-ubuntu18.04-kver4.15.0``."""
        kernel = f"-kver{self.kernel}" if self.kernel else ""
        return f"{self.architecture}-{self.distribution}{self.release}{kernel}"


class Grouping(Frozen):
    """The groups of nodes, sorted, and a sentence about nodes in no group ("": there are none)."""

    groups: tuple[NodeGroup, ...]
    problem: str = ""


def policy_node(name: str, labels: Mapping[str, str]) -> PolicyNode:
    """Return a PolicyNode of this name, with what the labels of the node say."""
    return PolicyNode(
        name=name,
        architecture=labels.get(ARCHITECTURE_LABEL, ""),
        distribution=labels.get(DISTRIBUTION_LABEL, ""),
        release=labels.get(RELEASE_LABEL, ""),
        kernel=labels.get(KERNEL_LABEL, ""),
        has_cards=labels.get(CARDS_LABEL) == "true",
        has_gpus=labels.get(GPUS_LABEL) == "true",
        labels=tuple(sorted(labels.items())),
    )


def driver_groups(nodes: Iterable[PolicyNode]) -> Grouping:
    """Return the groups of all nodes with cards, each for one driver image."""
    return _grouped([node for node in nodes if node.has_cards], by_kernel=True)


def peer_groups(nodes: Iterable[PolicyNode]) -> Grouping:
    """Return the groups of all nodes with cards and GPUs, each for one driver image."""
    return _grouped([node for node in nodes if node.has_cards and node.has_gpus], by_kernel=False)


def _grouped(nodes: list[PolicyNode], *, by_kernel: bool) -> Grouping:
    groups, lacking = set(), []
    for node in sorted(nodes, key=lambda node: node.name):
        group = NodeGroup(
            node.architecture, node.distribution, node.release, node.kernel if by_kernel else ""
        )
        missing = [label for label, value in _labels(node, by_kernel=by_kernel) if not value]
        if missing:
            lacking.append(f"node {node.name} has no label {missing[0]}")
        else:
            groups.add(group)
    more = f", and {len(lacking) - 1} more nodes lack labels" if lacking[1:] else ""
    return Grouping(tuple(sorted(groups)), lacking[0] + more if lacking else "")


def _labels(node: PolicyNode, *, by_kernel: bool) -> Iterator[tuple[str, str]]:
    yield ARCHITECTURE_LABEL, node.architecture
    yield DISTRIBUTION_LABEL, node.distribution
    yield RELEASE_LABEL, node.release
    if by_kernel:
        yield KERNEL_LABEL, node.kernel


DRIVER_LABEL, PEER_LABEL = "kube-rdma.io/driver", "kube-rdma.io/peer-driver"
READY_LABEL = "kube-rdma.io/driver-ready"  # device plugins may start
PLACE_LABELS: Mapping[ComponentName, str] = {
    ComponentName.DRIVER: DRIVER_LABEL,
    ComponentName.PEER_DRIVER: PEER_LABEL,
}


def value_of(group: NodeGroup) -> str:
    """Return the value of the label that nodes with a driver of this group have."""
    return label_value(group.tag)


def allowed(policy: ClusterPolicy, nodes: Sequence[PolicyNode]) -> tuple[PolicyNode, ...]:
    """Return the nodes that a policy's affinity allows."""
    return tuple(node for node in nodes if allows(policy.affinity, node.name, dict(node.labels)))


def plugin_nodes(policy: ClusterPolicy, nodes: Sequence[PolicyNode]) -> tuple[PolicyNode, ...]:
    """Return the allowed nodes with cards; if the policy has a driver, those where it is ready."""
    return tuple(
        node
        for node in allowed(policy, nodes)
        if node.has_cards and (policy.driver is None or READY_LABEL in dict(node.labels))
    )


def places(policy: ClusterPolicy | None, node: PolicyNode) -> tuple[DriverPlace, DriverPlace]:
    """Return the labels of both drivers of a node, as they are and as they should be.

    Without a policy a node should have no driver.
    """
    labels = dict(node.labels)
    has_driver, has_peer = labels.get(DRIVER_LABEL, ""), labels.get(PEER_LABEL, "")
    wants_driver = wants_peer = ""
    if policy and allows(policy.affinity, node.name, labels):
        if policy.driver:
            wants_driver = next(map(value_of, driver_groups([node]).groups), has_driver)
        if policy.peer_driver:
            wants_peer = next(map(value_of, peer_groups([node]).groups), has_peer)
    return (
        DriverPlace(DRIVER_LABEL, has_driver, wants_driver),
        DriverPlace(PEER_LABEL, has_peer, wants_peer, unloads=False),
    )


def place_of(pod: Mapping[str, Any], component: str) -> tuple[str, str, bool]:
    """Return label and value of a driver's nodes, and whether its DaemonSet selects by these.

    `pod` is the spec of the DaemonSet's template. DaemonSets of earlier releases select labels of
    Node Feature Discovery; their nodes get the label before such a DaemonSet is rewritten.
    """
    selector = pod.get("nodeSelector", {})
    key = PLACE_LABELS[ComponentName(component)]
    if key in selector:
        return key, selector[key], True
    names = (ARCHITECTURE_LABEL, DISTRIBUTION_LABEL, RELEASE_LABEL, KERNEL_LABEL)
    return key, value_of(NodeGroup(*(selector.get(name, "") for name in names))), False
