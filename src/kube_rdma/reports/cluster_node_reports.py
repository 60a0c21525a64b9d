"""NodeReports at the API server: an agent follows and writes that of its node, others read all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

from kube_base.frozen import Frozen
from kube_client.kinds import Owner, Wanted, Where
from kube_client.objects import Cluster
from kube_client.watching import WatchEvent
from kube_client.wire import Unreadable
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT, StoredReport
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.reports import NodeReportStatus


class NodeReports(Frozen):
    """The door of one agent: the report of the node of this name."""

    cluster: Cluster
    node: str

    def watch(self) -> AsyncGenerator[WatchEvent[None, NodeReportStatus], None]:
        """The report now and whenever it changes; raise Refused when its kind is not served."""
        return self.cluster.watch(NODE_REPORT, Where(name=self.node))

    async def write(
        self, node: NodeState, seen: StoredReport | None, status: NodeReportStatus
    ) -> StoredReport:
        """Write the status; the object is made first if none, or none of this Node, was `seen`."""
        if seen is None or not is_owned(seen, node):
            owner = Owner("v1", "Node", node.name, node.uid)
            with suppress(Unreadable):  # what another version wrote is about to be replaced
                await self.cluster.apply(
                    NODE_REPORT, Wanted(node.name, owners=(owner,)), force=True
                )
        return await self.cluster.apply_status(NODE_REPORT, node.name, "", status, force=True)


def is_owned(report: StoredReport, node: NodeState) -> bool:
    """Whether a report belongs to this very Node object, which may have been made anew."""
    return any(owner.uid == node.uid for owner in report.owners)
