"""A page for people as a value: tables, sentences and lines to copy, each with its state.

    model values ─► a view ─► Page ─┬─► page_text: the same bytes in every pipe and file
                                    └─► cli/terminal: folded and coloured

A view says what stands on a page and the state of its rows; it knows neither colours nor terminals.
Here are the parts of a page, their layout in plain text, and the parts of a Finding.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias, TypeVar

from kube_base.frozen import Frozen, replace
from kube_base.natural import natural
from kube_base.plain_text import cell_width, clipped, ended, plain
from kube_rdma.model.finding import Finding, NotSeen, Severity

GAP = "  "
NARROWEST = 12  # columns that are left of a cell that is cut
_INDENT = "    "  # of the parts of a finding
_FEW = 3  # findings that are alike and are shown one by one


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column; all rows must have the same number of cells."""
    return [max(map(cell_width, column)) for column in zip(*rows, strict=True)]


def aligned(row: Sequence[str], columns: Sequence[int], right: Collection[int] = ()) -> str:
    """Return a table's row as a line with columns of these widths; those in `right` align right."""
    places = enumerate(zip(row, columns, strict=True))
    pads = ((index, cell, " " * (width - cell_width(cell))) for index, (cell, width) in places)
    return GAP.join(
        pad + cell if index in right else cell + pad for index, cell, pad in pads
    ).rstrip()


def fitted(
    rows: Sequence[Sequence[str]], width: int, narrowed: Sequence[int]
) -> list[Sequence[str]]:
    """Return the rows of a table, with cells of the `narrowed` columns cut until it fits the page.

    These columns are cut in their order, each down to `NARROWEST`; a table that is still too wide
    stays so. A cell that was cut has "…" in its middle: names differ at their ends.
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
    """Return a cell cut to `room` columns, with "…" in place of its middle if it is longer."""
    if cell_width(cell) <= room:
        return cell
    behind = clipped(cell[::-1], (room - 1) // 2)[::-1]
    return f"{clipped(cell, room // 2)}…{behind}"


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """Return the lines of a sentence, all but the first indented; no word is cut."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


class PageState(StrEnum):
    """The state of the object that a row or sentence is about, the worst first."""

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
    """A row about one object: its cells, rows of its parts below, and sentences under it."""

    cells: tuple[str, ...]
    state: PageState = PageState.NONE
    parts: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


class PageTable(Frozen):
    """A table with a head, and a row for each object."""

    head: tuple[str, ...]
    rows: tuple[PageRow, ...]
    right: tuple[int, ...] = ()  # columns that align right
    stated: int = 0  # the column that shows the state
    # In a pipe that is too narrow: columns that are left out where they say the same in each row,
    # the last first, and columns whose cells are cut.
    spare: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    ranked: bool = False  # the rows keep their order on a terminal
    whole: bool = False  # nothing is left out or cut
    words: tuple[tuple[str, PageState], ...] = ()  # of the column `stated`, in any line of a row
    columns: tuple[int, ...] = ()  # widths, for a table whose rows come one by one
    headless: bool = False  # further rows of such a table


class PageList(Frozen):
    """A list of rows without a head, whose cells are aligned."""

    rows: tuple[PageRow, ...]
    hanging: str  # before the further lines of a row in a pipe; a terminal folds each column
    ranked: bool = False


class Sentence(Frozen):
    """A sentence that is wrapped at the width of the page."""

    text: str
    indent: str = ""  # of its later lines
    state: PageState = PageState.NONE
    loose: bool = False  # in a pipe it is one line, however long


class Line(Frozen):
    """A line that is never wrapped, such as a title or a line of a command."""

    text: str
    state: PageState = PageState.NONE


Part: TypeAlias = PageTable | PageList | Sentence | Line
Block: TypeAlias = tuple[Part, ...]
Page: TypeAlias = tuple[Block, ...]
"""Blocks have an empty line between them; one without parts is left out."""


class PageSection(Frozen):
    """A section of an HTML file: a heading, parts, and whole SVG pictures below."""

    title: str
    parts: Block = ()
    pictures: tuple[str, ...] = ()


INDENT = "  "  # of a PageList
NOTE, BELOW_NOTE = "  └ ", "    "


def state_of(mark: str) -> PageState:
    """Return the state that a mark such as ✗ stands for; NONE for an unknown mark."""
    return _OF_MARKS.get(mark, PageState.NONE)


def marked(rows: Iterable[tuple[str, ...]]) -> tuple[PageRow, ...]:
    """Return table rows with the state of the mark that is their first cell."""
    return tuple(PageRow(cells, state_of(cells[0])) for cells in rows)


def lines_of(text: str) -> Block:
    """Return the lines of a text, none of which is ever wrapped."""
    return tuple(map(Line, text.removesuffix("\n").split("\n")))


def page_text(page: Page, width: int) -> str:
    """Return the page in plain characters; `width` in columns."""
    blocks = (list(block_lines(block, width)) for block in page)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def block_lines(block: Iterable[Part], width: int) -> Iterator[str]:
    """Yield the printable lines of a block, wrapped or cut to `width` where that is allowed.

    A line break in a value does not end a line.
    """
    for part in block:
        if isinstance(part, PageTable):
            yield from map(plain, _table_lines(part, width))
        elif isinstance(part, PageList):
            columns = widths([row.cells for row in part.rows])
            for row in part.rows:
                line = f"{INDENT}{aligned(row.cells, columns)}"
                yield from map(plain, wrapped(line, width, part.hanging))
        elif isinstance(part, Sentence) and not part.loose:
            yield from wrapped(plain(part.text), width, part.indent)
        else:
            yield plain(part.text)


def widened(page: Page) -> Page:
    """Return the page with tables that are never cut or shortened to the page's width."""
    return tuple(
        tuple(replace(part, whole=True) if isinstance(part, PageTable) else part for part in block)
        for block in page
    )


Rows = TypeVar("Rows", PageTable, PageList)


def worst_first(table: Rows) -> Rows:
    """Return the table sorted by state, then in the natural order of names.

    A `ranked` table keeps its order.
    """
    if table.ranked:
        return table

    def place(row: PageRow) -> tuple[int, tuple[tuple[str | int, ...], ...]]:
        rank = _FIRST.index(row.state) if row.state in _FIRST else len(_FIRST)
        return rank, tuple(map(natural, row.cells[:2]))

    return replace(table, rows=tuple(sorted(table.rows, key=place)))


def narrowed(table: PageTable, width: int) -> tuple[PageTable, str]:
    """Return the table without some `spare` columns of equal cells, and a sentence that lists them.

    Columns are left out until the table fits the width. The sentence is "" if none is left out.
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
    """Return how many columns a page needs so that nothing of the table is cut."""
    columns = widths(cells_of(table))
    return sum(columns) + len(GAP) * (len(columns) - 1)


def _table_lines(table: PageTable, width: int) -> Iterator[str]:
    shown, alike = narrowed(table, width)
    rows: list[Sequence[str]] = [*cells_of(shown)]
    if not table.whole:
        cut = [shown.head.index(title) for title in shown.cut if title in shown.head]
        rows = fitted(rows, width, cut)
    columns = shown.columns or widths(rows)
    lines = (aligned(row, columns, shown.right) for row in rows)
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


def cells_of(table: PageTable) -> list[tuple[str, ...]]:
    """Return the cells of all lines of a table, its head first."""
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


# Findings on a page, as far as the commands print them alike: doctor, status, explain, checks.


MARKS: Mapping[Severity, str] = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.ADVICE: "·"}


def titled(mark: str, finding: Finding) -> Line:
    """Return the line with a Finding's mark, code and subject."""
    return Line(f"{mark} {finding.code}  {finding.subject}".rstrip(), state_of(mark))


def advised(mark: str, finding: Finding) -> tuple[Part, ...]:
    """Return the lines of a Finding: its title, the problem and the remedy."""
    problem = Sentence(f"    {ended(finding.problem)}", "    ")
    return titled(mark, finding), problem, Sentence(f"    → {ended(finding.remedy)}", "      ")


def labelled(texts: Mapping[str, str]) -> Iterator[Sentence]:
    """Yield a sentence for each text, behind its label; the texts align."""
    widest = max(map(len, texts))
    for label, text in texts.items():
        lead = f"{_INDENT}{label:<{widest}}  "
        yield Sentence(f"{lead}{text}", " " * len(lead))


def sentence(finding: Finding) -> str:
    """Return a Finding as one line: its subject, the problem and the remedy."""
    place = f"{finding.subject}: " if finding.subject else ""
    remedy = f" {ended(finding.remedy)}" if finding.remedy else ""
    return f"{place}{ended(finding.problem)}{remedy}"


def sentences(findings: Iterable[Finding]) -> Iterator[Sentence]:
    """Yield a sentence for each Finding behind the mark of its severity; the gravest come first."""
    rank = list(MARKS)
    for one in sorted(findings, key=lambda finding: rank.index(finding.severity)):
        mark = MARKS[one.severity]
        note = "Note: " if one.severity is Severity.ADVICE else ""
        yield Sentence(f"{mark} {note}{sentence(one)}", "  ", state_of(mark))


def folded(
    findings: Iterable[Finding], names: Iterable[str] = ()
) -> Iterator[tuple[Finding, tuple[str, ...]]]:
    """Yield the Findings; of more than three alike only the first, with the others' subjects.

    Two are alike if they differ only in their subjects, and in `names` inside their texts.
    """
    every = tuple(findings)
    words = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")
    keys = [_without_names(one, words) for one in every]
    alike: dict[Finding, list[Finding]] = {}
    for key, finding in zip(keys, every, strict=True):
        alike.setdefault(key, []).append(finding)
    for key, finding in zip(keys, every, strict=True):
        group = alike[key]
        if len(group) <= _FEW:
            yield finding, ()
        elif finding is group[0]:
            yield finding, tuple(one.subject for one in group[1:])


def _without_names(finding: Finding, words: re.Pattern[str]) -> Finding:
    """Return a Finding whose subject and `words` are replaced by …, to compare it with others."""
    name = finding.subject.rpartition("/")[2]

    def plain(text: str) -> str:
        return words.sub("…", text.replace(name, "…") if name else text)

    return replace(
        finding,
        subject="…" if name else "",
        problem=plain(finding.problem),
        cause=plain(finding.cause),
        remedy=plain(finding.remedy),
        path=(),
    )


def also(subjects: Sequence[str]) -> Iterator[Sentence]:
    """Yield a sentence that names the other subjects of a Finding; nothing without others."""
    if subjects:
        names = sorted((subject.rpartition("/")[2] for subject in subjects), key=natural)
        text = f"{_INDENT}The same holds for {len(names)} more: {', '.join(names)}."
        yield Sentence(text, _INDENT)


def located(finding: Finding) -> dict[str, str]:
    """Return a finding as JSON values."""
    return {"where": finding.subject, "problem": finding.problem, "remedy": finding.remedy}


def not_seen(parts: Iterable[NotSeen], verb: str = "seen") -> Iterator[Sentence]:
    """Yield a sentence for each part that could not be seen, with the reason."""
    for hidden in parts:
        text = f"? Not {verb}: {hidden.part}. {ended(hidden.why)}"
        yield Sentence(text, _INDENT, PageState.UNKNOWN)


def counted(count: int, word: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: ``1 node``, ``2 nodes``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
