"""Shows RepairPolicies to people and programs: `kube-rdma repair`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kube_base.plain_text import plain
from kube_rdma.lib.page import Line, Page, PageRow, PageState, PageTable, Sentence
from kube_rdma.model.repair import SeenRepair

_NODES, _HISTORY = ("NODE", "STATE", "WHY"), ("TIME", "POLICY", "NODE", "ACTION", "WHY")
_STATES = {
    "Tainted": PageState.UNHEALTHY,
    "OverBudget": PageState.UNHEALTHY,
    "WouldTaint": PageState.WARNING,
    "BurnIn": PageState.WARNING,
    "WouldBurnIn": PageState.WARNING,
}
_NONE = (Line("There is no RepairPolicy; docs/repair.md has an example."),)


def policies_page(policies: Sequence[SeenRepair]) -> Page:
    """Return a block for each policy: what it is, and the nodes that are bad or tainted."""
    return tuple(map(_block, policies)) or (_NONE,)


def _block(seen: SeenRepair) -> tuple[Any, ...]:
    policy, status = seen.policy, seen.status
    if policy is None:
        return (Line(f"{seen.name}: refused"), Sentence(seen.refusal, "  "))
    mode = "paused" if policy.paused else "enforced" if policy.enforce else "dry run"
    head = Line(f"{seen.name}: {mode}, {policy.effect}, a budget of {policy.most_nodes}")
    if status is None:
        return (head, Sentence("No controller has looked at it: is controller.repair set?", "  "))
    rows = [
        PageRow((one.node, one.state, plain(one.why)), _STATES.get(one.state, PageState.UNHEALTHY))
        for one in status.nodes
    ]
    table = PageTable(_NODES, tuple(rows))
    return (head, table) if rows else (head, Sentence("No node is bad.", "  "))


def history_page(policies: Sequence[SeenRepair]) -> Page:
    """Return the table of what was done to nodes, the newest first."""
    done = [
        (one.time, seen.name, one.node, one.action, plain(one.why))
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
