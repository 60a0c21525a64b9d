"""The tables of docs/metrics.md, written from metric families and alerting rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kube_rdma.metrics.rules.families import NODE
from kube_rdma.model.metrics import MetricFamily
from kube_rdma_tools.page_tables import BEGIN, markdown_row, put

ALERTS = "<!-- alerts -->"
OLD = "counters_ext/"  # a folder of old kernels
FEWEST = 5  # rows with the same labels, from which on a sentence above the table names these
_GUESS = re.compile(r"The threshold, (.*), is a guess\.")


def table(families: Iterable[MetricFamily], before: Iterable[MetricFamily] = ()) -> str:
    """Return metric families as a Markdown table; common labels are named above it.

    A family with the meaning and source of one in `before` is only named below the table, and so is
    one of `counters_ext`. The table names sources if all of them are files.
    """
    rows = list(families)
    (usual, count), *_ = Counter(row.labels for row in rows).most_common(1)
    is_usual = bool(usual) and (count == len(rows) or count >= FEWEST)
    whose = "Labels:" if count == len(rows) else "Labels, unless brackets name others:"
    lines = [f"{whose} {_labels(usual)}."] if is_usual else []
    known = {(one.meaning, one.source): one.name for one in reversed(list(before))}
    same = [row for row in rows if (row.meaning, row.source) in known]
    old = [row for row in rows if OLD in row.source]
    new = [row for row in rows if row not in (*same, *old)]
    has_files = all("`" in row.source for row in new)
    if new:
        lines += ["", f"| series{', file' * has_files} | meaning |", "|---|---|"]
    for row in new:
        name = f"`{row.name}`"
        if row.labels and not (is_usual and row.labels == usual):
            name += f" ({_labels(row.labels)})"
        meaning = row.meaning.removeprefix("Number of ")
        name += f"<br>{row.source}" * has_files
        lines.append(markdown_row((name, meaning[:1].upper() + meaning[1:])))
    beside = [_beside(row, known[row.meaning, row.source]) for row in same]
    for title, some in (
        ("Each means what the node's series with the same ending or file means", beside),
        ("Kernels before 4.5 have these, from `counters_ext`", [f"`{row.name}`" for row in old]),
    ):
        if some:
            lines += ["", f"{title}: {', '.join(some)}."]
    return "\n".join(lines).removeprefix("\n")


def _beside(row: MetricFamily, known: str) -> str:
    """Return a series' name, with its source unless the name ends like the known one."""
    return f"`{row.name}`" + f" ({row.source})" * (not row.name.endswith(known.removeprefix(NODE)))


def filled(page: str, tables: Iterable[tuple[str, Sequence[MetricFamily]]]) -> str:
    """Return the page with its tables written anew; raise ValueError if a mark is missing."""
    before: list[MetricFamily] = []
    for name, families in tables:
        page = put(page, BEGIN.format(name), table(families, before))
        before += families
    return page


def alerts(groups: Iterable[Mapping[str, Any]]) -> str:
    """Return the alerts of rule groups as a table; the runbook says what each means."""
    lines = ["| alert | severity, after | threshold |", "|---|---|---|"]
    for rule in (rule for group in groups for rule in group["rules"]):
        guess = _GUESS.sub(r"\1", rule["annotations"].get("threshold", ""))
        name = f"[`{rule['alert']}`](runbook.md#{rule['alert'].lower()})"
        lines.append(markdown_row((name, f"{rule['labels']['severity']}, {rule['for']}", guess)))
    return "\n".join(lines)


def _labels(labels: Iterable[str] | None) -> str:
    return ", ".join(f"`{label}`" for label in labels or ())
