"""Reads the cables of nodes in their NodeReports, and writes there which cables are expected.

The spec of a NodeReport is an administrator's, its status the agent's. Each is applied under a name
of its own (field manager), so an agent that writes its report leaves the spec as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import replace
from kube_client import wire
from kube_client.calls import make
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT, StoredReport
from kube_rdma.model.fabric import NodeCables
from kube_rdma.model.reports import ExpectedCable, NodeReportSpec

MANAGER = "kube-rdma-fabric"  # of the field spec.cabling


async def cables(cluster: Cluster) -> Mapping[str, NodeCables]:
    """Return the cables of all nodes with a report that can be read, by node."""
    seen = await cluster.see(NODE_REPORT)
    return {one.name: stored_cables(one) for one in seen.objects}


def stored_cables(stored: StoredReport) -> NodeCables:
    """Return the cables of a node from its NodeReport; a report without status has no ports."""
    return NodeCables.of(stored.name, stored.status, stored.spec.cabling)


async def expect(
    cluster: Cluster, node: str, cabling: tuple[ExpectedCable, ...], *, force: bool = False
) -> None:
    """Write which cables a node is to have.

    Raise Refused where somebody else wrote other cables, unless `force` takes the field over.
    """
    wanted = Wanted(node, spec=NodeReportSpec(cabling))
    request = replace(
        make("patch", NODE_REPORT, node, ""),
        query=(("fieldManager", MANAGER), ("force", "true" if force else "false")),
        body=wire.document(NODE_REPORT, wanted),
        content_type=wire.APPLY,
    )
    await cluster.write(request)
