"""docs/metrics.md against the families that are exported."""

from pathlib import Path

import pytest

from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.families import FAMILIES
from kube_rdma_tools.metric_tables import filled, table
from kube_rdma_tools.metrics import PAGE, TABLES, page

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_families_and_alerts_say():
    """To accept a change run tools/metrics."""
    assert (ROOT / PAGE).read_text() == page(ROOT), "run tools/metrics"


def test_every_family_stands_in_one_table():
    assert [family for _, families in TABLES for family in families] == list(FAMILIES)
    lines = (ROOT / PAGE).read_text().splitlines()
    for family in FAMILIES:
        (row,) = [line for line in lines if line.startswith(f"| `{family.name}` |")]
        assert f"| {family.kind} |" in row


def test_a_table_that_is_out_of_date_is_written_anew():
    old = "a\n<!-- table: self -->\nold\n<!-- end of table -->\nb\n"
    written = filled(old, [("self", TABLES[-1][1])])
    assert "\nold\n" not in written
    assert written.startswith("a\n")
    assert written.endswith("\nb\n")
    assert table(TABLES[-1][1]) in written


def test_labels_of_all_or_of_most_rows_are_said_once():
    """And a row with other labels has its own."""
    *_, last = table(families.PORT_FAMILIES).splitlines()
    assert last.count("`device`, `port`") == 1
    first, _, _, _, info, state, *_ = table(families.NODE_FAMILIES).splitlines()
    assert first == "Labels where the column is empty: `device`, `port`."
    assert "`firmware_version`" in info
    assert "| gauge |  | State" in state
    first, _, head, *_ = table(families.VKE_FAMILIES).splitlines()
    assert first == "Labels of each: `device`, `port`."
    assert "labels" not in head


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="table: self"):
        filled("nothing", [("self", TABLES[-1][1])])
