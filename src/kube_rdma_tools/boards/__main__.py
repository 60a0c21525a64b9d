"""`python -m kube_rdma_tools.boards ROOT`: measure all boards, and write the table of the page."""

from __future__ import annotations

import sys
from pathlib import Path

from kube_base.errors import KubeError
from kube_rdma_tools.boards.allocator import allocator
from kube_rdma_tools.boards.board import boards
from kube_rdma_tools.boards.page import MARKER, PAGE, table
from kube_rdma_tools.page_tables import put


def page(root: Path) -> str:
    """Return the text of `PAGE` of the checkout at `root`, its table of boards measured anew."""
    with allocator(root) as scheduler:
        return put((root / PAGE).read_text(encoding="utf-8"), MARKER, table(scheduler, boards()))


def main(root: Path) -> None:
    """Write `PAGE` of the checkout at `root`, its table of boards measured anew."""
    (root / PAGE).write_text(page(root), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except KubeError as error:
        sys.exit(f"error: {error}")
