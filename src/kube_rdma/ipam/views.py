"""Shows pools of addresses to people and programs: `kube-rdma ip list`, `show`, `check`, `migrate`.

It is the last step of these commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_base.frozen import Frozen
from kube_rdma.lib.json_values import json_list, json_object, json_value
from kube_rdma.lib.page import Block, Line, Page, PageRow, PageState, PageTable, Sentence
from kube_rdma.lib.phrases import short_count
from kube_rdma.model.finding import Finding
from kube_rdma.model.ipam import BorrowQueue, IPPool, NodeName, Usage

_NONE = "-"
_BAR = 10  # characters
_LIST = ("POOL", "NETWORK", "FOR", "HELD", "SIZE", "NODES", "FULL", "RANGES")
_LIST_RIGHT = (3, 4, 5)
_HOLDERS = ("NODE", "HELD", "ADDRESSES")
_HOLDERS_RIGHT = (1,)
_WELL = "All is well: every address has one holder, and every holder is there."
_KEPT = ("ADDRESS", "NETWORK", "POD", "INTERFACE", "NODE", "POOLS")


class PoolState(Frozen):
    """The state of a pool for views: usage, holders, and requests of nodes that lack addresses."""

    pool: IPPool
    usages: tuple[Usage, ...]
    holders: tuple[Holder, ...] = ()  # sorted by node
    queue: BorrowQueue | None = None
    notes: tuple[str, ...] = ()  # sentences


class Holder(Frozen):
    """The addresses of a pool that a node holds; `spans` are like ``10.0.0.5-10.0.0.9``."""

    node: NodeName
    count: int
    spans: tuple[str, ...]
    is_gone: bool = False  # there is no such node


class Migration(Frozen):
    """The plan of a migration: the pools to write and the addresses that pods keep."""

    pools: tuple[tuple[str, str], ...]  # name, "create" or "update"
    kept: tuple[tuple[str, ...], ...]
    over: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def pools_page(states: Sequence[PoolState]) -> Page:
    """Return the page with a line for each pool, family and rail."""
    if not states:
        return ((Line("There are no pools. Create an IPPool; docs/ip.md has an example."),),)
    rows = (tuple(_rows(state)) for state in states)
    page_rows = tuple(PageRow(first, parts=tuple(rest)) for first, *rest in rows)
    table = PageTable(_LIST, page_rows, _LIST_RIGHT)
    pairs = ((state.pool.name, note) for state in states for note in state.notes)
    notes = (Sentence(f"{name}: {note}", "  ") for name, note in pairs)
    return ((table, *notes),)


def pool_page(state: PoolState) -> Page:
    """Return the page of one pool: usage, settings, holders and requests."""
    pool = state.pool
    excluded = ", ".join(_span(each.first, each.last) for each in pool.excludes)
    routes = ", ".join(f"{r.to} via {r.via or 'the gateway'}" for r in pool.routes)
    facts = {
        "Gateways": ", ".join(str(r.gateway) for r in pool.ranges if r.gateway),
        **_slices(pool),
        "Excluded": excluded,
        "Routes": routes,
        "A node takes": f"{pool.block_size} at once",
        "Freed ones rest": f"{pool.cooldown:g} s",
    }
    wants = (
        (request.node, request.address or f"{request.count} {request.family} addresses")
        for request in (state.queue.requests if state.queue else ())
    )
    return (
        *pools_page([state]),
        tuple(
            Sentence(f"{name + ':':<17}{fact or _NONE}", " " * 17) for name, fact in facts.items()
        ),
        (
            *_holders(state.holders),
            *(Sentence(f"Node {node} is short of {what}.", "  ") for node, what in wants),
        ),
    )


def pools_document(states: Sequence[PoolState]) -> list[dict[str, object]]:
    """Return the pools as JSON values. Keys are stable: none is renamed or removed."""
    return [_document(state) for state in states]


def findings_page(findings: Sequence[Finding]) -> Page:
    """Return the page with a sentence for each finding, warnings last."""
    if not findings:
        return ((Sentence(_WELL, loose=True),),)
    first = sorted(findings, key=lambda each: not each.is_error)
    return (tuple(map(_finding, first)),)


def findings_document(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """Return findings as JSON values, warnings marked as such."""
    return [
        {"kind": each.code, "sentence": each.problem, "warning": not each.is_error}
        for each in findings
    ]


def migration_page(migration: Migration, *, is_done: bool) -> Page:
    """Return the page of a migration: its pools and addresses, and what people have to know."""
    acts = [
        Line(f"{'+' if act == 'create' else '~'} IPPool {name}") for name, act in migration.pools
    ] or [Line("No pool changes.")]
    left = (
        *_titled("Free", migration.over),
        *_titled("Not mapped", migration.unmapped, PageState.UNHEALTHY),
        *_titled("Note", migration.notes),
    )
    kept = tuple(map(PageRow, migration.kept))
    return (
        () if is_done else (Line("Nothing is written yet; this is what would be:"),),
        (*acts, *(() if kept else left)),
        (Line("Stay with their pods, and are excluded from the pools:"),) if kept else (),
        (PageTable(_KEPT, kept), *left) if kept else (),
    )


def migration_document(migration: Migration) -> dict[str, object]:
    """Return the plan of a migration as JSON values."""
    keys = [name.lower() for name in _KEPT]
    return {
        "pools": [{"name": name, "act": act} for name, act in migration.pools],
        "kept": [dict(zip(keys, row, strict=True)) for row in migration.kept],
        "over": list(migration.over),
        "unmapped": list(migration.unmapped),
        "notes": list(migration.notes),
    }


def _finding(finding: Finding) -> Sentence:
    code, state = "warning", PageState.WARNING
    if finding.is_error:
        code, state = finding.code, PageState.UNHEALTHY
    return Sentence(f"{code}: {finding.problem}", "  ", state)


def _titled(
    title: str, sentences: Sequence[str], state: PageState = PageState.NONE
) -> Iterator[Sentence]:
    for text in sentences:
        yield Sentence(f"{title}: {text}.", "  ", state)


def _rows(state: PoolState) -> Iterator[tuple[str, ...]]:
    pool = state.pool
    name, network = str(pool.name), str(pool.network)
    if not state.usages:
        yield (name, network, *([_NONE] * 5), ", ".join(str(r.subnet) for r in pool.ranges))
    for usage in state.usages:
        part = (usage.family, usage.rail)
        ranges = [r for r in pool.ranges if (f"IPv{r.subnet.version}", r.rail) == part]
        subnets = ", ".join(dict.fromkeys(str(r.subnet) for r in ranges))
        rail = "" if usage.rail is None else f" rail {usage.rail}"
        share = usage.held / usage.size if usage.size else 1.0
        filled = min(_BAR, round(share * _BAR) or int(usage.held > 0))  # one address is seen too
        yield (
            name,
            network,
            f"{usage.family}{rail}",
            str(usage.held),
            short_count(usage.size),
            str(usage.nodes),
            f"{'█' * filled}{'░' * (_BAR - filled)} {min(share, 1):>4.0%}",
            subnets,
        )
        name, network = "", ""


def _slices(pool: IPPool) -> dict[str, str]:
    """Return label and text of the line about nodes' slices; {} if no range has slices."""
    sentences = [
        f"a /{per_node.prefix} of {r.subnet}"
        + (f", router at {per_node.gateway}" if per_node.gateway is not None else "")
        for r in pool.ranges
        if (per_node := r.per_node)
    ]
    return {"A node has": "; ".join(sentences)} if sentences else {}


def _span(first: object, last: object) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _holders(holders: Sequence[Holder]) -> Block:
    if not holders:
        return (Line("No node holds addresses of it."),)
    rows = (
        PageRow(
            (
                f"{each.node} (gone)" if each.is_gone else str(each.node),
                str(each.count),
                ", ".join(each.spans),
            ),
            PageState.WARNING if each.is_gone else PageState.NONE,
        )
        for each in holders
    )
    return (PageTable(_HOLDERS, tuple(rows), _HOLDERS_RIGHT),)


def _document(state: PoolState) -> dict[str, object]:
    pool = state.pool
    return {
        "name": pool.name,
        "network": pool.network,
        "ranges": [
            json_object(r, "subnet")
            | {"start": json_value(r.first), "end": json_value(r.last)}
            | json_object(r, "gateway", "rail", perNode=r.per_node and r.per_node.prefix)
            for r in pool.ranges
        ],
        "excludes": [_span(each.first, each.last) for each in pool.excludes],
        "usage": json_list(state.usages),
        "holders": [
            json_object(each, "node", held=each.count, addresses=each.spans, gone=each.is_gone)
            for each in state.holders
        ],
        "wants": json_list(
            state.queue.requests if state.queue else (), "node", "family", "count", "address"
        ),
        "notes": list(state.notes),
    }
