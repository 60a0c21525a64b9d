"""Tables of pages that a program writes: between two HTML comments, which readers do not see."""

from __future__ import annotations

from collections.abc import Iterable

BEGIN, END = "<!-- table: {} -->", "<!-- end of table -->"


def put(page: str, begin: str, text: str) -> str:
    """Return a page with `text` between `begin` and END; raise ValueError if one is missing."""
    before, begun, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not begun or not end:
        raise ValueError(f"the page has no {begin}")
    return f"{before}{begun}\n{text}\n{end}{after}"


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table; cells may have bars, but no line breaks."""
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
