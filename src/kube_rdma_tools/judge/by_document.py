"""Violations that follow from a vendor's document, since a preset keeps the document's names.

A row allows a rule's violation at a field of these objects, as these presets install them in these
environments, and nothing else. It has the document's statement, the sentence that users read, and
the values by which the violation ends. Tests fail for a violation without a row, and for a row
without a violation.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen, field
from kube_rdma.install.rules.notes import (
    DOCUMENTS_NAMES,
    NO_LABEL,
    ONE_OPERATOR,
    READ_ONLY_NODES,
)
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.violation import Violation

_OTHERS = ("network-operator", "network-operator-0.1")


class ByDocument(Frozen):
    """A violation that a vendor's document causes, so that it is no fault of a preset.

    `kube-rdma render` and the chart's notes print `sentence` for the presets in the environments;
    `page` says more. `values` end the violation; a row is without them if a NicClusterPolicy asks
    for the refused field.
    """

    rule: str
    fields: tuple[str, ...]
    objects: tuple[str, ...]
    presets: tuple[str, ...]
    environments: tuple[str, ...]
    statement: str
    sentence: str
    page: str
    values: Mapping[str, str] = field(default_factory=dict)

    def allows(self, violation: Violation, environment: str, preset: str) -> bool:
        """Decide whether the row describes this violation of a preset in an environment."""
        return (
            violation.rule == self.rule
            and violation.where in self.objects
            and preset in self.presets
            and environment in self.environments
            and violation.field.endswith(self.fields)
        )


# Statements of the documents whose names presets have.
_ACK = (
    "Alibaba Cloud, Use RDMA in ACK Lingjun clusters, has DaemonSet ack-rdma-dp-ds in kube-system"
)
_SCC = (
    "Alibaba Cloud, Use RDMA on Super Computing Clusters, has DaemonSet rdma-device-plugin and "
    "ConfigMap rdma-devices in kube-system"
)
_SELECTED = (
    "NVIDIA, Network Operator 0.1.0, has DaemonSet rdma-shared-dp-ds select nodes by label "
    "pci-15b3.present, which Node Feature Discovery or somebody by hand sets"
)
_NAMES = (
    "NVIDIA, Network Operator 0.1.0, has namespace mlnx-network-operator, and in it DaemonSet "
    "rdma-shared-dp-ds with ConfigMap rdma-devices"
)
_POLICIES = "NVIDIA, Network Operator 0.1.0, defines NicClusterPolicy of mellanox.com"
# Mellanox/network-operator manifests/state-ofed-driver/0050_ofed-driver-ds.yaml.
_FOLDERS = (
    "NVIDIA, Network Operator 24.4 to 26.7, mounts these folders of the node into the driver's "
    "container"
)
_UNLABELLED = tuple(name for name in ENVIRONMENTS if name not in _OTHERS)

BY_DOCUMENT = (
    ByDocument(
        "missed-node",
        ("nodeSelector",),
        ("DaemonSet/rdma-shared-dp-ds", "DaemonSet/kube-rdma-leaving"),
        ("nvidia",),
        _UNLABELLED,
        _SELECTED,
        NO_LABEL,
        "docs/config.md",
        {"labeller.enabled": "true"},
    ),
    ByDocument(
        "missed-node",
        ("nodeSelector",),
        ("DaemonSet/rdma-shared-dp-ds", "DaemonSet/network-operator-sriov-device-plugin"),
        ("nvidia-operator",),
        _UNLABELLED,
        _SELECTED,
        NO_LABEL,
        "docs/config.md",
        {"labeller.enabled": "true"},
    ),
    ByDocument(
        "read-only-folder",
        tuple(
            f"volumes[{name}].hostPath.path"
            for name in (
                "etc-network",
                "host-etc",
                "host-ib-core",
                "host-lib-modules",
                "host-udev",
                "host-usr",
            )
        ),
        ("DaemonSet/ofed-driver-amd64-ubuntu24.04-kver6.8.0-45-generic-ds",),
        ("nvidia-operator",),
        ("openshift", "bottlerocket", "flatcar", "talos", "gke"),
        _FOLDERS,
        READ_ONLY_NODES,
        "docs/drivers.md",
    ),
    ByDocument(
        "taken-definition",
        ("spec.scope", "metadata.name"),
        ("CustomResourceDefinition/nicclusterpolicies.mellanox.com",),
        ("nvidia-operator",),
        _OTHERS,
        _POLICIES,
        ONE_OPERATOR,
        "docs/drivers.md",
        {"crds.nicClusterPolicies": "false"},
    ),
    ByDocument(
        "taken-name",
        ("metadata.name",),
        ("DaemonSet/ack-rdma-dp-ds",),
        ("ack",),
        ("ack",),
        _ACK,
        DOCUMENTS_NAMES,
        "docs/migrate.md",
        {"fullnameOverride": "rdma"},
    ),
    ByDocument(
        "taken-name",
        ("metadata.name",),
        ("ConfigMap/rdma-devices",),
        ("scc",),
        ("scc", "shared-device-plugin"),
        _SCC,
        DOCUMENTS_NAMES,
        "docs/migrate.md",
        {"fullnameOverride": "rdma"},
    ),
    ByDocument(
        "taken-name",
        ("metadata.name",),
        ("DaemonSet/rdma-device-plugin",),
        ("scc",),
        ("scc",),
        _SCC,
        DOCUMENTS_NAMES,
        "docs/migrate.md",
        {"fullnameOverride": "rdma"},
    ),
    ByDocument(
        "taken-name",
        ("metadata.name",),
        (
            "Namespace/mlnx-network-operator",
            "DaemonSet/rdma-shared-dp-ds",
            "ConfigMap/rdma-devices",
        ),
        ("nvidia", "nvidia-operator"),
        ("network-operator-0.1",),
        _NAMES,
        DOCUMENTS_NAMES,
        "docs/migrate.md",
        {"namespace.name": "rdma"},
    ),
)


def is_by_document(violation: Violation, environment: str, preset: str) -> bool:
    """Decide whether a violation follows from a vendor's document, by a row of BY_DOCUMENT."""
    return any(row.allows(violation, environment, preset) for row in BY_DOCUMENT)
