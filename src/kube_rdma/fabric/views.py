"""Shows the cables of a cluster to people and programs: `kube-rdma fabric`.

Faults come first, then nodes; more than a few nodes that are alike have one row. The picture has a
row for each node, a column for each leaf, and a dot where cables join the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TypeAlias

from kube_base.natural import natural
from kube_rdma.lib import page
from kube_rdma.lib.json_values import json_list, json_object
from kube_rdma.lib.phrases import ranged
from kube_rdma.lib.svg import BOLD, END, MIDDLE, PictureSize, Tone, heading, picture, text
from kube_rdma.model.fabric import CableFault, NodeCables
from kube_rdma.model.finding import Finding

Told: TypeAlias = Sequence[tuple[CableFault, Finding]]
"""The faults of cables, each with the Finding that people read."""

_NONE, _WELL, _ILL, _ADVICE, _UNKNOWN = "-", "✓", "✗", "!", "?"
_NODES = ("", "NODE", "HEARD", "ACCEPTED", "LEAVES")
_PORTS = ("", "NODE", "CARD", "SWITCH PORT", "ACCEPTED")
_ALIKE = 3  # nodes; more are one row
_MOST = 256  # nodes in the picture of a report


def fabric_page(nodes: Sequence[NodeCables], told: Told, *, ports: bool = False) -> page.Page:
    """Return the page of nodes and their leaves; with `ports` it has a row for each port."""
    head, rows = (_PORTS, _port_rows(nodes)) if ports else (_NODES, _node_rows(nodes, told))
    table = page.PageTable(head, page.marked(rows), cut=("LEAVES", "SWITCH PORT", "ACCEPTED"))
    faults = [
        part for _, one in told for part in page.advised(_ILL if one.is_error else _ADVICE, one)
    ]
    wrong = sum(finding.is_error for _, finding in told)
    heard = sum(len(node.heard) for node in nodes)
    ports_of_all = sum(len(node.ports) for node in nodes)
    verdict = f"{page.counted(heard, 'card port')} of {ports_of_all} hear a switch"
    verdict = f"{verdict}, {page.counted(wrong, 'problem')}."
    if not any(node.expected for node in nodes):
        verdict += " To be told of wrong cables: kube-rdma fabric accept."
    return (tuple(faults), (table,) if table.rows else (), (page.Sentence(verdict),))


def cables_section(nodes: Sequence[NodeCables], told: Told) -> page.PageSection:
    """Return the section of a report on cables; it has a picture where a node hears a switch."""
    title = f"Cables of the first {_MOST} nodes" if nodes[_MOST:] else "Cables of the cluster"
    is_drawn = any(node.heard or node.expected for node in nodes)
    picture = (fabric_svg(nodes[:_MOST], told, title),) if is_drawn else ()
    return page.PageSection("Cables", fabric_page(nodes, told)[-1], picture)


def accepted_page(nodes: Sequence[NodeCables], *, dry: bool) -> page.Page:
    """Return how many cables are accepted, or would be (`dry`), and which ports hear no switch."""
    count = page.counted(sum(len(node.expected) for node in nodes), "cable")
    verb = "would be" if dry else "are"
    lines = [page.Sentence(f"{count} of {page.counted(len(nodes), 'node')} {verb} accepted.")]
    silent = {one.node: ", ".join(p.title for p in one.ports if not p.at) for one in nodes}
    silences = (f"? {node} hears no switch on {some}." for node, some in silent.items() if some)
    lines += [page.Sentence(each, "  ") for each in silences]
    return (tuple(lines),)


def fabric_document(nodes: Iterable[NodeCables], told: Told) -> dict[str, object]:
    """Return the cables as JSON values. Keys are stable: only added, never renamed or removed."""
    faults = [
        json_object(fault, sentence=one.problem, nextStep=one.remedy, advice=not one.is_error)
        for fault, one in told
    ]
    return {"nodes": json_list(nodes), "faults": faults}


def _node_rows(nodes: Sequence[NodeCables], told: Told) -> Iterator[tuple[str, ...]]:
    """Yield the rows of nodes, healthy ones last; more than a few that are alike have one row."""
    marks = {node: _ADVICE for fault, _ in told for node in fault.nodes}
    marks |= {node: _ILL for fault, one in told if one.is_error for node in fault.nodes}
    rows = defaultdict(list)
    for node in nodes:
        leaves = {at.switch for at in node.heard.values()}
        mark = marks.get(node.node, _WELL if leaves else _UNKNOWN)
        heard = f"{len(node.heard)}/{len(node.ports)}"
        rows[mark, heard, str(len(node.expected) or _NONE), ranged(leaves) or _NONE].append(
            node.node
        )
    for (mark, *cells), names in sorted(rows.items(), key=lambda row: row[0][0] == _WELL):
        alike = [f"{names[0]} and {len(names) - 1} alike"] if len(names) > _ALIKE else names
        yield from ((mark, name, *cells) for name in alike)


def _port_rows(nodes: Iterable[NodeCables]) -> Iterator[tuple[str, ...]]:
    for node, port in [(one, port) for one in nodes for port in one.ports]:
        place = node.places.get((port.card, port.number))
        is_wrong = place is not None and not place.takes(port.at)
        mark = _ILL if is_wrong else _WELL if port.at else _UNKNOWN
        at = str(port.at or port.unheard or "no switch is heard")
        yield mark, node.node, port.title, at, str(place or _NONE)


# The cables as a picture: `kube-rdma fabric show --svg`.

_COLUMN, _ROW, _MARGIN, _TOP = 24, 18, 20, 66  # pixels
_LETTER = 7  # pixels of a letter, also of one that stands upright
_LONGEST = 24  # letters of a name; the middle of a longer one is left out
_TONES = (
    Tone("well", "#4a90c2", "#5aa9dd"),
    Tone("wrong", "#c4460b", "#f0763a"),
    Tone("place", "#c4460b", "#f0763a", of="stroke"),
    Tone("grid", "#dde3e9", "#2b333d", of="stroke"),
    Tone("number", "#ffffff", "#0d1117"),
)


def fabric_svg(nodes: Sequence[NodeCables], told: Told, title: str) -> str:
    """Draw nodes, leaves and the cables between them as SVG, nodes in the order of leaves."""
    faulty = [cable for fault, _ in told for cable in fault.cables]
    wrong = {(cable.node, cable.seen.switch) for cable in faulty if cable.seen}
    missing = {(c.node, c.expected.switch) for c in faulty if c.expected} - wrong
    of_node = {n.node: [at.switch for at in (n.places or n.heard).values()] for n in nodes}
    every = (at.switch for n in nodes for at in (*n.heard.values(), *n.places.values()))
    leaves = sorted({*every}, key=natural)
    rows = sorted(nodes, key=lambda n: min(map(natural, of_node[n.node]), default=()))
    left = _MARGIN + _LETTER * max((len(_short(one.node)) for one in nodes), default=0) + 16
    top = _TOP + _LETTER * max((len(_short(leaf)) for leaf in leaves), default=0) + 12
    right, bottom = left + _COLUMN * len(leaves), top + _ROW * len(rows)
    head = f"Nodes: {len(nodes)}. Switches: {len(leaves)}. A number counts cables."
    parts = [heading(_MARGIN, title), text(_MARGIN, 50, head, "faint")]
    columns = {leaf: left + number * _COLUMN + _COLUMN // 2 for number, leaf in enumerate(leaves)}
    for leaf, x in columns.items():
        turned = f' transform="rotate(-90 {x + 4} {top - 6})"'
        parts.append(f'<path class="grid" d="M {x} {top} V {bottom}"/>')
        parts.append(_with_tip(leaf, text(x + 4, top - 6, _short(leaf), "faint", turned)))
    for number, node in enumerate(rows):
        y = top + number * _ROW + _ROW // 2
        is_ill = any(cable.node == node.node for cable in faulty)
        name = text(left - 8, y + 4, _short(node.node), more=END + (BOLD if is_ill else ""))
        parts += [f'<path class="grid" d="M {left} {y} H {right}"/>', _with_tip(node.node, name)]
        for leaf, x in columns.items():
            ends = [f"{p.title}: {p.at}" for p in node.ports if p.at and p.at.switch == leaf]
            if (node.node, leaf) in missing:
                parts.append(_with_tip(f"{node.node}: one belongs in {leaf}", _missing(x, y)))
            if ends:
                shape = _cables(x, y, len(ends), is_wrong=(node.node, leaf) in wrong)
                parts.append(_with_tip("\n".join((node.node, *ends)), shape))
    legend = (
        (_cables(_MARGIN + 8, bottom + 26, 1), "a cable"),
        (_cables(_MARGIN + 98, bottom + 26, 1, is_wrong=True), "one that is not as it should be"),
        (_missing(_MARGIN + 338, bottom + 26), "where one belongs"),
    )
    for (shape, meaning), x in zip(legend, (22, 112, 352), strict=True):
        parts += [shape, text(_MARGIN + x, bottom + 30, meaning)]
    return picture(PictureSize(max(right + _MARGIN, 520), bottom + 48), title, _TONES, parts)


def _short(name: str) -> str:
    """Return a name without its domain, as short as the picture needs it."""
    return page.shortened(name.partition(".")[0] or name, _LONGEST)


def _with_tip(tip: str, shape: str) -> str:
    return f"<g><title>{escape(tip)}</title>{shape}</g>"


def _cables(x: int, y: int, count: int, *, is_wrong: bool = False) -> str:
    shape = f'<circle class="well" cx="{x}" cy="{y}" r="{5 if count == 1 else 8}"/>'
    if is_wrong:
        shape = f'<rect class="wrong" x="{x - 7}" y="{y - 7}" width="14" height="14" rx="2"/>'
    words = str(count) if count > 1 else "×" if is_wrong else ""
    return shape + text(x, y + 4, words, "number", MIDDLE)


def _missing(x: int, y: int) -> str:
    circle = f'<circle class="place" cx="{x}" cy="{y}" r="6.5" fill="none"'
    return f'{circle} stroke-width="1.5" stroke-dasharray="3 2"/>'
