"""How tables and sentences are set on a page of fixed width."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

GAP = "  "


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


def markdown_row(cells: Iterable[str]) -> str:
    """One line of a table in Markdown; a cell may hold a bar, but no end of line."""
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """A sentence over as many lines as it needs, all but the first indented; no word is cut."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
