"""Describes NodeReports, RepairPolicies, NetworkAttachmentDefinitions; makes other ObjectKinds."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec

from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored
from kube_rdma.model.repair import RepairPolicyStatus
from kube_rdma.model.reports import NodeReportSpec, NodeReportStatus

S = TypeVar("S")
U = TypeVar("U")


def own_kind(
    kind: str,
    plural: str,
    spec: ObjectCodec[S],
    status: ObjectCodec[U],
    *,
    namespaced: bool = False,
) -> ObjectKind[S, U]:
    """Return the ObjectKind of one of kube-rdma's own kinds."""
    return ObjectKind("kube-rdma.io", "v1alpha1", kind, plural, namespaced, spec, status)


def lease_kind(spec: ObjectCodec[S]) -> ObjectKind[S, None]:
    """Return the ObjectKind of Lease; `spec` is the codec for its fields."""
    return ObjectKind("coordination.k8s.io", "v1", "Lease", "leases", True, spec, NOTHING)


# The spec of a NodeReport is an administrator's, the status its agent's. The Node owns the report,
# which goes with it.

NODE_REPORT = own_kind(
    "NodeReport", "nodereports", ObjectCodec.of(NodeReportSpec), ObjectCodec.of(NodeReportStatus)
)

StoredReport: TypeAlias = Stored[NodeReportSpec, NodeReportStatus]


_UNDECODED: ObjectCodec[bytes] = ObjectCodec(bytes)  # a faulty spec gets a status too
REPAIR_POLICY = own_kind(
    "RepairPolicy", "repairpolicies", _UNDECODED, ObjectCodec.of(RepairPolicyStatus)
)


# NetworkAttachmentDefinitions of the Network Plumbing Working Group (k8s.cni.cncf.io/v1).

RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


class DefinitionSpec(msgspec.Struct, frozen=True):
    """The spec of a NetworkAttachmentDefinition."""

    config: str = ""


_NAMES = ("NetworkAttachmentDefinition", "network-attachment-definitions")
_CONFIG = ObjectCodec.of(DefinitionSpec)
DEFINITION = ObjectKind("k8s.cni.cncf.io", "v1", *_NAMES, True, spec=_CONFIG, status=NOTHING)
