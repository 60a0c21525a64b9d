"""docs/metrics.md against the families that are exported."""

from pathlib import Path

from kube_rdma_tools.metrics import PAGE, page

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_families_and_alerts_say():
    """To accept a change run tools/metrics."""
    assert (ROOT / PAGE).read_text() == page(ROOT), "run tools/metrics"
