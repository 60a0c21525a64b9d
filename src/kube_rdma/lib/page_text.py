"""How tables and sentences are set on a page of fixed width."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

GAP = "  "
NARROWEST = 12  # columns that are left of a cell that is cut


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """How wide each column must be; all rows have the same number of cells."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(row: Sequence[str], columns: Sequence[int], right: Collection[int] = ()) -> str:
    """One line of a table with columns of these widths; `right` ones end at their edge."""
    cells = (
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(row, columns, strict=True))
    )
    return GAP.join(cells).rstrip()


def fitted(
    rows: Sequence[Sequence[str]], width: int, narrowed: Sequence[int]
) -> list[Sequence[str]]:
    """The rows of a table, with cells of the `narrowed` columns cut until it fits the page.

    The first of these columns gives way first, each down to `NARROWEST`; then the table is as wide
    as it is. A cell that was cut has "…" in its middle: names differ at their ends.
    """
    made = [list(row) for row in rows]
    for column in narrowed:
        columns = widths(made)
        excess = sum(columns) + len(GAP) * (len(columns) - 1) - width
        if excess <= 0:
            break
        room = max(NARROWEST, columns[column] - excess)
        for row in made:
            row[column] = shortened(row[column], room)
    return [tuple(row) for row in made]


def shortened(cell: str, room: int) -> str:
    """The text in `room` characters, without its middle where it is longer."""
    if len(cell) <= room:
        return cell
    before, behind = room // 2, (room - 1) // 2
    return f"{cell[:before]}…{cell[len(cell) - behind :]}"


def first_names(names: Sequence[str], most: int) -> str:
    """The first ones, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """A sentence over as many lines as it needs, all but the first indented; no word is cut."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
