"""docs/claims.md says what the scheduler's own allocator gives on the example machines.

No test here needs a lab: they are here because the allocator is compiled, and `tests/kit/parts.py`
does that before labs boot.
"""

from pathlib import Path

from kube_rdma_tools.boards.__main__ import page
from kube_rdma_tools.boards.page import PAGE

ROOT = Path(__file__).parents[3]


def test_the_page_has_what_the_allocator_gives():
    """To accept a change run tools/boards."""
    assert page(ROOT) == (ROOT / PAGE).read_text()
