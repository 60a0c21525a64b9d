"""The tables of docs/metrics.md, written from the families so that they cannot say otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_rdma.model.metrics import MetricFamily

BEGIN, END = "<!-- table: {} -->", "<!-- end of table -->"


def table(families: Iterable[MetricFamily]) -> str:
    """The families as a table; labels are said above it where all have the same."""
    rows = list(families)
    shared = rows[0].labels if len({row.labels for row in rows}) == 1 else None
    lines = [f"Labels of each: {_labels(shared)}.", ""] if shared else []
    head = ("series", "type", "labels", "meaning", "source")
    lines += [_line(cell for cell in head if shared is None or cell != "labels")]
    lines += ["|---" * (5 if shared is None else 4) + "|"]
    for row in rows:
        labels = [] if shared is not None else [_labels(row.labels) or "–"]
        lines.append(_line((f"`{row.name}`", row.kind, *labels, row.meaning, row.source)))
    return "\n".join(lines)


def filled(page: str, tables: Iterable[tuple[str, Sequence[MetricFamily]]]) -> str:
    """The page with its tables as they are now; ValueError for one that it has no place for."""
    for name, families in tables:
        before, begin, rest = page.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"the page has no table {name}")
        page = f"{before}{begin}\n{table(families)}\n{end}{after}"
    return page


def _labels(labels: Iterable[str] | None) -> str:
    return ", ".join(f"`{label}`" for label in labels or ())


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
