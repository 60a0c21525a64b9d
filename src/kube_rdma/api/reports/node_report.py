"""The object ``kind: NodeReport``: what a node says of itself, in texts that people can read.

The agent of the node writes its status by server-side apply, and nobody writes anything else of it.
Its shapes are in node_report_models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.api.conditions import Condition, condition
from kube_rdma.api.reports.node_report_models import (
    CardEntry,
    NodeReportStatus,
    PendingEntry,
    PolicyEntry,
    PoolEntry,
    PortEntry,
    SummaryEntry,
    cut,
)
from kube_rdma.api.text.measures import figure_text, gbps
from kube_rdma.model.card import CardId
from kube_rdma.model.pools.node_policy import PolicyAtNode, PolicyOutcome
from kube_rdma.model.reports.node_report import (
    NodeReport,
    PendingMode,
    ReportedCard,
    ReportedPool,
    ReportedPort,
)

_SHORT = 80  # characters of a column of kubectl


def report_status(old: NodeReportStatus | None, report: NodeReport, now: str) -> NodeReportStatus:
    """The status that says a report; `now` (RFC 3339) is the time of conditions that change."""
    return NodeReportStatus(
        agent_version=report.version,
        summary=_summary(report),
        cards=tuple(map(_card_entry, report.cards[:256])),
        rejected=tuple(map(_card_entry, report.rejected[:64])),
        pools=tuple(
            PoolEntry(
                resource=pool.resource,
                mode=pool.mode,
                shares=pool.shares,
                healthy=pool.healthy,
                cards=pool.cards,
            )
            for pool in report.pools[:64]
        ),
        pending=tuple(
            PendingEntry(resource=each.resource, mode=each.mode, message=cut(each.sentence))
            for each in report.pending[:64]
        ),
        refusals=tuple(map(cut, report.refusals[:16])),
        troubles=tuple(map(cut, report.troubles[:16])),
        omitted=report.omitted,
        policies=tuple(
            PolicyEntry(
                name=each.name,
                generation=each.generation,
                state=each.outcome.value,
                message=cut(each.sentence),
            )
            for each in report.policies[:64]
        ),
        conditions=tuple(_conditions(old.conditions if old else (), report, now)),
    )


def node_report(status: NodeReportStatus) -> NodeReport:
    """What a status says."""
    return NodeReport(
        version=status.agent_version,
        cards=tuple(map(_card, status.cards)),
        rejected=tuple(map(_card, status.rejected)),
        pools=tuple(
            ReportedPool(each.resource, each.mode, each.shares, each.healthy, each.cards)
            for each in status.pools
        ),
        pending=tuple(PendingMode(e.resource, e.mode, e.message) for e in status.pending),
        refusals=status.refusals,
        troubles=status.troubles,
        omitted=status.omitted,
        policies=policies_at_node(status),
    )


def policies_at_node(status: NodeReportStatus) -> tuple[PolicyAtNode, ...]:
    """What a status says of the cluster's policies."""
    return tuple(
        PolicyAtNode(each.name, each.generation, PolicyOutcome(each.state), each.message)
        for each in status.policies
    )


def decode(data: bytes) -> NodeReportStatus:
    """Read a status; ValueError for another shape."""
    return NodeReportStatus.model_validate_json(data)


def encode(status: NodeReportStatus) -> bytes:
    """Write a status, without what is not said."""
    return status.model_dump_json(by_alias=True, exclude_defaults=True).encode()


def _card_entry(card: ReportedCard) -> CardEntry:
    return CardEntry(
        id=card.id,
        name=cut(card.name, 253),
        resources=card.resources[:16],
        numa_node=card.numa_node,
        ports=tuple(
            PortEntry(
                device=port.device,
                number=port.number,
                state=port.state,
                link_layer=port.link_layer,
                rate=figure_text(port.rate_gbps, latency=False),
                netdev=port.netdev,
            )
            for port in card.ports[:16]
        ),
        reasons=tuple(map(cut, card.reasons[:8])),
        gone=card.gone or None,
        carries=tuple(map(cut, card.carries[:8])),
        addresses=card.addresses[:16],
    )


def _card(entry: CardEntry) -> ReportedCard:
    ports = (
        ReportedPort(p.device, p.number, p.state, p.link_layer, _rate(p), p.netdev)
        for p in entry.ports
    )
    return ReportedCard(
        CardId(entry.id),
        entry.name,
        entry.resources,
        entry.numa_node,
        tuple(ports),
        entry.reasons,
        bool(entry.gone),
        entry.carries,
        entry.addresses,
    )


def _rate(port: PortEntry) -> float | None:
    """The Gbit/s of a port; an agent of the release before tells them in the old form."""
    return port.rate_gbps if port.rate is None else gbps(port.rate)


def _summary(report: NodeReport) -> SummaryEntry:
    waits = {each.resource: each.mode for each in report.pending}
    problems = [*report.refusals, *(f"{c.name}: {'; '.join(c.reasons)}" for c in report.ill)]
    problems += report.troubles
    return SummaryEntry(
        cards=len(report.pooled),
        healthy=len(report.pooled) - len(report.ill),
        pools=_joined([f"{each.resource} {each.healthy}/{each.shares}" for each in report.pools]),
        mode=_joined(list(dict.fromkeys(each.mode for each in report.pools))),
        pending=_joined([f"{name} to {mode}" for name, mode in waits.items()]),
        problems=_first(problems),
    )


def _joined(words: Sequence[str]) -> str:
    """All of the words if they fit, else as many as do and how many there are besides."""
    for count in range(len(words), 0, -1):
        rest = len(words) - count
        text = ", ".join(words[:count]) + (f" and {rest} more" if rest else "")
        if len(text) <= _SHORT:
            return text
    return cut(", ".join(words), _SHORT)


def _first(sentences: Sequence[str]) -> str:
    """The first of them, cut to a column, and how many there are besides."""
    if not sentences:
        return ""
    more = f" (+{len(sentences) - 1})" if len(sentences) > 1 else ""
    return cut(sentences[0], _SHORT - len(more)) + more


def _conditions(old: tuple[Condition, ...], report: NodeReport, now: str) -> Iterator[Condition]:
    """Ready, and its three parts."""
    ill, count = report.ill, len(report.pooled)
    cards = ("CardsHealthy", f"{count} of {count} cards can be used")
    if not count:
        cards = ("NoCards", "no pool of this node has a card")
    if ill:
        first = f"{ill[0].name}: {'; '.join(ill[0].reasons)}"
        cards = ("CardsUnhealthy", cut(f"{count - len(ill)} of {count} can be used. {first}"))
    taken = ("Accepted", "the configuration is understood")
    if report.refusals or report.troubles:
        reason = "Refused" if report.refusals else "Conflict"
        taken = (reason, cut((*report.refusals, *report.troubles)[0]))
    met = ("Applied", "every pool is in its mode")
    if report.pending:
        met = ("ModeChangePending", cut(report.pending[0].sentence))
    parts = (
        ("CardsHealthy", not ill, cards),
        ("ConfigurationAccepted", taken[0] == "Accepted", taken),
        ("ConfigurationApplied", not report.pending, met),
    )
    wrong = next((words for _, holds, words in parts if not holds), None)
    words = wrong or ("AsConfigured", "the node offers what is configured")
    yield condition(old, now, "Ready", wrong is None, words)
    for kind, holds, why in parts:
        yield condition(old, now, kind, holds, why)
