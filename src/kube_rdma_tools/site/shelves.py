"""The navigation: the shelves (sections) of docs/README.md, and below their pages all others.

docs/README.md is the one place where a page gets its shelf and its words. The table of
docs/decisions/README.md lists decisions: in the navigation they are one entry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma_tools.site.links import resolved
from kube_rdma_tools.site.pages import SHELVES, START, parent, place

_DECISION = re.compile(r"docs/decisions/\d.*")
_SHELF = re.compile(r"(?m)^## (.+)$")
_ENTRY = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


class ShelvedPage(Frozen):
    """A page on a shelf, with the words that link to it."""

    words: str
    page: str  # its name in the checkout


class PageShelf(Frozen):
    """A titled group of pages for one purpose, in reading order."""

    title: str
    entries: tuple[ShelvedPage, ...]


def shelves(index: str, pages: Collection[str]) -> tuple[PageShelf, ...]:
    """Return the shelves of docs/README.md by the links in the first cell of its tables' rows.

    Raise Refused for a link to no page of the site.
    """
    titles_and_texts = _SHELF.split(index)[1:]
    return tuple(
        PageShelf(title, tuple(_entries(text, pages)))
        for title, text in zip(titles_and_texts[::2], titles_and_texts[1::2], strict=True)
    )


def _entries(text: str, pages: Collection[str]) -> Iterator[ShelvedPage]:
    for row in text.splitlines():
        if not row.startswith("| ["):
            continue
        for words, target in _ENTRY.findall(row.split(" | ")[0]):
            page = resolved(SHELVES, target)
            if page not in pages:
                raise Refused(
                    f"the shelf has {target}, which is no page of the site",
                    remedy="Name a page, or let kube_rdma_tools/site/pages.py take it in",
                    where=SHELVES,
                )
            yield ShelvedPage(words, page)


def below(page: str, all_shelves: Collection[PageShelf], pages: Collection[str]) -> tuple[str, ...]:
    """Return the pages on no shelf, without decisions, whose parent in the navigation is `page`."""
    shelved = {entry.page for shelf in all_shelves for entry in shelf.entries}
    rest = [name for name in pages if name not in shelved and name != START]
    return tuple(name for name in rest if parent(name) == page and not _DECISION.fullmatch(name))


def navigation(page: str, all_shelves: Collection[PageShelf], pages: Collection[str]) -> str:
    """Return the toctree directives that follow a page, from which Sphinx makes its navigation."""
    lists = [_toctree("", [_document(name) for name in below(page, all_shelves, pages)])]
    if page == START:
        lists += [
            _toctree(shelf.title, [f"{e.words} <{_document(e.page)}>" for e in shelf.entries])
            for shelf in all_shelves
        ]
    return "".join(lists)


def metadata(page: str) -> str:
    """Return the header that keeps a decision out of the site's navigation; "" for other pages."""
    return "---\norphan: true\n---\n" if _DECISION.fullmatch(page) else ""


def _document(name: str) -> str:
    """Return Sphinx's absolute document name for a page."""
    return "/" + place(name).removesuffix(".md")


def _toctree(caption: str, rows: Collection[str]) -> str:
    if not rows:
        return ""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *rows, "```", ""])
