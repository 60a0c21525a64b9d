"""Shows a cluster's health to people and programs: `kube-rdma status`.

Problems with the next step come first, then programs and nodes, last one line that says it all.
Problems come from reports/rules/cluster. Many nodes that are alike are one row, and problems that
are alike one problem.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from math import ceil
from typing import TypeAlias

from kube_base.frozen import Frozen
from kube_base.natural import natural
from kube_rdma.lib import page
from kube_rdma.lib.json_values import json_list, json_object, json_value
from kube_rdma.lib.phrases import listed, ranged
from kube_rdma.lib.svg import BOLD, END, LETTER, MIDDLE, PictureSize, Tone, heading, picture, text
from kube_rdma.model import reports as model
from kube_rdma.model.finding import Finding
from kube_rdma.model.kubernetes import NodeState, cut

_NONE = "-"
_WELL, _ILL, _ADVICE, _UNKNOWN = "✓", "✗", "!", "?"
_PROGRAMS = ("", "PROGRAM", "NAME", "READY", "IMAGE")
_PROGRAM_KEYS = ("role", "namespace", "name", "desired", "ready", "updated", "image")
_NODES = ("", "NODE", "AGENT", "CARDS", "SHARES HEALTHY", "ALLOCATABLE", "MODE", "VERSION")
_POLICIES = ("", "POLICY", "STATE")
_NODE_POLICIES = ("", "NODE POLICY", "NODES", "APPLIED", "PENDING", "REFUSED", "OVERRULED")
_POOLS = ("", "ADDRESSES", "USED", "FREE", "RANGES")
_FEW = 20  # groups of equal nodes without a problem: a thousand are no news
_ALIKE, _ALIKE_POOLS = 3, 2  # nodes, pools; more that say the same are one row, one word
_SPARE = ("ALLOCATABLE", "MODE", "VERSION", "IMAGE")  # columns; the last one goes first
_CUT = ("IMAGE", "RANGES", "SHARES HEALTHY", "ALLOCATABLE", "NAME", "NODE", "POLICY")
_NUMBER = re.compile(r"\d+")
_Cells: TypeAlias = tuple[str, ...]  # of a row
_Marks: TypeAlias = Mapping[str, str]  # by the object that something is wrong with


def status_page(
    facts: model.ClusterFacts,
    findings: Sequence[Finding],
    *,
    problems_only: bool = False,
    wide: bool = False,
) -> page.Page:
    """Return the status page, problems first.

    With `problems_only` its tables have only rows that are not marked well. A `wide` page has a row
    for each node that has an agent or a report.
    """
    marks = _marks(findings)
    most = None if wide else _FEW
    policies = (
        (
            marks.get(f"nicclusterpolicy/{policy.title}", _WELL),
            policy.title,
            policy.state or "unseen",
        )
        for policy in facts.policies or ()
    )
    pools = (
        (
            marks.get(f"ippool/{pool.name}", _WELL),
            pool.name,
            *(text or _NONE for text in (pool.used, pool.free, pool.ranges)),
        )
        for pool in facts.pools or ()
    )
    tables = (
        (_PROGRAMS, _program_rows(facts, marks)),
        (_NODES, _node_rows(facts, marks, most)),
        (_POLICIES, policies),
        (_NODE_POLICIES, _node_policy_rows(facts, marks)),
        (_POOLS, pools),
    )
    programs, nodes, *others = (_table(head, rows, problems_only) for head, rows in tables)
    return (
        tuple(part for parts in _folded(facts, findings) for part in parts),
        programs,
        nodes,
        () if problems_only else tuple(_rest(facts, marks, most)),
        *others,
        tuple(page.not_seen(facts.not_seen, "read")),
        (page.Sentence(_verdict(facts, findings)),),
    )


def node_names(
    facts: model.ClusterFacts, findings: Sequence[Finding], *, problems_only: bool = False
) -> list[str]:
    """Return the lines of `-o name`: nodes with an agent or report, problems first."""
    return [
        f"node/{name}"
        for (mark, *_), names in _alike(facts, _marks(findings)).items()
        if not (problems_only and mark == _WELL)
        for name in names
    ]


def _table(head: _Cells, rows: Iterable[_Cells], problems_only: bool) -> page.Block:
    """Return a table of the rows, or of those with a problem; an empty block without any."""
    kept = page.marked(row for row in rows if not (problems_only and row[0] == _WELL))
    return (page.PageTable(head, kept, spare=_SPARE, cut=_CUT),) if kept else ()


def status_document(
    facts: model.ClusterFacts, findings: Sequence[Finding], health: model.ClusterHealth
) -> dict[str, object]:
    """Return the status as JSON values. Keys are stable: only added, never renamed or removed."""
    return {
        "health": health.value,
        "problems": [
            {
                "code": each.code,
                "about": each.subject,
                "sentence": each.problem,
                "nextStep": each.remedy,
                "advice": not each.is_error,
            }
            for each in findings
        ],
        "notSeen": [{"what": each.part, "why": each.why} for each in facts.not_seen],
        "notInstalled": list(facts.missing),
        "programs": json_list(facts.workloads, *_PROGRAM_KEYS),
        "nodes": [_node_document(node, facts) for node in facts.nodes or ()],
        "policies": json_list(facts.policies),
        "nodePolicies": json_list(facts.node_policies),
        "addressPools": json_list(facts.pools),
    }


def _marks(findings: Sequence[Finding]) -> _Marks:
    """Return the mark of each object that a finding is about; an error outweighs advice."""
    marks: dict[str, str] = {}
    for finding in findings:
        if finding.subject:
            mark = _mark(finding)
            marks[finding.subject] = _ILL if _ILL in (mark, marks.get(finding.subject)) else mark
    return marks


def _mark(finding: Finding) -> str:
    return _ILL if finding.is_error else _ADVICE


def _program_rows(facts: model.ClusterFacts, marks: _Marks) -> Iterator[_Cells]:
    for program in facts.workloads or ():
        kind = "daemonset" if program.role is model.ProgramRole.AGENT else "deployment"
        short = program.ready < program.desired
        mark = marks.get(f"{kind}/{program.title}", _ILL if short else _WELL)
        ready = f"{program.ready}/{program.desired}"
        yield mark, program.role or _NONE, program.title, ready, program.image


def _alike(facts: model.ClusterFacts, marks: _Marks) -> dict[_Cells, list[str]]:
    """Return the names of nodes by the equal cells of their rows, with problems first."""
    pods, reports = facts.agents, facts.reports or {}
    ours = [n for n in facts.nodes or () if n.name in pods or n.name in reports]
    rows: dict[_Cells, list[str]] = {}
    for node in sorted(ours, key=lambda one: natural(one.name)):
        agent = _agent(pods.get(node.name, ()))
        mark = _UNKNOWN if facts.hides_cards else _WELL
        if facts.pods is None:
            agent = _NONE
        elif node.name not in pods:
            mark = _ILL
        mark = marks.get(f"node/{node.name}", mark)
        cells = (mark, agent, *_report_cells(node, reports.get(node.name)))
        rows.setdefault(cells, []).append(node.name)
    return dict(sorted(rows.items(), key=lambda row: row[0][0] == _WELL))


def _node_rows(facts: model.ClusterFacts, marks: _Marks, most: int | None) -> Iterator[_Cells]:
    """Yield the rows of nodes, one row for many nodes with equal cells.

    Of nodes that are well only the first `most` groups of equal cells are shown. None gives a row
    for each node.
    """
    left = most or 0
    for (mark, *cells), names in _alike(facts, marks).items():
        if mark == _WELL and most is not None and left <= 0:
            continue
        left -= 1 if mark == _WELL else 0
        if len(names) > _ALIKE and most is not None:
            yield (mark, f"{names[0]} and {len(names) - 1} alike", *cells)
        else:
            yield from ((mark, name, *cells) for name in names)


def _report_cells(node: NodeState, report: model.NodeReport | None) -> _Cells:
    if report is None:
        return (_NONE,) * 5
    allocatable = dict(node.allocatable)
    pools = report.pools
    healthy: list[str] = []
    free: list[str] = []
    for name, alike in _same_pools(pools, allocatable).items():
        often = f"{len(alike)} × " if len(alike) > 1 else ""
        words = str(alike[0]).removeprefix(alike[0].resource)
        healthy.append(f"{often}{name}{words}")
        free.append(f"{often}{allocatable.get(alike[0].resource, 0)}")
    return (
        f"{len(report.pooled) - len(report.ill)}/{len(report.pooled)}",
        ", ".join(healthy) or _NONE,
        ", ".join(free) or _NONE,
        ", ".join(dict.fromkeys(p.mode for p in pools)) or _NONE,
        report.version,
    )


def _same_pools(
    pools: Sequence[model.ReportedPool], allocatable: Mapping[str, int]
) -> dict[str, list[model.ReportedPool]]:
    """Return pools by name; many that differ only in the numbers of their names are grouped."""
    groups: dict[tuple[str, str, int], list[model.ReportedPool]] = {}
    for pool in pools:
        name = _NUMBER.sub("*", pool.resource)
        words = str(pool).removeprefix(pool.resource)
        groups.setdefault((name, words, allocatable.get(pool.resource, 0)), []).append(pool)
    named: dict[str, list[model.ReportedPool]] = {}
    for (name, _, _), alike in groups.items():
        if len(alike) > _ALIKE_POOLS and name not in named:
            named[name] = alike
        else:
            named |= {pool.resource: [pool] for pool in alike}
    # One that differs from the others is what a reader looks for.
    return dict(sorted(named.items(), key=lambda row: len(row[1])))


def _agent(pods: Sequence[model.ProgramPod]) -> str:
    """Return in words whether a node's agents are ready; two DaemonSets may give it two."""
    if not pods:
        return "missing"
    ready = sum(pod.ready for pod in pods)
    if ready < len(pods):
        return "not ready" if not ready else f"{ready} of {len(pods)} ready"
    return "ready" if len(pods) == 1 else f"{ready} ready"


def _rest(facts: model.ClusterFacts, marks: _Marks, most: int | None) -> Iterator[page.Line]:
    """Yield lines about nodes that the table leaves out, and about the reports' age."""
    rows = _alike(facts, marks)
    well = [names for (mark, *_), names in rows.items() if mark == _WELL]
    hidden = 0 if most is None else sum(map(len, well[most:]))
    ours = sum(map(len, rows.values()))
    others = len(facts.nodes or ()) - ours
    if hidden:
        yield page.Line(f"{hidden} more nodes are well.")
    times = [each.renew_time for each in (facts.reports or {}).values()]
    ages = [age for time in times if (age := facts.age(time)) is not None]
    if ages:
        yield page.Line(f"Reports are at most {max(1, ceil(max(ages) / 60))} min old.")
    if facts.receipts:
        of = f"{len(facts.receipts)} of {page.counted(len(facts.reports or {}), 'node')}"
        known = [
            (age / 86_400, node)
            for node, one in facts.receipts.items()
            if (age := facts.age(one.time)) is not None
        ]
        old = "; the oldest receipt is {:.0f} d old ({})".format(*max(known)) if known else ""
        yield page.Line(f"Measured before use: {of}{old}.")
    if others and ours:
        yield page.Line(f"{others} {'node has' if others == 1 else 'nodes have'} no agent.")


def _node_policy_rows(facts: model.ClusterFacts, marks: _Marks) -> Iterator[_Cells]:
    for policy in facts.node_policies or ():
        mark = marks.get(f"nodepolicy/{policy.name}", _WELL)
        counts = (policy.nodes, policy.applied, policy.pending, policy.refused, policy.overruled)
        yield mark, policy.name, *(str(n) if policy.seen else _NONE for n in counts)


def _folded(facts: model.ClusterFacts, findings: Sequence[Finding]) -> Iterator[page.Block]:
    """Yield of each finding title, problem and remedy, and the other objects that it applies to."""
    # Sentences about nodes name the programs' pods, and are alike but for them.
    pods = frozenset(pod.name for pod in facts.pods or ())
    for finding, others in page.folded(findings, pods):
        yield (*page.advised(_mark(finding), finding), *page.also(others))


def _verdict(facts: model.ClusterFacts, findings: Sequence[Finding]) -> str:
    wrong = sum(one.is_error for one in findings)
    advice = len(findings) - wrong
    hints = f" {page.counted(advice, 'piece')} of advice." if advice else ""
    if wrong:
        more = page.counted(len(facts.not_seen), "part")
        rest = f" {more} could not be read." if facts.not_seen else ""
        return f"{page.counted(wrong, 'problem')}.{rest}{hints}"
    if facts.not_seen:
        count = page.counted(len(facts.not_seen), "part")
        return f"No problem in what could be read; {count} could not be read.{hints}"
    if facts.is_unreported:
        return f"No problem in what could be read; no agent reports cards and pools.{hints}"
    return f"All is well.{hints}"


def _node_document(node: NodeState, facts: model.ClusterFacts) -> dict[str, object]:
    report, pods = (facts.reports or {}).get(node.name), facts.agents.get(node.name, ())
    document: dict[str, object] = {
        "name": node.name,
        "agents": json_list(pods, "namespace", "name", "ready", "why"),
        "report": None,
    }
    if report:
        allocatable = dict(node.allocatable)
        document["report"] = {
            "agentVersion": report.version,
            "renewTime": report.renew_time,
            "cards": len(report.pooled),
            "healthy": len(report.pooled) - len(report.ill),
            "pools": [
                json_object(pool, allocatable=allocatable.get(pool.resource, 0))
                for pool in report.pools
            ],
            "receipt": json_value((facts.receipts or {}).get(node.name)),
        }
    return document


# The acceptance report: `kube-rdma status -o html`.

_MOST = 256  # nodes, findings, versions of firmware
_MOST_NOTES, _LONGEST_NOTE = 3, 300  # problems below a node, and their characters
_OF_NODES = ("", "NODE", "CARDS", "RATE", "FIRMWARE", "LEAVES", "MEASURED BEFORE USE")
_OF_FIRMWARE = ("", "FIRMWARE", "CARDS", "NODES")


def report_parts(
    facts: model.ClusterFacts,
    findings: Sequence[Finding],
    grid: Sequence[model.GridRow],
    measured: Sequence[bool],
) -> tuple[page.Block, page.PageSection, page.PageSection, page.PageSection, page.PageSection]:
    """Return the verdict with numbers, and sections: problems, cards in `grid`, firmware, nodes.

    `measured` says of each measurement whether it is well.
    """
    alike = _alike(facts, _marks(findings)).items()
    rows = [(name, mark) for (mark, *_), names in alike for name in names]
    rows.sort(key=lambda row: (row[1] == _WELL, natural(row[0])))
    reports, receipts = facts.reports or {}, facts.receipts or {}
    numbers = {
        "nodes are well": [mark == _WELL for _, mark in rows],
        "cards are healthy": [not one.reasons for each in reports.values() for one in each.pooled],
        "nodes were measured before use": [name in receipts for name in reports],
        "measurements are well": measured,
    }
    figures = (
        ((f"{sum(good)} / {len(good)}", words), _WELL if good and all(good) else _ADVICE)
        for words, good in numbers.items()
    )
    text, bad = _verdict(facts, findings), measured.count(False)
    mark = _UNKNOWN if facts.is_blind or facts.is_unreported else _WELL
    if bad:
        of = f"{bad} of {len(measured)} measurements"
        text = f"{of} not well. {text.replace('All is', 'All else is')}"
    if bad or any(one.is_error for one in findings):
        mark = _ILL
    tiles = tuple(page.PageRow(cells, page.state_of(mark)) for cells, mark in figures)
    head = page.Line(f"{mark} {text}", page.state_of(mark)), page.PageList(tiles, "")
    problems, firmware = tuple(_folded(facts, findings)), tuple(_firmware_rows(reports))
    parts = (part for some in problems[:_MOST] for part in some)
    unread = page.not_seen(facts.not_seen, "read")
    picture = card_grid_svg(grid[:_MOST], "State of the cards")
    versions = _table(_OF_FIRMWARE, firmware[:_MOST], problems_only=False)
    nodes = tuple(_node_row(*row, facts, findings) for row in rows[:_MOST])
    return (
        head,
        page.PageSection("Problems and advice", (*parts, *_left_out(problems), *unread)),
        page.PageSection("Cards", _left_out(grid), (picture,)),
        page.PageSection("Firmware", (*versions, *_left_out(firmware))),
        page.PageSection("Nodes", (page.PageTable(_OF_NODES, nodes), *_left_out(rows))),
    )


def _left_out(every: Sequence[object]) -> page.Block:
    """Return a sentence on how many have no room in the report; nothing if all have."""
    return (page.Sentence(f"{len(every) - _MOST} more are left out."),) if every[_MOST:] else ()


def _node_row(
    node: str, mark: str, facts: model.ClusterFacts, findings: Sequence[Finding]
) -> page.PageRow:
    """Return a node's row of the report, with its problems below."""
    report, receipt = (facts.reports or {}).get(node), (facts.receipts or {}).get(node)
    cards = report.pooled if report else ()
    ports = [port for card in cards for port in card.ports]
    measured = _NONE
    if receipt:
        peers = f", with {listed(receipt.peers)}" if receipt.peers else ""
        measured = f"{receipt.time[:10]}{peers}: {receipt.result} {receipt.remark}"
    cells = (
        f"{sum(not card.reasons for card in cards)}/{len(cards)}",
        _each(f"{port.gbps:g} Gb/s" for port in ports if port.gbps),
        " ".join((_each(card.driver for card in cards), _each(card.firmware for card in cards))),
        ranged({port.neighbour.switch for port in ports if port.neighbour}) or _NONE,
        measured,
    )
    problems = (f"{one.code}: {one.problem}" for one in findings if one.subject == f"node/{node}")
    notes = tuple(cut(text, _LONGEST_NOTE) for text in problems)[:_MOST_NOTES]
    return page.PageRow((mark, node, *cells), page.state_of(mark), notes=notes)


def _each(values: Iterable[str]) -> str:
    """Return the value that all have, else how often each comes, the most frequent first."""
    counts = Counter(filter(None, values)).most_common()
    return listed([f"{n} × {one}" if counts[1:] else one for one, n in counts]) or _NONE


def _firmware_rows(reports: Mapping[str, model.NodeReport]) -> Iterator[_Cells]:
    """Yield a row for each version of firmware, marked if another one of its family is more common.

    A family are the versions of one driver with the same first number.
    """
    nodes: dict[str, list[str]] = {}
    for name, card in ((name, card) for name, one in reports.items() for card in one.pooled):
        if card.firmware:
            nodes.setdefault(f"{card.driver} {card.firmware}".strip(), []).append(name)
    common = set()
    for version, names in sorted(nodes.items(), key=lambda row: -len(row[1])):
        family = version.partition(".")[0]
        mark = _ADVICE if family in common else _WELL
        common.add(family)
        yield mark, version, str(len(names)), listed(sorted({*names}, key=natural))


# The state of all cards as a picture: `kube-rdma status --svg`.

_CELL, _LINE = 22, 20  # pixels of a card's place
_ACROSS = 16  # cards of a node in one line; further ones are below
_WIDE, _FEW_ROWS = 800, 4  # pixels of a page; rows that are not divided into columns
_MARGIN, _HEAD, _GAP = 20, 74, 16
_LONGEST = 24  # letters of a node's name; the middle of a longer one is left out
_TONES = (
    Tone("well", "#4a90c2", "#5aa9dd"),
    Tone("port", "#c98a00", "#e3b341"),
    Tone("bad", "#c4460b", "#f0763a"),
    Tone("gone", "#c4460b", "#f0763a", of="stroke"),
    Tone("unseen", "#7b8794", "#8b98a5", of="stroke"),
    Tone("cross", "#ffffff", "#0d1117", of="stroke"),
    Tone("stripe", "#f3f6f9", "#161b22"),
)


class _Grid(Frozen):
    """The layout of a card grid: width of names, cards per line, and the rows of each column."""

    name: int
    across: int
    columns: tuple[tuple[model.GridRow, ...], ...]

    @property
    def width(self) -> int:
        """Return the width in pixels of a column of nodes in the card grid."""
        return self.name + self.across * _CELL


def card_grid_svg(rows: Sequence[model.GridRow], title: str) -> str:
    """Return a picture of nodes and their pooled cards as SVG; `title` is its heading."""
    grid = _laid_out(rows)
    states = Counter(card.state for row in rows for card in row.cards)
    head = f"{page.counted(len(rows), 'node')}, {page.counted(states.total(), 'card')}"
    parts = [
        heading(_MARGIN, title),
        text(_MARGIN, 50, f"{head}. Columns are rails: cards of a node by PCI address.", "faint"),
    ]
    bottom = _HEAD
    for number, column in enumerate(grid.columns):
        left = _MARGIN + number * (grid.width + _GAP)
        parts += _column(column, grid, left)
        bottom = max(bottom, _HEAD + 8 + sum(map(_height, column)))
    right = _MARGIN + len(grid.columns) * (grid.width + _GAP) - _GAP
    if not rows:
        parts.append(text(_MARGIN, bottom + 12, "No node has an agent or a report.", "faint"))
    legend = list(_legend(states, bottom + 26, max(right, _WIDE - _MARGIN)))
    size = PictureSize(max(right + _MARGIN, _WIDE), bottom + 26 + 22 * len(states) + 6)
    return picture(size, f"{title}: {head}", _TONES, (*parts, *legend))


def _laid_out(rows: Sequence[model.GridRow]) -> _Grid:
    """Lay out the nodes in at most as many columns as a page takes."""
    letters = min(_LONGEST, max((len(row.node) for row in rows), default=0))
    across = min(_ACROSS, max((len(row.cards) for row in rows), default=0))
    across = max(across, 4)  # room for what stands instead of cards
    name = round(LETTER * letters) + 14
    most = max(1, (_WIDE - 2 * _MARGIN + _GAP) // (name + across * _CELL + _GAP))
    high = max(_FEW_ROWS, -(-len(rows) // most))
    columns = tuple(tuple(rows[start : start + high]) for start in range(0, len(rows), high))
    return _Grid(name, across, columns)


def _height(row: model.GridRow) -> int:
    return _LINE * max(1, -(-len(row.cards) // _ACROSS))


def _column(rows: Sequence[model.GridRow], grid: _Grid, left: int) -> Iterator[str]:
    first = left + grid.name
    for rail in range(min(grid.across, max(len(row.cards) for row in rows))):
        yield text(first + rail * _CELL + _CELL // 2, _HEAD, str(rail), "faint", MIDDLE)
    top = _HEAD + 8
    for number, row in enumerate(rows):
        if not number % 2:
            yield (
                f'<rect class="stripe" x="{left - 4}" y="{top}" width="{grid.width + 8}" '
                f'height="{_height(row)}"/>'
            )
        is_well = all(card.state is model.CardState.WELL for card in row.cards) and not row.why
        name = text(
            first - 10,
            top + 14,
            page.shortened(row.node, _LONGEST),
            more=END + ("" if is_well else BOLD),
        )
        yield f"<g><title>{escape(row.node)}</title>{name}</g>"
        if not row.cards:
            yield text(first + 4, top + 14, row.why or "no cards", "faint")
        for place, card in enumerate(row.cards):
            line, rail = divmod(place, _ACROSS)
            x = first + rail * _CELL + _CELL // 2
            shape = _shape(card.state, x, top + line * _LINE + _LINE // 2)
            tip = f"{row.node} {card.name}: {card.why or card.state}"
            yield f'<g class="card"><title>{escape(tip)}</title>{shape}</g>'
        top += _height(row)


def _shape(state: model.CardState, x: int, y: int) -> str:
    match state:
        case model.CardState.WELL:
            return f'<circle class="well" cx="{x}" cy="{y}" r="5"/>'
        case model.CardState.PORT_DOWN:
            return f'<path class="port" d="M {x - 7} {y + 6} L {x} {y - 7} L {x + 7} {y + 6} Z"/>'
        case model.CardState.ILL:
            return (
                f'<rect class="bad" x="{x - 7}" y="{y - 7}" width="14" height="14" rx="2"/>'
                f'<path class="cross" d="M {x - 3} {y - 3} L {x + 3} {y + 3} '
                f'M {x + 3} {y - 3} L {x - 3} {y + 3}" stroke-width="2" fill="none"/>'
            )
        case model.CardState.GONE:
            return (
                f'<rect class="gone" x="{x - 6.5}" y="{y - 6.5}" width="13" height="13" rx="2" '
                'fill="none" stroke-width="1.5" stroke-dasharray="3 2"/>'
            )
        case _:
            return (
                f'<circle class="unseen" cx="{x}" cy="{y}" r="4.5" fill="none" stroke-width="1.5"/>'
            )


def _legend(states: Counter[model.CardState], top: int, right: int) -> Iterator[str]:
    """Yield the SVG of a legend line for each card state in use, with its count."""
    yield f'<path class="faint" d="M {_MARGIN} {top - 10} H {right} v 1 H {_MARGIN} Z"/>'
    y = top + 10
    for state in model.CardState:
        if states[state]:
            yield _shape(state, _MARGIN + 8, y)
            yield text(_MARGIN + 70, y + 4, str(states[state]), more=END + BOLD)
            yield text(_MARGIN + 80, y + 4, state)
            y += 22
