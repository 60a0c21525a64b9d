"""The tables of docs/boards.md, written from what was measured so that they cannot say otherwise.

Last step of a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kube_base.frozen import Frozen
from kube_rdma_tools.boards.allocator import BoardAllocator
from kube_rdma_tools.boards.board import Board, GpuDriver
from kube_rdma_tools.boards.measure import NearCards, Row, alone, rows
from kube_rdma_tools.page_tables import markdown_row

PAGE = "docs/boards.md"
WITH_GPUS, WITHOUT_GPUS = "<!-- boards with GPUs -->", "<!-- boards without GPUs -->"

_HEAD = (
    "GPUs of a pod",
    "`kube-rdma claim` with",
    "first pod",
    "pods",
    "same root",
    "same NUMA node",
    "elsewhere",
    "left over",
)
_SAME = "A GPU driver that publishes no NUMA node gives the same.\n"
_OTHER = "With a GPU driver that publishes no NUMA node:\n"


class MeasuredBoard(Frozen):
    """A board with the rows of both GPU drivers; `cards` are claims of cards alone."""

    board: Board
    new: tuple[Row, ...]
    old: tuple[Row, ...]
    cards: tuple[Row, ...]


def measured(allocator: BoardAllocator, board: Board) -> MeasuredBoard:
    """All of one board."""
    return MeasuredBoard(
        board,
        tuple(rows(allocator, board, GpuDriver.NEW)),
        tuple(rows(allocator, board, GpuDriver.OLD)),
        () if board.gpus else tuple(alone(allocator, board)),
    )


def tables(of: Sequence[MeasuredBoard]) -> Iterator[tuple[str, str]]:
    """The marker of each place in the page, and what stands there."""
    yield WITH_GPUS, "\n".join(_section(one) for one in of if one.board.gpus)
    yield WITHOUT_GPUS, _cards_alone(one for one in of if not one.board.gpus)


def _section(of: MeasuredBoard) -> str:
    """A board with GPUs: where things are, and what pods get."""
    board = of.board
    lines = [f"### {board.name}", "", *_places(board), "", *_figures(board, of.new), ""]
    lines += [_SAME] if of.old == of.new else [_OTHER, *_figures(board, of.old), ""]
    return "\n".join(lines)


def _places(board: Board) -> Iterator[str]:
    """GPUs and cards of each PCIe root."""
    gpus, cards = Counter(board.gpus), Counter(board.cards)
    yield markdown_row(("NUMA node", "PCIe root", "GPUs", "cards"))
    yield "|---|---|---|---|"
    order = sorted({*gpus, *cards}, key=lambda place: (_numa(place.numa_node), place.root))
    for place in order:
        counts = (str(count[place] or "–") for count in (gpus, cards))
        yield markdown_row((_numa(place.numa_node), f"`{place.root}`", *counts))


def _numa(number: int | None) -> str:
    return "–" if number is None else str(number)


def _figures(board: Board, measured_rows: Iterable[Row]) -> Iterator[str]:
    yield markdown_row(_HEAD)
    yield "|---" * len(_HEAD) + "|"
    for row in measured_rows:
        words = f"`{row.request.words}`"
        every = row.every
        counts = (row.pods, every.root, every.numa_node, every.elsewhere)
        yield markdown_row(
            (
                str(row.gpus),
                f"**{words}**" if row.advised else words,
                _first(row.first) if row.pods else "waits",
                *map(str, (*counts, len(board.gpus) - every.gpus)),
            )
        )


def _first(got: NearCards) -> str:
    return f"{got.root}, {got.numa_node}, {got.elsewhere}"


def _cards_alone(of: Iterable[MeasuredBoard]) -> str:
    """One row for each board without a GPU."""
    head = ("machine", "cards", "PCIe roots", "NUMA nodes", "write", "pods")
    lines = [markdown_row(head), "|---" * len(head) + "|"]
    for made in of:
        board = made.board
        counts = (
            len(board.cards),
            len({place.root for place in board.cards}),
            len({place.numa_node for place in board.cards} - {None}),
        )
        whole, shared = made.cards
        requests = f"`kube-rdma claim`, or `kube-rdma claim {shared.request.words}`"
        pods = f"{whole.pods}, or {shared.pods}"
        lines.append(markdown_row((f"`{board.name}`", *map(str, counts), requests, pods)))
    return "\n".join(lines)
