"""What is worth a line in the log when a new state of the node replaces the old one.

Pure: two states in, lines out, so that the log says each thing once and nothing that is not so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kube_rdma.lib.logs import LogLine
from kube_rdma.model.card import CardId
from kube_rdma.model.pools.pool import Pool
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.health.damping import HealthChange


def of_pool(before: Pool | None, after: Pool) -> Iterator[LogLine]:
    """What became of a pool; everything about it when there is no `before`."""
    if before is None or _offer(before) != _offer(after):
        yield LogLine("info" if after.cards else "warning", "pool", _offer(after))


def of_card(change: HealthChange, name: str, *, seen_before: bool, present: bool) -> LogLine:
    """What the log says of a card, `seen_before` or not, and `present` on the node or not."""
    facts: dict[str, object] = {"card": name}
    if change.healthy:
        return LogLine("info", "card healthy again" if seen_before else "card appeared", facts)
    event = "card unhealthy" if present else "card vanished"
    return LogLine("warning", event, facts | {"why": "; ".join(change.reasons)})


def of_cards(
    before: Mapping[CardId, str], after: Mapping[CardId, str], reported: Collection[CardId]
) -> Iterator[LogLine]:
    """Cards that joined or left all pools in good health, as one whose soft device was removed."""
    for card in sorted(after.keys() - before.keys() - set(reported)):
        yield LogLine("info", "card appeared", {"card": after[card]})
    for card in sorted(before.keys() - after.keys() - set(reported)):
        yield LogLine("warning", "card vanished", {"card": before[card]})


def of_survey(before: Survey | None, after: Survey) -> Iterator[LogLine]:
    """What could not be read this time and could be the last time."""
    previous_faults = set(before.faults) if before else set()
    for fault in after.faults:
        if fault not in previous_faults:
            yield LogLine(
                "warning", "node state not readable", {"what": fault.path, "why": fault.reason}
            )


def _offer(pool: Pool) -> dict[str, object]:
    return {
        "resource": pool.spec.resource,
        "shares": len(pool.shares),
        "healthy": sum(share.healthy for share in pool.shares),
        "cards": ",".join(card.name for card in pool.cards),
    }
