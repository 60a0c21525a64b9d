"""A cluster that is handed over: nodes with cards, receipts, cables and measurements."""

from datetime import datetime

import msgspec

from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS
from kube_rdma.model import reports as model
from kube_rdma.model.card import CardId
from kube_rdma.model.verify import BandwidthCheckStatus, Pairing
from kube_rdma.reports.node_report import report_status
from kube_rdma.verify.bandwidth_check import measured
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma.verify.views import verdict
from tests.kit.rails import pods, proof
from tests.unit.cli.test_status import AGENT, HCA, NOW, World, meta

FIRMWARE = "28.39.1002"


class HandedOver(World):
    """Nodes that are alike, with a card on each rail; a rail has a leaf for 32 nodes."""

    def __init__(self, nodes, rails):
        super().__init__()
        counts = dict.fromkeys(
            ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled"), nodes
        )
        self.workload(DAEMON_SETS, "agent", AGENT, counts)
        self.names = [f"node-{number}" for number in range(1, nodes + 1)]
        self.rails = rails
        for number, name in enumerate(self.names, 1):
            self.node(name, str(rails))
            self.program_pod(f"agent-{number}", "agent", name)
            self.put(name, self.cards(number))

    def cards(self, number):
        """The cards of a node by its number."""
        block = (number - 1) // 32 + 1
        return tuple(
            model.ReportedCard(
                CardId(f"0000:{0x10 + rail:02x}:00.0"),
                f"mlx5_{rail}",
                (HCA,),
                ports=(
                    model.ReportedPort(
                        *(f"mlx5_{rail}", 1, "ACTIVE", "Ethernet", "400G"),
                        neighbour=model.ReportedNeighbour(
                            f"su{block}-leaf{rail + 1}", f"Ethernet{number}/1"
                        ),
                    ),
                ),
                rail=rail,
                driver="mlx5_core",
                firmware=FIRMWARE,
            )
            for rail in range(self.rails)
        )

    def receipt(self, node, **more):
        """The receipt of a node that was measured with its neighbours."""
        firmware = tuple(f"mlx5_{rail} {FIRMWARE}" for rail in range(self.rails))
        number = self.names.index(node)
        peers = tuple(self.names[each % len(self.names)] for each in (number - 1, number + 1))
        words = f"All {2 * self.rails} pairs are well, 372 to 396 Gb/s."
        made = model.BurnInReceipt("2026-01-01T00:00:00Z", "cards", words, peers, firmware)
        return replace(made, **more)

    def put(self, node, cards, receipt=None):
        """Write the node's report."""
        healthy = sum(not card.reasons for card in cards)
        pool = model.ReportedPool(HCA, "exclusive", len(cards), healthy, len(cards))
        made = report_status(None, model.NodeReport("0.3.0", cards, (), (pool,)), NOW)
        made = replace(made, receipt=receipt)
        document = {"metadata": meta(node), "status": msgspec.to_builtins(made)}
        self.server.put(NODE_REPORT, document)

    def check(self, name, is_bad=lambda *_: False, pairing=Pairing.RING, **how):
        found = proof(pods(len(self.names), self.rails), is_bad, pairing, **how)
        begun = BandwidthCheckStatus(
            observed_generation=1, state="Measuring", start_time="2026-01-01T00:00:00Z"
        )
        self.put_check(
            name,
            measured(begun, found, verdict(found), datetime.fromisoformat("2026-01-01T00:10:00Z")),
        )

    def put_check(self, name, status):
        document = {"metadata": meta(name, "kr"), "spec": {}, "status": msgspec.to_builtins(status)}
        self.server.put(BANDWIDTH_CHECK, document)


def measured_site(nodes, rails):
    """A cluster all of whose nodes have a receipt."""
    site = HandedOver(nodes, rails)
    for number, name in enumerate(site.names, 1):
        site.put(name, site.cards(number), site.receipt(name))
    return site
