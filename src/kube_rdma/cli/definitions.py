"""The kinds at the API server, each with its model and its columns of kubectl.

lib/schema turns them into custom resource definitions. A column shows one value: of a
list, kubectl would show the first entry alone, so a status has a text for its column.
"""

from __future__ import annotations

from kube_rdma.ipam.ip_pool import IPPoolObject
from kube_rdma.ipam.objects import IPBlockObject
from kube_rdma.lib.schema import Column, ResourceDefinition
from kube_rdma.model.reports import NodeReportObject
from kube_rdma.operator.documents.nic_cluster_policy import NicClusterPolicyObject
from kube_rdma.repair.policy import RepairPolicy
from kube_rdma.reports.node_policy_status import NodePolicyObject
from kube_rdma.verify.bandwidth_check import BandwidthCheck

_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_WHY = Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True)
DEFINITIONS = (
    ResourceDefinition(
        IPPoolObject,
        "ippools",
        short="ipp",
        columns=(
            Column("Ranges", ".status.ranges"),
            Column("Used", ".status.used"),
            Column("Free", ".status.free"),
            _READY,
            _WHY,
            _AGE,
        ),
    ),
    ResourceDefinition(
        IPBlockObject,
        "ipblocks",
        short="ipb",
        columns=(
            Column("Network", ".spec.network"),
            Column("First", ".spec.first"),
            Column("Edition", ".spec.edition", "integer"),
            _AGE,
        ),
    ),
    ResourceDefinition(
        NodePolicyObject,
        "nodepolicies",
        short="nodepol",
        columns=(
            Column("Priority", ".spec.priority", "integer"),
            Column("Nodes", ".status.nodes", "integer"),
            Column("Applied", ".status.applied", "integer"),
            Column("Pending", ".status.pending", "integer"),
            Column("Refused", ".status.refused", "integer"),
            _READY,
            Column("Overruled", ".status.overruled", "integer", wide=True),
            _WHY,
            _AGE,
        ),
    ),
    ResourceDefinition(
        NodeReportObject,
        "nodereports",
        short="nr",
        columns=(
            Column("Cards", ".status.summary.cards", "integer"),
            Column("Healthy", ".status.summary.healthy", "integer"),
            Column("Pools", ".status.summary.pools"),
            Column("Mode", ".status.summary.mode"),
            Column("Pending", ".status.summary.pending"),
            Column("Problems", ".status.summary.problems"),
            Column("Renewed", ".status.renewTime", "date"),
            Column("Agent", ".status.agentVersion", wide=True),
            _AGE,
        ),
    ),
    ResourceDefinition(
        RepairPolicy,
        "repairpolicies",
        short="rp",
        columns=(
            Column("Enforce", ".spec.enforce", "boolean"),
            Column("Result", ".status.result"),
            _READY,
            _WHY,
            _AGE,
        ),
    ),
    ResourceDefinition(
        BandwidthCheck,
        "bandwidthchecks",
        short="bwc",
        columns=(
            Column("State", ".status.state"),
            Column("Result", ".status.result"),
            Column("Measured", ".status.completionTime", "date"),
            Column("Pairs", ".status.pairsMeasured", "integer", wide=True),
            Column("Slow", ".status.pairsSlow", "integer", wide=True),
            Column("Failed", ".status.pairsFailed", "integer", wide=True),
            _AGE,
        ),
        namespaced=True,
    ),
)
OPERATOR_DEFINITIONS = (
    ResourceDefinition(
        NicClusterPolicyObject,
        "nicclusterpolicies",
        short="ncp",  # as NVIDIA's has it
        columns=(Column("State", ".status.state"), Column("Reason", ".status.reason"), _AGE),
        group="mellanox.com",
        namespaced=True,
    ),
)
"""Another project's kinds are apart: a cluster with NVIDIA's operator has them already."""
