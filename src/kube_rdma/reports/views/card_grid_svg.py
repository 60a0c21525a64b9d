"""The state of all cards as a picture: `kube-rdma status --svg`.

    node ─ a mark for each card, by PCI address │ the next column of nodes … │ what marks mean

A mark says its state by its shape and by its colour, so it is read without colours too. What is
well is small and calm; what is not stands out. A mark's tip has the card's name and the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from kube_base.frozen import Frozen
from kube_rdma.lib.finding_lines import counted
from kube_rdma.lib.page_text import shortened
from kube_rdma.lib.svg import BOLD, END, LETTER, MIDDLE, PictureSize, Tone, heading, picture, text
from kube_rdma.model.reports.card_grid import CardState, GridCard, GridRow

_CELL, _LINE = 22, 20  # pixels of a card's place
_ACROSS = 16  # cards of a node in one line; further ones are below
_WIDE, _FEW = 800, 4  # pixels of a page; rows that are not divided into columns
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
    """How rows are laid out: letters of names, cards in a line, rows in each column of nodes."""

    name: int
    across: int
    columns: tuple[tuple[GridRow, ...], ...]

    @property
    def width(self) -> int:
        """Of a column of nodes."""
        return self.name + self.across * _CELL


def card_grid_svg(rows: Sequence[GridRow], title: str) -> str:
    """The whole picture; `title` is what people call the cluster."""
    grid = _laid_out(rows)
    states = Counter(card.state for row in rows for card in row.cards)
    head = f"{counted(len(rows), 'node')}, {counted(states.total(), 'card')}"
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


def _laid_out(rows: Sequence[GridRow]) -> _Grid:
    """As many columns of nodes beside each other as a page takes, all about as high."""
    letters = min(_LONGEST, max((len(row.node) for row in rows), default=0))
    across = min(_ACROSS, max((len(row.cards) for row in rows), default=0))
    across = max(across, 4)  # room for what stands instead of cards
    name = round(LETTER * letters) + 14
    most = max(1, (_WIDE - 2 * _MARGIN + _GAP) // (name + across * _CELL + _GAP))
    high = max(_FEW, -(-len(rows) // most))
    columns = tuple(tuple(rows[start : start + high]) for start in range(0, len(rows), high))
    return _Grid(name, across, columns)


def _height(row: GridRow) -> int:
    return _LINE * max(1, -(-len(row.cards) // _ACROSS))


def _column(rows: Sequence[GridRow], grid: _Grid, left: int) -> Iterator[str]:
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
        is_well = all(card.state is CardState.WELL for card in row.cards) and not row.why
        name = text(
            first - 10,
            top + 14,
            shortened(row.node, _LONGEST),
            more=END + ("" if is_well else BOLD),
        )
        yield f"<g><title>{escape(row.node)}</title>{name}</g>"
        if not row.cards:
            yield text(first + 4, top + 14, row.why or "no cards", "faint")
        for place, card in enumerate(row.cards):
            line, rail = divmod(place, _ACROSS)
            x = first + rail * _CELL + _CELL // 2
            yield from _mark(card, x, top + line * _LINE + _LINE // 2, row.node)
        top += _height(row)


def _mark(card: GridCard, x: int, y: int, node: str) -> Iterator[str]:
    """A card's place with its tip."""
    tip = f"{node} {card.name}: {card.why or card.state}"
    yield f'<g class="card"><title>{escape(tip)}</title>{_shape(card.state, x, y)}</g>'


def _shape(state: CardState, x: int, y: int) -> str:
    match state:
        case CardState.WELL:
            return f'<circle class="well" cx="{x}" cy="{y}" r="5"/>'
        case CardState.PORT_DOWN:
            return f'<path class="port" d="M {x - 7} {y + 6} L {x} {y - 7} L {x + 7} {y + 6} Z"/>'
        case CardState.ILL:
            return (
                f'<rect class="bad" x="{x - 7}" y="{y - 7}" width="14" height="14" rx="2"/>'
                f'<path class="cross" d="M {x - 3} {y - 3} L {x + 3} {y + 3} '
                f'M {x + 3} {y - 3} L {x - 3} {y + 3}" stroke-width="2" fill="none"/>'
            )
        case CardState.GONE:
            return (
                f'<rect class="gone" x="{x - 6.5}" y="{y - 6.5}" width="13" height="13" rx="2" '
                'fill="none" stroke-width="1.5" stroke-dasharray="3 2"/>'
            )
        case _:
            return (
                f'<circle class="unseen" cx="{x}" cy="{y}" r="4.5" fill="none" stroke-width="1.5"/>'
            )


def _legend(states: Counter[CardState], top: int, right: int) -> Iterator[str]:
    """A line for each state that a card has, with how many have it."""
    yield f'<path class="faint" d="M {_MARGIN} {top - 10} H {right} v 1 H {_MARGIN} Z"/>'
    y = top + 10
    for state in CardState:
        if states[state]:
            yield _shape(state, _MARGIN + 8, y)
            yield text(_MARGIN + 70, y + 4, str(states[state]), more=END + BOLD)
            yield text(_MARGIN + 80, y + 4, state)
            y += 22
