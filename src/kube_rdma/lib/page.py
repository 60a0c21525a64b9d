"""A page for people as a value: tables, sentences and lines to copy, each with its state.

    model values ─► a view ─► Page ─┬─► page_text: the same bytes in every pipe and file
                                    └─► cli/terminal: folded and coloured

A view says what stands on a page and how its rows are; it knows neither colours nor terminals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias, TypeVar

from kube_base.frozen import Frozen, replace
from kube_base.natural import natural
from kube_base.plain_text import plain
from kube_rdma.lib.page_text import GAP, aligned, fitted, widths, wrapped


class PageState(StrEnum):
    """How the object of a row or a sentence is; what a reader looks for comes first."""

    UNHEALTHY = "unhealthy"
    WARNING = "warning"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    NONE = ""


_FIRST = (PageState.UNHEALTHY, PageState.WARNING, PageState.UNKNOWN)
_OF_MARKS = {
    "✗": PageState.UNHEALTHY,
    "!": PageState.WARNING,
    "?": PageState.UNKNOWN,
    "✓": PageState.HEALTHY,
}


class PageRow(Frozen):
    """The cells of an object, lines of its parts below them, and sentences under it."""

    cells: tuple[str, ...]
    state: PageState = PageState.NONE
    parts: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


class PageTable(Frozen):
    """A head and its rows.

    `right` are the columns that end at their edge, `stated` is the column that shows the state.
    A page in a pipe that is too narrow leaves out columns of `spare` that say the same in each row,
    the last first, and cuts cells of the columns `cut`. `ranked` rows keep their order on a
    terminal. A `whole` table is as wide as it is. `words` of the column `stated` have a state in
    whatever line of a row. `columns` are the widths of a table whose rows come one by one; behind
    its head they come `headless`.
    """

    head: tuple[str, ...]
    rows: tuple[PageRow, ...]
    right: tuple[int, ...] = ()
    stated: int = 0
    spare: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    ranked: bool = False
    whole: bool = False
    words: tuple[tuple[str, PageState], ...] = ()
    columns: tuple[int, ...] = ()
    headless: bool = False


class PageList(Frozen):
    """Cells below each other, without a head.

    What is too long goes on below, on a terminal in its own column, in a pipe behind `hanging`.
    """

    rows: tuple[PageRow, ...]
    hanging: str
    ranked: bool = False


class Sentence(Frozen):
    """A sentence that is wrapped at the width of the page; later lines begin with `indent`.

    In a pipe a `loose` one is one line, however long.
    """

    text: str
    indent: str = ""
    state: PageState = PageState.NONE
    loose: bool = False


class Line(Frozen):
    """A line that is never wrapped, such as a title or a line of a command."""

    text: str
    state: PageState = PageState.NONE


Part: TypeAlias = PageTable | PageList | Sentence | Line
Block: TypeAlias = tuple[Part, ...]
Page: TypeAlias = tuple[Block, ...]
"""Blocks have an empty line between them; one without parts is left out."""

INDENT = "  "  # of a PageList
NOTE, BELOW_NOTE = "  └ ", "    "


def state_of(mark: str) -> PageState:
    """The state that a mark stands for."""
    return _OF_MARKS.get(mark, PageState.NONE)


def marked(rows: Iterable[tuple[str, ...]]) -> tuple[PageRow, ...]:
    """Rows whose first cell is a mark."""
    return tuple(PageRow(cells, state_of(cells[0])) for cells in rows)


def lines_of(text: str) -> Block:
    """Split a text into lines that are never wrapped."""
    return tuple(map(Line, text.removesuffix("\n").split("\n")))


def page_text(page: Page, width: int) -> str:
    """The page in plain characters; `width` in columns."""
    blocks = (list(block_lines(block, width)) for block in page)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def block_lines(block: Iterable[Part], width: int) -> Iterator[str]:
    """Yield the lines of a block in printable characters; a value from outside ends no line."""
    for part in block:
        if isinstance(part, PageTable):
            yield from map(plain, _table_lines(part, width))
        elif isinstance(part, PageList):
            yield from map(plain, _list_lines(part, width))
        elif isinstance(part, Sentence) and not part.loose:
            yield from wrapped(plain(part.text), width, part.indent)
        else:
            yield plain(part.text)


def widened(page: Page) -> Page:
    """The page with tables that are neither cut nor folded."""
    return tuple(
        tuple(replace(part, whole=True) if isinstance(part, PageTable) else part for part in block)
        for block in page
    )


Rows = TypeVar("Rows", PageTable, PageList)


def worst_first(table: Rows) -> Rows:
    """Its rows as people look for them: by state, then in the natural order of their names."""
    if table.ranked:
        return table

    def place(row: PageRow) -> tuple[int, tuple[tuple[str | int, ...], ...]]:
        rank = _FIRST.index(row.state) if row.state in _FIRST else len(_FIRST)
        return rank, tuple(map(natural, row.cells[:2]))

    return replace(table, rows=tuple(sorted(table.rows, key=place)))


def narrowed(table: PageTable, width: int) -> tuple[PageTable, str]:
    """The table without columns that say the same in each row, and a sentence that says it.

    Only as many are left out as a page of this width has no room for.
    """
    alike: list[str] = []
    for title in reversed(table.spare):
        if title not in table.head or full_width(table) <= width or table.whole:
            continue
        place = table.head.index(title)
        values = {cells[place] for cells in cells_of(table)[1:]}
        if len(values) == 1:
            alike.insert(0, f"{title} {values.pop()}")
            table = _without(table, place)
    return table, f"   In all rows: {', '.join(alike)}." if alike else ""


def full_width(table: PageTable) -> int:
    """Columns of a page on which nothing is cut."""
    columns = widths(cells_of(table))
    return sum(columns) + len(GAP) * (len(columns) - 1)


def _table_lines(table: PageTable, width: int) -> Iterator[str]:
    shown, alike = narrowed(table, width)
    cells: list[Sequence[str]] = [*cells_of(shown)]
    if not table.whole:
        cut = [shown.head.index(title) for title in shown.cut if title in shown.head]
        cells = fitted(cells, width, cut)
    columns = shown.columns or widths(cells)
    lines = (aligned(row, columns, shown.right) for row in cells)
    head = next(lines)
    if not shown.headless:
        yield head
    for row in shown.rows:
        for _ in (row.cells, *row.parts):
            yield next(lines)
        for note in row.notes:
            yield from wrapped(f"{NOTE}{note}", width, BELOW_NOTE)
    if alike:
        yield from wrapped(alike, width, "   ")


def _list_lines(part: PageList, width: int) -> Iterator[str]:
    columns = widths([row.cells for row in part.rows])
    for row in part.rows:
        yield from wrapped(f"{INDENT}{aligned(row.cells, columns)}", width, part.hanging)


def cells_of(table: PageTable) -> list[tuple[str, ...]]:
    """The head and all lines below it."""
    return [table.head, *(line for row in table.rows for line in (row.cells, *row.parts))]


def _without(table: PageTable, place: int) -> PageTable:
    def rest(cells: tuple[str, ...]) -> tuple[str, ...]:
        return (*cells[:place], *cells[place + 1 :])

    return replace(
        table,
        head=rest(table.head),
        rows=tuple(
            replace(row, cells=rest(row.cells), parts=tuple(map(rest, row.parts)))
            for row in table.rows
        ),
        right=tuple(index - (index > place) for index in table.right if index != place),
        stated=table.stated - (table.stated > place),
    )
