"""NodeReports: nothing but a status, and the Node as the owner, so one goes when its node does."""

from __future__ import annotations

from typing import TypeAlias

from kube_client.kinds import NOTHING, ObjectCodec, Stored
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.model.reports.node_report import NodeReportStatus

NODE_REPORT = own_kind("NodeReport", "nodereports", NOTHING, ObjectCodec.of(NodeReportStatus))

StoredReport: TypeAlias = Stored[None, NodeReportStatus]
