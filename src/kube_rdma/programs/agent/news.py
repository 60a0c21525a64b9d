"""What is worth a line in the log when a new state of the node replaces the old one.

Pure: two states in, lines out, so that the log says each thing once and nothing that is not so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kube_rdma.model.pool import Pool
from kube_rdma.model.survey import Survey


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its level (`info` or `warning`), the event and the facts."""

    level: str
    event: str
    facts: dict[str, object] = field(default_factory=dict)


def of_pool(before: Pool | None, after: Pool) -> Iterator[Line]:
    """What became of a pool; everything about it when there is no `before`."""
    had = before.devices if before else after.devices
    for card in sorted(set(after.devices) - set(had)):
        yield Line("info", "card appeared", {"card": card})
    for card in sorted(set(had) - set(after.devices)):
        yield Line("warning", "card vanished", {"card": card})
    ill_before = {v.device.name: v.reasons for v in before.unusable} if before else {}
    ill_now = {v.device.name: v.reasons for v in after.unusable}
    for card, reasons in ill_now.items():
        if ill_before.get(card) != reasons:
            yield Line("warning", "card cannot be used", {"card": card, "why": "; ".join(reasons)})
    for card in sorted((ill_before.keys() - ill_now.keys()) & set(after.devices)):
        yield Line("info", "card can be used again", {"card": card})
    if before is None or _offer(before) != _offer(after):
        yield Line("info" if after.devices else "warning", "pool", _offer(after))


def of_survey(before: Survey | None, after: Survey) -> Iterator[Line]:
    """What could not be read this time and could be the last time."""
    known = set(before.faults) if before else set()
    for fault in after.faults:
        if fault not in known:
            yield Line("warning", "cannot be read", {"what": fault.path, "why": fault.reason})


def _offer(pool: Pool) -> dict[str, object]:
    return {
        "resource": pool.resource,
        "shares": len(pool.shares),
        "healthy": sum(share.healthy for share in pool.shares),
        "cards": ",".join(pool.devices),
    }
