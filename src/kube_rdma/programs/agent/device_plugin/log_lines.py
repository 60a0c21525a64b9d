"""What is worth a line in the log when a new state of the node replaces the old one.

Pure: two states in, lines out, so that the log says each thing once and nothing that is not so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from kube_rdma.model.card import CardId
from kube_rdma.model.pool import Pool
from kube_rdma.model.survey import Survey
from kube_rdma.rules.health.damping import Change


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its level (`info` or `warning`), the event and the facts."""

    level: str
    event: str
    facts: dict[str, object] = field(default_factory=dict)


def of_pool(before: Pool | None, after: Pool) -> Iterator[Line]:
    """What became of a pool; everything about it when there is no `before`."""
    if before is None or _offer(before) != _offer(after):
        yield Line("info" if after.cards else "warning", "pool", _offer(after))


def of_card(change: Change, name: str, *, seen_before: bool, present: bool) -> Line:
    """What the log says of a card, `seen_before` or not, and `present` on the node or not."""
    facts: dict[str, object] = {"card": name}
    if change.healthy:
        return Line("info", "card healthy again" if seen_before else "card appeared", facts)
    event = "card unhealthy" if present else "card vanished"
    return Line("warning", event, facts | {"why": "; ".join(change.reasons)})


def of_cards(
    before: Mapping[CardId, str], after: Mapping[CardId, str], reported: Collection[CardId]
) -> Iterator[Line]:
    """Cards that joined or left all pools in good health, as one whose soft device was removed."""
    for card in sorted(after.keys() - before.keys() - set(reported)):
        yield Line("info", "card appeared", {"card": after[card]})
    for card in sorted(before.keys() - after.keys() - set(reported)):
        yield Line("warning", "card vanished", {"card": before[card]})


def of_survey(before: Survey | None, after: Survey) -> Iterator[Line]:
    """What could not be read this time and could be the last time."""
    previous_faults = set(before.faults) if before else set()
    for fault in after.faults:
        if fault not in previous_faults:
            yield Line(
                "warning", "node state not readable", {"what": fault.path, "why": fault.reason}
            )


def _offer(pool: Pool) -> dict[str, object]:
    return {
        "resource": pool.spec.resource,
        "shares": len(pool.shares),
        "healthy": sum(share.healthy for share in pool.shares),
        "cards": ",".join(card.name for card in pool.cards),
    }
