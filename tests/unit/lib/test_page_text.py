"""Rows of Markdown tables: a bar in a cell begins no other cell."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.page_tables import markdown_row

CELLS = st.lists(st.text("a |`[]", max_size=8).map(str.strip), min_size=1, max_size=5)


@given(CELLS)
def test_a_row_has_the_cells_that_it_was_made_of(cells):
    """Split at the bars that are not escaped, as GitHub splits it."""
    begin, *between, end = re.split(r"(?<!\\)\|", markdown_row(cells))
    assert (begin, end) == ("", "")
    assert [cell.strip().replace("\\|", "|") for cell in between] == cells
