"""NodeReports: nothing but a status, and the Node as the owner, so one goes when its node does."""

from __future__ import annotations

from typing import TypeAlias

from kube_client.kinds import NOTHING, ObjectCodec, Stored
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.api.reports import node_report
from kube_rdma.api.reports.node_report_models import NodeReportStatus

_STATUS = ObjectCodec(node_report.decode, node_report.encode)
NODE_REPORT = own_kind("NodeReport", "nodereports", NOTHING, _STATUS)

StoredReport: TypeAlias = Stored[None, NodeReportStatus]
