"""The object ``kind: NodeReport``: its status, in texts that people can read, and its writing.

The agent of the node writes it by server-side apply, and leaves the spec to an administrator. Its
shapes are in model/reports.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from kube_base.frozen import Frozen, replace
from kube_client.kinds import Owner, Wanted, Where
from kube_client.objects import Cluster
from kube_client.watching import WatchEvent
from kube_client.wire import Unreadable
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT, StoredReport
from kube_rdma.model.card import CardId
from kube_rdma.model.kubernetes import Condition, NodeState, condition, cut
from kube_rdma.model.pools import PolicyAtNode
from kube_rdma.model.reports import (
    NodeReport,
    NodeReportSpec,
    NodeReportStatus,
    PendingMode,
    ReportedCard,
    ReportSummary,
)

TextPart = TypeVar("TextPart", PendingMode, PolicyAtNode)

_SHORT = 80  # characters of a column of kubectl


def report_status(old: NodeReportStatus | None, report: NodeReport, now: str) -> NodeReportStatus:
    """Convert a report to a status; `now` (RFC 3339) is the time of conditions that change."""
    return NodeReportStatus(
        version=report.version,
        summary=_summary(report),
        cards=tuple(map(_fitted, report.cards[:256])),
        rejected=tuple(map(_fitted, report.rejected[:64])),
        pools=report.pools[:64],
        pending=_short(report.pending),
        refusals=tuple(map(cut, report.refusals[:16])),
        troubles=tuple(map(cut, report.troubles[:16])),
        rerouted=tuple(map(cut, report.rerouted[:64])),
        omitted=report.omitted,
        policies=_short(report.policies),
        metrics=cut(report.metrics),
        renew_time=old.renew_time if old else "",
        conditions=tuple(_conditions(old.conditions if old else (), report, now)),
    )


def _fitted(card: ReportedCard) -> ReportedCard:
    return replace(
        card,
        id=CardId(str(card.id)),  # msgspec writes no PciAddress, though it is a str
        name=cut(str(card.name), 253),
        resources=card.resources[:16],
        ports=card.ports[:16],
        reasons=tuple(map(cut, card.reasons[:8])),
        carries=tuple(map(cut, card.carries[:8])),
        addresses=card.addresses[:16],
        firmware=cut(card.firmware, 63),
        part_of=str(card.part_of),
        degraded=cut(card.degraded),
    )


def _short(texts: Sequence[TextPart]) -> tuple[TextPart, ...]:
    return tuple(replace(each, sentence=cut(each.sentence)) for each in texts[:64])


def _summary(report: NodeReport) -> ReportSummary:
    waits = {each.resource: each.mode for each in report.pending}
    problems = [*report.refusals, *(f"{c.name}: {'; '.join(c.reasons)}" for c in report.ill)]
    problems += report.troubles
    return ReportSummary(
        cards=len(report.pooled),
        healthy=len(report.pooled) - len(report.ill),
        pools=_joined([str(each) for each in report.pools]),
        mode=_joined(list(dict.fromkeys(each.mode for each in report.pools))),
        pending=_joined([f"{name} to {mode}" for name, mode in waits.items()]),
        problems=_first(problems),
    )


def _joined(words: Sequence[str]) -> str:
    """Join words into a text that fits a column, with the number of words that were left out.

    If not even one word fits, cut the text.
    """
    for count in range(len(words), 0, -1):
        rest = len(words) - count
        text = ", ".join(words[:count]) + (f" and {rest} more" if rest else "")
        if len(text) <= _SHORT:
            return text
    return cut(", ".join(words), _SHORT)


def _first(sentences: Sequence[str]) -> str:
    """Return the first sentence, if any, cut to a column's width, with the number of the others."""
    if not sentences:
        return ""
    more = f" (+{len(sentences) - 1})" if len(sentences) > 1 else ""
    return cut(sentences[0], _SHORT - len(more)) + more


def _conditions(old: tuple[Condition, ...], report: NodeReport, now: str) -> Iterator[Condition]:
    """Yield the condition Ready and the three that it consists of."""
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


# The object at the API server.


class NodeReports(Frozen):
    """A reader and writer of one node's NodeReport, for its agent."""

    cluster: Cluster
    node: str

    def watch(self) -> AsyncGenerator[WatchEvent[NodeReportSpec, NodeReportStatus], None]:
        """Yield the report's WatchEvents; raise Refused without the kind or the right."""
        return self.cluster.watch(NODE_REPORT, Where(name=self.node))

    async def write(
        self, node: NodeState, seen: StoredReport | None, status: NodeReportStatus
    ) -> StoredReport:
        """Write the status; first apply the owner if `seen` is None or owned by an earlier Node."""
        if seen is None or not is_owned(seen, node):
            owner = Owner("v1", "Node", node.name, node.uid)
            with suppress(Unreadable):  # what another version wrote is about to be replaced
                await self.cluster.apply(
                    NODE_REPORT, Wanted(node.name, owners=(owner,)), force=True
                )
        return await self.cluster.apply_status(NODE_REPORT, node.name, "", status, force=True)


def is_owned(report: StoredReport, node: NodeState) -> bool:
    """Decide whether a report is owned by this Node object, and not by an earlier one."""
    return any(owner.uid == node.uid for owner in report.owners)
