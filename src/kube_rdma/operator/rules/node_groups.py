"""Groups of nodes that can share a driver's image: same architecture, distribution and kernel.

The labels are those of Node Feature Discovery; the Network Operator of 0.1.0 looked at the first
node alone and gave its image to all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kube_base.frozen import Frozen
from kube_rdma.model.operator.cluster_policy import PolicyNode

_FEATURE = "feature.node.kubernetes.io"
CARDS_LABEL = f"{_FEATURE}/pci-15b3.present"
GPUS_LABEL = f"{_FEATURE}/pci-10de.present"
KERNEL_LABEL = f"{_FEATURE}/kernel-version.full"
DISTRIBUTION_LABEL = f"{_FEATURE}/system-os_release.ID"
RELEASE_LABEL = f"{_FEATURE}/system-os_release.VERSION_ID"
ARCHITECTURE_LABEL = "kubernetes.io/arch"


class NodeGroup(Frozen, order=True):
    """What one driver image is built for; `kernel` is empty where it does not matter."""

    architecture: str
    distribution: str
    release: str
    kernel: str = ""

    @property
    def tag(self) -> str:
        """As images and DaemonSets have it in their names: ``amd64-ubuntu18.04-kver4.15.0``."""
        kernel = f"-kver{self.kernel}" if self.kernel else ""
        return f"{self.architecture}-{self.distribution}{self.release}{kernel}"

    @property
    def selector(self) -> Mapping[str, str]:
        """The labels that its nodes have and others have not."""
        labels = {
            ARCHITECTURE_LABEL: self.architecture,
            DISTRIBUTION_LABEL: self.distribution,
            RELEASE_LABEL: self.release,
        }
        return labels | ({KERNEL_LABEL: self.kernel} if self.kernel else {})


class Grouping(Frozen):
    """The groups, sorted, and a sentence about nodes that are in none ("": all are in one)."""

    groups: tuple[NodeGroup, ...]
    problem: str = ""


def policy_node(name: str, labels: Mapping[str, str]) -> PolicyNode:
    """A node as its labels tell it."""
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
    """The groups of all nodes with cards."""
    return _grouped([node for node in nodes if node.has_cards], by_kernel=True)


def peer_groups(nodes: Iterable[PolicyNode]) -> Grouping:
    """The groups of all nodes with cards and GPUs."""
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
