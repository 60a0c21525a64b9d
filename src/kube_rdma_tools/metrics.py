"""Writes the tables of docs/metrics.md: families of metrics, and alerts.

`tools/metrics` runs it; tests compare what it would write with what is there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kube_rdma.install.installation import assignment, objects
from kube_rdma.metrics.rules import families
from kube_rdma.model.install import Json
from kube_rdma_tools.metric_tables import ALERTS, alerts, filled
from kube_rdma_tools.page_tables import put

PAGE, RUNBOOK = "docs/metrics.md", "docs/runbook.md"
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


def rule_groups(runbook: str = RUNBOOK) -> list[Json]:
    """Return the groups of an installation's PrometheusRule, whose alerts link to `runbook`."""
    layers = [assignment(text) for text in ("metrics.rules=true", f"metrics.runbook={runbook}")]
    (rules,) = objects(layers, part="metrics")
    groups: list[Json] = rules["spec"]["groups"]
    return groups


def page(root: Path) -> str:
    """Return a checkout's docs/metrics.md with its tables written anew."""
    text = filled((root / PAGE).read_text(encoding="utf-8"), TABLES)
    return put(text, ALERTS, alerts(rule_groups()))


if __name__ == "__main__":
    checkout = Path(sys.argv[1])
    (checkout / PAGE).write_text(page(checkout), encoding="utf-8")
