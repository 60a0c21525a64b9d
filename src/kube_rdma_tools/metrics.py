"""Writes what is made from the families of metrics: the tables of docs/metrics.md, dashboards.

`tools/metrics` runs it; tests compare what it would write with what is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.alerts import rule_groups
from kube_rdma.metrics.rules.dashboards import dashboards
from kube_rdma_tools.metric_tables import ALERTS, alerts, filled
from kube_rdma_tools.page_tables import put

PAGE, DASHBOARDS = "docs/metrics.md", "config/dashboards"
TABLES = (
    ("node", families.NODE_FAMILIES),
    ("vke", families.VKE_FAMILIES),
    ("port", families.PORT_FAMILIES),
    ("pcie", families.PCIE_FAMILIES),
    ("pod", families.POD_FAMILIES),
    ("resource", families.RESOURCE_FAMILIES),
    ("duration", families.DURATION_FAMILIES),
    ("self", families.SELF_FAMILIES),
    ("controller", families.CONTROLLER_FAMILIES),
)


def files(root: Path) -> dict[str, str]:
    """What the files hold, by their names below the repository's root."""
    boards = {
        f"{DASHBOARDS}/{name}.json": json.dumps(board, indent=2) + "\n"
        for name, board in dashboards().items()
    }
    page = filled((root / PAGE).read_text(encoding="utf-8"), TABLES)
    return {PAGE: put(page, ALERTS, alerts(rule_groups())), **boards}


if __name__ == "__main__":
    for written_name, content in files(Path(sys.argv[1])).items():
        Path(sys.argv[1], written_name).write_text(content, encoding="utf-8")
