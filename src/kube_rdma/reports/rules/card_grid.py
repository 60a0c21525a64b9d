"""Which card of which node is how: the grid that `kube-rdma status --svg` draws.

Only cards that pools have or had are in it. What an agent reported before it ended is not what is
so now: its cards are not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.natural import natural
from kube_rdma.model.device import PortState
from kube_rdma.model.reports.card_grid import CardState, GridCard, GridRow
from kube_rdma.model.reports.cluster import ClusterFacts
from kube_rdma.model.reports.node_report import NodeReport, ReportedCard


def card_grid(facts: ClusterFacts) -> tuple[GridRow, ...]:
    """A row for each node that has an agent or a report, in the order of their names."""
    reports = facts.reports or {}
    names = {node.name for node in facts.nodes or ()} | reports.keys() | facts.agents.keys()
    ours = [name for name in names if name in reports or name in facts.agents]
    return tuple(_row(facts, name, reports.get(name)) for name in sorted(ours, key=natural))


def _row(facts: ClusterFacts, node: str, report: NodeReport | None) -> GridRow:
    why = _silence(facts, node, report)
    pooled = report.pooled if report else ()
    cards = sorted(pooled, key=lambda card: card.id)
    return GridRow(node, tuple(_card(card, why) for card in cards), why)


def _silence(facts: ClusterFacts, node: str, report: NodeReport | None) -> str:
    """Why nobody tells of the node's cards now, "" where its agent does."""
    agents = facts.agents.get(node, ())
    ready = {one.name: one.ready for one in facts.nodes or ()}
    if not ready.get(node, True):
        return "node not ready"
    if facts.pods is not None and not any(pod.ready for pod in agents):
        return "agent not ready" if agents else "no agent"
    return "" if report else "no report"


def _card(card: ReportedCard, silence: str) -> GridCard:
    if silence:
        return GridCard(card.name, CardState.UNSEEN, silence)
    if card.gone:
        return GridCard(card.name, CardState.GONE, next(iter(card.reasons), ""))
    if card.reasons:
        return GridCard(card.name, CardState.ILL, card.reasons[0])
    if down := next(_silent_ports(card), ""):
        return GridCard(card.name, CardState.PORT_DOWN, down)
    return GridCard(card.name, CardState.WELL)


def _silent_ports(card: ReportedCard) -> Iterator[str]:
    for port in card.ports:
        if port.state != PortState.ACTIVE:
            yield f"port {port.number} of {port.device} is {port.state}"
