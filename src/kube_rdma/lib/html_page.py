"""Shows parts of pages and SVG pictures as one HTML file that needs no other file.

A view says what stands in a PageSection (lib/page). Each text is escaped here. The policy in the
head of the file keeps a browser from running a script or fetching anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from kube_base.plain_text import plain
from kube_rdma.lib import page

_WIDEST = 48  # columns of a cell, but for the last one of its row
# Its classes are states of rows: those of a picture (lib/svg) hold in the whole file.
_STYLE = Path(__file__).with_name("html_page.css").read_text(encoding="utf-8")


def html_page(title: str, lead: str, head: page.Block, sections: Iterable[page.PageSection]) -> str:
    """Return the HTML file; `head` stands above the sections, of which empty ones are left out."""
    shown = [one for one in sections if one.parts or one.pictures]
    links = (f'<a href="#{n}">{escape(one.title)}</a>' for n, one in enumerate(shown))
    body = "\n".join(
        f'<h2 id="{n}">{escape(one.title)}</h2>\n{_parts(one.parts)}'
        + "".join(f"\n<figure>{picture}</figure>" for picture in one.pictures)
        for n, one in enumerate(shown)
    )
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>
<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1><p>{escape(lead)}</p>
{_parts(head)}
<nav>{"".join(links)}</nav>
{body}
</body></html>"""
    return "\n".join(map(plain, text.split("\n")))


def _parts(parts: page.Block) -> str:
    return "\n".join(map(_part, parts))


def _part(part: page.Part) -> str:
    if isinstance(part, page.PageTable):
        head = "".join(f"<th>{escape(cell)}</th>" for cell in part.head)
        rows = "\n".join(_row(part.head, row) for row in part.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    if isinstance(part, page.PageList):
        pairs = ((row.state, *map(escape, row.cells)) for row in part.rows)
        figures = (f'<div class="{of}"><dd>{one}</dd><dt>{it}</dt></div>' for of, one, it in pairs)
        return f"<dl>{''.join(figures)}</dl>"
    kind = f"title {part.state}" if isinstance(part, page.Line) else part.state
    return f'<p class="{kind}">{escape(part.text.strip())}</p>'


def _row(head: Sequence[str], row: page.PageRow) -> str:
    """Return a row of a table, and below it one for its notes."""
    texts = (*(page.shortened(cell, _WIDEST) for cell in row.cells[:-1]), row.cells[-1])
    named = zip(map(escape, head), map(escape, texts), strict=True)
    cells = "".join(f'<td title="{title}">{cell}</td>' for title, cell in named)
    notes = "".join(f"<p>{escape(note)}</p>" for note in row.notes)
    below = f'<tr class="note {row.state}"><td></td><td colspan="{len(head) - 1}">{notes}</td></tr>'
    return f'<tr class="{row.state}">{cells}</tr>{below if notes else ""}'
