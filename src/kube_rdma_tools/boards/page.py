"""The table of boards in docs/claims.md, written from what was measured: the last step."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kube_rdma_tools.boards.allocator import BoardAllocator
from kube_rdma_tools.boards.board import Board, GpuDriver
from kube_rdma_tools.boards.measure import Row, rows
from kube_rdma_tools.page_tables import BEGIN, markdown_row

PAGE = "docs/claims.md"
MARKER = BEGIN.format("boards")

_HEAD = ("machine", "write", "pods", "root/NUMA/far")


def table(allocator: BoardAllocator, boards: Iterable[Board]) -> str:
    """Return a Markdown table with a row for each board and number of GPUs per pod.

    Rows of the older GPU driver follow where its result differs.
    """
    lines = [markdown_row(_HEAD), "|---" * len(_HEAD) + "|"]
    for board in boards:
        new, old = (list(rows(allocator, board, driver)) for driver in GpuDriver)
        lines += map(partial(_line, board.name), new)
        others = (row for row in old if row not in new)
        lines += map(partial(_line, f"{board.name}, old driver"), others)
    return "\n".join(lines)


def _line(name: str, row: Row) -> str:
    near = row.near
    cards = f"{near.root}/{near.numa_node}/{near.elsewhere}"
    return markdown_row((name, f"`{row.request.words}`", str(row.pods), cards))
