"""`python -m kube_rdma_tools.mode_page`: the tables of modes in docs/config.md.

They are written from the table in pools/rules/modes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kube_rdma.model.pools import Bind
from kube_rdma.pools.rules.modes import MODES, ModeRow
from kube_rdma_tools.page_tables import BEGIN, markdown_row, put

PAGE = Path(__file__).resolve().parents[2] / "docs" / "config.md"
_SHARES = ("mode", "what a share is", "shares", "at most", "attach", "prefer")
_CARDS = ("mode", "takes", "goes into the pod", "isolation")


def page(text: str) -> str:
    """Return the page on modes with its tables written anew."""
    return put(text, BEGIN.format("modes"), "\n".join(_tables()))


def _tables() -> Iterator[str]:
    yield from _head(_SHARES)
    for mode, row in MODES.items():
        pooled = row.bind is Bind.POOL
        yield markdown_row(
            (
                f"`{mode}`",
                row.meaning,
                f"{row.shares} per {'pool' if pooled else 'card'}",
                "–" if row.most is None else str(row.most),
                _attach(row),
                "–" if pooled else f"`{row.prefer}`",
            )
        )
    yield ""
    yield from _head(_CARDS)
    for mode, row in MODES.items():
        takes = f"{row.takes}; each belongs to one pool only" if row.owns else row.takes
        yield markdown_row((f"`{mode}`", takes, row.moves, row.isolation))


def _head(cells: tuple[str, ...]) -> Iterator[str]:
    yield markdown_row(cells)
    yield "|---" * len(cells) + "|"


def _attach(row: ModeRow) -> str:
    if row.networked is row.attach:
        return f"`{row.attach}`"
    return f"`{row.attach}`; `{row.networked}` where pods get networks from kube-rdma"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
