"""What `kube-rdma verify pods` and `nodes` show: a row for each pair, the map, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_rdma.model.bandwidth import (
    PairedPod,
    PairKey,
    PairOutcome,
    PairProof,
    PerftestRun,
    RatedPair,
    Rating,
)
from kube_rdma.model.errors import Refused
from kube_rdma.views.heat_map import heat_map_text, pods_of
from kube_rdma.views.text import aligned, wrapped

_MARKS = {Rating.WELL: "✓", Rating.SLOW: "!", Rating.FAILED: "✗"}
_RIGHT = (4, 5)
_OF_MAP = 3  # pods from which on a map says more than rows


def unit(run: PerftestRun) -> str:
    """Of a run's figures."""
    return "µs" if run.latency else "Gb/s"


class PairTable:
    """A table whose rows come one by one, so its widths are known before its rows."""

    def __init__(self, pods: Sequence[PairedPod], run: PerftestRun) -> None:
        """For measurements among these pods."""
        devices = [device.name for pod in pods for device in pod.devices]
        title = max((len(pod.title) for pod in pods), default=0)
        device = 2 * max(map(len, devices), default=0) + 3
        self._run = run
        self._head = ("", "CLIENT", "SERVER", "DEVICES", unit(run), "OF LINE")
        wide = (1, title, title, device, 8, 7)
        self._widths = [max(a, len(b)) for a, b in zip(wide, self._head, strict=True)]

    @property
    def head(self) -> str:
        """The names of the columns."""
        return aligned(self._head, self._widths, _RIGHT)

    def row(self, outcome: PairOutcome) -> str:
        """A measurement as it came; what it is worth is known when all are there."""
        row = outcome.standing(latency=self._run.latency)
        devices = " → ".join(outcome.devices)
        mark, figure, share = "✗", "-", "-"
        if row is not None:
            mark, figure = "", f"{row.figure:.2f}"
            if outcome.line_gbps and not self._run.latency:
                share = f"{row.figure / outcome.line_gbps:.0%}"
        cells = (mark, outcome.client, outcome.server, devices, figure, share)
        return aligned(cells, self._widths, _RIGHT)


def proof_text(proof: PairProof, width: int) -> str:
    """What stands below the table: the map, what is wrong, one line that says it all."""
    blocks = []
    if len(pods_of(proof.rated)) >= _OF_MAP:
        blocks.append(heat_map_text(proof.rated, latency=proof.run.latency))
    guilty = proof.suspects
    lines: list[str] = []
    for pod in guilty:
        sentence = f"✗ {pod}: nearly all of its pairs are bad. Look at its card, cable and port."
        lines += wrapped(sentence, width, "  ")
    for pair in proof.rated:
        if pair.why and not {pair.outcome.client, pair.outcome.server} & set(guilty):
            lines += wrapped(f"{_MARKS[pair.rating]} {_between(pair)}: {pair.why}.", width, "  ")
    for name, why in proof.left_out:
        lines += wrapped(f"! {name} takes no part: {why.rstrip('.')}.", width, "  ")
    blocks.append(lines)
    mark = "✓" if proof.is_well else "✗"
    blocks.append(wrapped(f"{mark} {verdict(proof)}", width, ""))
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _between(pair: RatedPair) -> str:
    outcome = pair.outcome
    return f"{outcome.client} → {outcome.server} ({' → '.join(outcome.devices)})"


def verdict(proof: PairProof) -> str:
    """All of it in one sentence."""
    rated, run = proof.rated, proof.run
    rows = [pair.outcome.standing(latency=run.latency) for pair in rated]
    figures = sorted(row.figure for row in rows if row is not None)
    if not rated:
        return "Nothing was measured: at least two pods with RDMA devices are needed."
    count = _pairs(len(rated))
    spread = f"{figures[0]:.2f} to {figures[-1]:.2f} {unit(run)}" if figures else "no figure"
    if proof.is_well:
        return f"All is well: {count}, {spread}."
    late = f"{_pairs(proof.unmeasured)} not measured, as the time of the run was over"
    if proof.holds:
        return f"Well as far as it goes: {count}, {spread}; {late}."
    rest = f"; {late}" if proof.unmeasured else ""
    wrong = sum(pair.rating is not Rating.WELL for pair in rated)
    whose = f"; look at {', '.join(proof.suspects)}" if proof.suspects else ""
    return f"Not well: {wrong} of {count}, {spread}{whose}{rest}."


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def proof_document(proof: PairProof) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed.

    `figure` and `rows[].figure` are in `unit`.
    """
    return {
        "well": proof.is_well,
        "unit": "us" if proof.run.latency else "Gb/s",
        "test": perftest_name(proof.run),
        "pairs": [_pair_document(pair, proof.run) for pair in proof.rated],
        "suspects": list(proof.suspects),
        "leftOut": [{"name": name, "why": why} for name, why in proof.left_out],
    }


def perftest_name(run: PerftestRun) -> str:
    """perftest's name of it."""
    return f"ib_{run.operation}_{'lat' if run.latency else 'bw'}"


def _pair_document(pair: RatedPair, run: PerftestRun) -> dict[str, object]:
    outcome = pair.outcome
    row = outcome.standing(latency=run.latency)
    return {
        "client": outcome.client,
        "server": outcome.server,
        "rail": outcome.rail,
        "devices": list(outcome.devices),
        "lineGbps": outcome.line_gbps,
        "figure": None if row is None else row.figure,
        "rating": pair.rating.value,
        "why": pair.why,
        "rows": [
            {
                "bytes": measured.size,
                "iterations": measured.iterations,
                "figure": measured.figure,
                "percentile99": measured.percentile_99,
            }
            for measured in outcome.rows
        ],
    }


def earlier_figures(document: Any, run: PerftestRun, where: str) -> Mapping[PairKey, float]:
    """The figures of an earlier run's document; Refused when it is none, or of another test."""
    mine = perftest_name(run)
    if not isinstance(document, dict) or not isinstance(document.get("pairs"), list):
        raise Refused(
            "it is no result of kube-rdma verify",
            remedy="Give a file that `kube-rdma verify … -o json` has written",
            where=where,
        )
    if document.get("test") != mine:
        raise Refused(
            f"it is of {document.get('test')}, and this run is of {mine}",
            remedy="Give a result of the same test",
            where=where,
        )
    figures: dict[tuple[str, str, int], float] = {}
    for pair in document["pairs"]:
        try:
            if pair["figure"] is not None:
                figures[str(pair["client"]), str(pair["server"]), int(pair["rail"])] = float(
                    pair["figure"]
                )
        except (KeyError, TypeError, ValueError):
            continue  # what cannot be read is compared with nothing
    return figures
