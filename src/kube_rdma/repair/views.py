"""Shows RepairPolicies to people and programs: `kube-rdma repair`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kube_base.plain_text import plain
from kube_rdma.lib.page import Line, Page, PageRow, PageState, PageTable, Sentence
from kube_rdma.model.repair import SeenRepair, place

_NODES, _HISTORY = ("NODE", "STATE", "WHY"), ("TIME", "POLICY", "NODE", "ACTION", "WHY")
_BAD = PageState.UNHEALTHY
_STATES = dict.fromkeys(("WouldTaint", "BurnIn", "WouldBurnIn"), PageState.WARNING)
_NONE = (Line("There is no RepairPolicy; docs/repair.md has an example."),)


def policies_page(policies: Sequence[SeenRepair]) -> Page:
    """Return a block for each policy: what it is, and the nodes that are bad or tainted."""
    return tuple(map(_block, policies)) or (_NONE,)


def _block(seen: SeenRepair) -> tuple[Any, ...]:
    policy, status = seen.policy, seen.status
    if policy is None:
        return (Line(f"{seen.name}: refused"), Sentence(seen.refusal, "  "))
    mode = "paused" if policy.paused else "enforced" if policy.enforce else "dry run"
    words = f"{seen.name}: {mode}, {policy.effect}, a budget of {policy.most_nodes}"
    if policy.device_taint:
        words += f"; cards: {policy.device_taint}, a budget of {policy.most_cards}"
    head = Line(words)
    if status is None:
        return (head, Sentence("No controller has looked at it: is controller.repair set?", "  "))
    rows = [
        PageRow((plain(place(one)), one.state, plain(one.why)), _STATES.get(one.state, _BAD))
        for one in status.nodes
    ]
    table = PageTable(_NODES, tuple(rows)) if rows else Sentence("No node is bad.", "  ")
    return (head, table, *([Sentence(plain(status.remark), "  ")] if status.remark else ()))


def history_page(policies: Sequence[SeenRepair]) -> Page:
    """Return the table of what was done to nodes, the newest first."""
    done = [
        (one.time, seen.name, plain(place(one)), one.action, plain(one.why))
        for seen in policies
        for one in (seen.status.history if seen.status else ())
    ]
    rows = tuple(PageRow(each) for each in sorted(done, reverse=True))
    return ((PageTable(_HISTORY, rows),),) if rows else ((Line("Nothing was done yet."),),)


def policies_document(policies: Sequence[SeenRepair]) -> list[Any]:
    """Return the statuses of policies, as kubectl shows them, each with its name."""
    return [
        {"name": one.name, "status": msgspec.to_builtins(one.status) if one.status else None}
        for one in policies
    ]
