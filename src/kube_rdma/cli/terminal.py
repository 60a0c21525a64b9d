"""Sets a page for a terminal: tables folded to its width, states in colour. Rich draws it.

cli/output decides whether a page comes here, and only then imports this module, as Rich is slow to
import. A cell that is too long goes on in the next line of its column, so nothing is cut. Colour
repeats what a mark or a word says, and stands for nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from kube_base.plain_text import plain
from kube_rdma.lib.page import (
    BELOW_NOTE,
    GAP,
    INDENT,
    NOTE,
    Page,
    PageList,
    PageRow,
    PageState,
    PageTable,
    Part,
    Sentence,
    cells_of,
    narrowed,
    worst_first,
    wrapped,
)

_STYLES = {
    PageState.UNHEALTHY: "bold red",
    PageState.WARNING: "yellow",
    PageState.UNKNOWN: "yellow",
    PageState.HEALTHY: "green",
    PageState.NONE: "",
}
_NARROWEST = 2  # columns, what a Chinese sign takes; Rich loses it in less
_UNBOUNDED = 1 << 16  # columns; what is printed has its own width already
# What a state colours: a mark, a word, or what stands before a colon; of a comment behind "#".
_MARK = re.compile(r"[# ]*(?P<mark>[A-Za-z][a-z]*(?: [a-z]+)?:|\S+)")
_TRAILING = re.compile(r"(?: |\x1b\[[0-9;]*m)+$")  # blanks, and colours that end among them


def rendered(page: Page, width: int, *, colour: bool) -> str:
    """Return the page as text for a terminal of so many columns."""
    blocks = (_block(block, width, colour=colour) for block in page)
    return "\n\n".join(filter(None, blocks))


def column_widths(cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of a table's columns in `room`; columns of several words shrink first.

    If that is not enough, words are broken, in the widest columns first.
    """
    columns = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    words = [_longest_word(column) for column in zip(*cells, strict=True)]
    titles = [max(_NARROWEST, cell_len(title)) for title in cells[0]]
    excess = sum(columns) + len(GAP) * (len(columns) - 1) - room
    while excess > 0 and (wrapping := [n for n, w in enumerate(words) if columns[n] > w]):
        columns[max(wrapping, key=columns.__getitem__)] -= 1
        excess -= 1
    if excess <= 0:
        _share(cells, columns)
        return columns
    for floors in ([-(-width // 2) for width in columns], titles, [_NARROWEST] * len(columns)):
        for _, index in sorted(((-width, n) for n, width in enumerate(columns))):
            given = max(0, min(excess, columns[index] - max(floors[index], _NARROWEST)))
            columns[index] -= given
            excess -= given
    return columns


def _share(cells: Sequence[Sequence[str]], columns: list[int]) -> None:
    """Give width that one column does not need to another that could then avoid wrapping.

    A column does not need width without which its cells take no more lines. The column that lacks
    least comes first.
    """
    texts = [*zip(*cells, strict=True)]
    lacks = [max(map(cell_len, text)) - width for text, width in zip(texts, columns, strict=True)]
    narrow = [n for n, lack in enumerate(lacks) if lack > 0]
    spare = {n: columns[n] - _least(texts[n], columns[n]) for n in narrow}
    for taker in sorted(narrow, key=lacks.__getitem__):
        others = [n for n in narrow if lacks[n] > 0 and n != taker]
        if sum(spare[n] for n in others) < lacks[taker]:
            continue
        spare[taker] = 0
        for giver in others:
            given = min(spare[giver], lacks[taker])
            columns[giver], columns[taker] = columns[giver] - given, columns[taker] + given
            spare[giver], lacks[giver] = spare[giver] - given, lacks[giver] + given
            lacks[taker] -= given


def _least(column: Sequence[str], width: int) -> int:
    """Return the smallest width at which the column's cells take no more lines than at `width`."""

    def height(room: int) -> int:
        return sum(len(wrapped(cell, room, "")) for cell in column)

    widths = range(max(_NARROWEST, min(width, _longest_word(column))), width)
    return widths.start + bisect_left(widths, -height(width), key=lambda room: -height(room))


def _longest_word(column: Sequence[str]) -> int:
    """Return the width of the longest word of a column; its title counts as one word."""
    title, *cells = column
    return max(cell_len(title), *(cell_len(word) for cell in cells for word in cell.split()), 0)


def _block(parts: Iterable[Part], width: int, *, colour: bool) -> str:
    file = StringIO()
    console = Console(
        file=file,
        width=_UNBOUNDED,
        force_terminal=True,
        color_system="standard" if colour else None,  # the user's terminal has its own shades
        legacy_windows=False,
        _environ={},
    )
    for part in parts:
        if isinstance(part, PageTable):
            _print_table(console, worst_first(part), width)
        elif isinstance(part, PageList):
            _print_list(console, worst_first(part), width)
        elif isinstance(part, Sentence):
            _print_lines(console, wrapped(plain(part.text), width, part.indent), part.state)
        else:
            _print_lines(console, (plain(part.text),), part.state)
    return "\n".join(  # Rich fills its last column
        _TRAILING.sub(lambda end: end[0].replace(" ", ""), line)
        for line in file.getvalue().splitlines()
    )


def _print_lines(console: Console, lines: Sequence[str], state: PageState = PageState.NONE) -> None:
    """Print lines unfolded; a state colours the mark at the beginning."""
    for number, line in enumerate(lines):
        text = Text(line)
        if state and not number and (mark := _MARK.match(line)):
            text.stylize(_STYLES[state], *mark.span("mark"))
        console.print(text, soft_wrap=True)


def _print_table(console: Console, table: PageTable, width: int) -> None:
    """Print a table, with notes below their rows; columns have one width in all rows."""
    shown, alike = narrowed(table, width)
    cells = [[plain(cell) for cell in line] for line in cells_of(shown)]
    if table.columns:
        cells = [cells[0], ["x" * column for column in table.columns]]
    columns = column_widths(cells, _UNBOUNDED if table.whole else width)
    grid = _grid(shown, columns, head=not table.headless)
    for row in shown.rows:
        _add(grid, row, shown.stated, dict(shown.words))
        if row.notes:
            console.print(grid, soft_wrap=True)
            for note in row.notes:
                _print_lines(console, wrapped(f"{NOTE}{plain(note)}", width, BELOW_NOTE))
            grid = _grid(shown, columns, head=False)
    if grid.row_count or not shown.rows:
        console.print(grid, soft_wrap=True)
    if alike:
        _print_lines(console, wrapped(plain(alike), width, "   "))


def _print_list(console: Console, part: PageList, width: int) -> None:
    """Print the rows of a list, indented."""
    table = PageTable(("",) * len(part.rows[0].cells), part.rows)
    cells = [[plain(cell) for cell in line] for line in cells_of(table)]
    grid = _grid(table, column_widths(cells, width - len(INDENT)), head=False)
    for row in part.rows:
        _add(grid, row, 0, {})
    console.print(Padding(grid, (0, 0, 0, len(INDENT)), expand=False), soft_wrap=True)


def _grid(table: PageTable, columns: Sequence[int], *, head: bool) -> RichTable:
    """Return an empty table of Rich whose columns have these widths."""
    grid = RichTable(
        box=None, show_header=head, header_style="", pad_edge=False, padding=(0, len(GAP), 0, 0)
    )
    for index, (title, width) in enumerate(zip(table.head, columns, strict=True)):
        justify: JustifyMethod = "right" if index in table.right else "left"
        grid.add_column(Text(title), justify=justify, overflow="fold", width=width)
    return grid


def _add(grid: RichTable, row: PageRow, stated: int, words: Mapping[str, PageState]) -> None:
    """Add a row's lines to a table; states colour the cell in the column `stated`."""
    for number, line in enumerate((row.cells, *row.parts)):
        cells = [Text(plain(cell)) for cell in line]
        usual = PageState.NONE if number else row.state
        cells[stated].stylize(_STYLES[words.get(line[stated], usual)])
        grid.add_row(*cells)
