"""Collects the evidence about a pod in a file: its node and its cluster are files too.

    pod, files of pools and networks ─► WrittenCluster ─┐
    node of files ─► survey ─► what its agent would report ─┴─► PodEvidence

cli/explain calls it with --sysfs. It asks no cluster and no kernel, so it works on any
laptop. A note says what only a cluster knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma import __version__
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.admission.manifest_check import WrittenCluster, written_cluster
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.documents.network_definition import NetworkDefinition
from kube_rdma.explain.meaning import with_meaning
from kube_rdma.explain.rules.node import basis
from kube_rdma.hardware.recorded_survey import called, survey_at
from kube_rdma.lib.part_reader import PartReader, first_sentence
from kube_rdma.lib.text.document import Document
from kube_rdma.model.admission import AdmissionFacts, OfferedPool, PodTemplate
from kube_rdma.model.explain import NodeBasis, PodEvidence
from kube_rdma.model.finding import NotSeen
from kube_rdma.model.ipam import PoolName
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.reports.rules.node_report import first_report

_NO_CLUSTER = NotSeen("labels, taints and other pods", "no cluster is asked with --sysfs")


class _WrittenNetworks:
    """The networks that files describe, as a ListedNetworks.

    A recorded node has no CNI configuration.
    """

    def __init__(self, written: WrittenCluster) -> None:
        self._definitions = {one.network.name: one for one in written.definitions}
        self._pools = {one.name for one in written.ip_pools}

    async def definition(
        self, namespace: str, name: str, resource: str | None = None
    ) -> NetworkDefinition | None:
        if not self._definitions:
            raise Unavailable("no file of --config has any")
        return self._definitions.get(f"{namespace}/{name}")

    async def configured(self, namespace: str, name: str) -> NetworkDefinition | None:
        return None

    async def configurations(self) -> tuple[str, ...]:
        return ()

    async def others(self, namespaces: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._definitions)

    async def has_pool(self, name: PoolName) -> bool:
        return name in self._pools


def _with_mtus(node: NodeBasis, tree: SysfsTree) -> NodeBasis:
    """Add the MTUs of a node's interfaces from its recorded sysfs, as no NodeReport has any."""
    links = (
        replace(one, mtu=tree.number(f"class/net/{one.name}/mtu") or one.mtu)
        for one in node.host.links
    )
    return replace(node, host=replace(node.host, links=tuple(links)), recorded=True)


async def explain_recorded(
    template: PodTemplate, sysfs: SysfsRoot, files: Sequence[Document | Refused]
) -> PodEvidence:
    """Return the evidence about a pod on a recorded node, with the documents of files.

    Raise Refused for faults of the files or of the recording.
    """
    written = written_cluster(files)
    specs = tuple(one.spec for one in written.pools)
    survey = survey_at(sysfs)
    report = first_report(__version__, survey, specs)
    node = _with_mtus(basis(called(sysfs), report, specs=specs), SysfsTree(sysfs))
    reader = PartReader(worded=first_sentence)
    pools = {one.name: one for one in written.ip_pools}
    offers = NodeState(node.name, allocatable=tuple((one.resource, 0) for one in specs))
    seen = PodEvidence(template, node.name, basis=node, ip_pools=pools, nodes=(offers,))
    full = await with_meaning(seen, _WrittenNetworks(written), reader)
    networks = tuple(one.network for one in written.definitions)
    offered = tuple(OfferedPool(one.spec, cards=one.cards) for one in node.pools)
    facts = AdmissionFacts(offered, networks, tuple(full.ip_pools))
    return replace(
        full, findings=findings(template, facts), not_seen=(_NO_CLUSTER, *reader.not_seen)
    )
