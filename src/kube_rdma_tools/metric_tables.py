"""The tables of docs/metrics.md, written from the families so that they cannot say otherwise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kube_rdma.model.metrics import MetricFamily
from kube_rdma_tools.page_tables import BEGIN, markdown_row, put

ALERTS = "<!-- alerts -->"
FEWEST = 5  # rows with the same labels, from which on these are said once
_LABEL = re.compile(r"\{\{(?:or )?\$labels\.(\w+)(?: \$labels\.\w+)?\}\}")


def table(families: Iterable[MetricFamily]) -> str:
    """Return families as a table; labels that all have, or most of many, are named above it."""
    rows = list(families)
    (usual, count), *_ = Counter(row.labels for row in rows).most_common(1)
    is_same = count == len(rows) and bool(usual)
    is_usual = is_same or (count >= FEWEST and bool(usual))
    whose = "Labels of each" if is_same else "Labels where the column is empty"
    lines = [f"{whose}: {_labels(usual)}.", ""] if is_usual else []
    head = ("series", "type", "labels", "meaning", "source")
    lines += [markdown_row(cell for cell in head if not is_same or cell != "labels")]
    lines += ["|---" * (4 if is_same else 5) + "|"]
    for row in rows:
        own = "" if is_usual and row.labels == usual else _labels(row.labels) or "–"
        labels = [] if is_same else [own]
        lines.append(markdown_row((f"`{row.name}`", row.kind, *labels, row.meaning, row.source)))
    return "\n".join(lines)


def filled(page: str, tables: Iterable[tuple[str, Sequence[MetricFamily]]]) -> str:
    """Return the page with its tables as they are now; ValueError for a table without a place."""
    for name, families in tables:
        page = put(page, BEGIN.format(name), table(families))
    return page


def alerts(groups: Iterable[Mapping[str, Any]]) -> str:
    """Return the alerts of rule groups as a table; a label stands for its value."""
    rows = [rule for group in groups for rule in group["rules"]]
    lines = ["| alert | severity | after | when |", "|---|---|---|---|"]
    for rule in rows:
        notes = rule["annotations"]
        summary = _LABEL.sub(r"`\1`", notes["summary"])
        when = " ".join(filter(None, (summary, notes.get("threshold"))))
        name = f"[`{rule['alert']}`](runbook.md#{rule['alert'].lower()})"
        lines.append(markdown_row((name, rule["labels"]["severity"], rule["for"], when)))
    return "\n".join(lines)


def _labels(labels: Iterable[str] | None) -> str:
    return ", ".join(f"`{label}`" for label in labels or ())
