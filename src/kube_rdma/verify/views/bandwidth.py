"""What `kube-rdma verify pods` and `nodes` show: whose fault it is, on one screen, and the verdict.

Of a big cluster a row for each pair would be thousands, and a map is wider than a screen: both are
there for those who ask. The rest is cut to the height of a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.lib.page import Line, Page, PageRow, PageTable, state_of
from kube_rdma.lib.page_text import wrapped
from kube_rdma.model.verify.bandwidth import (
    PairedPod,
    Pairing,
    PairKey,
    PairOutcome,
    PairProof,
    PerftestRun,
    RatedPair,
    Rating,
    RunComparison,
    Suspect,
    SuspectKind,
)
from kube_rdma.verify.views.heat_map import heat_map_text, pods_of

_MARKS = {Rating.WELL: "✓", Rating.SLOW: "!", Rating.FAILED: "✗"}
_RIGHT = (4, 5)
_OF_MAP = 3  # pods from which on a map says more than rows
_NAMES = 3  # of those that are left out for one reason
_LOOK = {
    SuspectKind.CARD: "Look at the card's cable and port, and at the card",
    SuspectKind.NODE: "Look at what the node's cards share: PCIe, driver, power, settings",
    SuspectKind.RAIL: "Look at what the rail's cards share: the leaf switch behind them",
    SuspectKind.PAIR: "Look at what lies between the two; no end of it is bad with most others",
}


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
        head = ("", "CLIENT", "SERVER", "DEVICES", unit(run), "OF LINE")
        wide = (1, title, title, device, 8, 7)
        columns = tuple(max(a, len(b)) for a, b in zip(wide, head, strict=True))
        self._run = run
        self._table = PageTable(head, (), _RIGHT, columns=columns)

    @property
    def head(self) -> Page:
        """The names of the columns."""
        return ((self._table,),)

    def row(self, outcome: PairOutcome) -> Page:
        """A measurement as it came; what it is worth is known when all are there."""
        row = outcome.standing(latency=self._run.latency)
        devices = " → ".join(outcome.devices)
        mark, figure, share = "✗", "-", "-"
        if row is not None:
            mark, figure = "", f"{row.figure:.2f}"
            if outcome.line_gbps and not self._run.latency:
                share = f"{row.figure / outcome.line_gbps:.0%}"
        cells = (mark, outcome.client, outcome.server, devices, figure, share)
        return ((replace(self._table, rows=(PageRow(cells, state_of(mark)),), headless=True),),)


def proof_page(proof: PairProof, width: int, height: int = 24, *, verbose: bool = False) -> Page:
    """The map, where it fits, what is wrong, one line that says it all; on one screen.

    It is wrapped here already, for lines of it are counted.
    """
    mark = "✓" if proof.is_well else "?" if proof.holds else "✗"
    last = _lines(f"{mark} {verdict(proof, details=False)}", width, "")
    room = max(height - len(last) - 4, 4)  # blank lines, and the prompt behind it
    most = None if verbose else room // 2
    wrong = _cut(_suspect_lines(proof, width) or _pair_lines(proof, width), most)
    absent = _cut(_absent_lines(proof, width), None if verbose else room // 4)
    below = (*wrong, *absent, *_comparison_lines(proof, width))
    drawn: Sequence[str] = ()
    if len(pods_of(proof.rated)) >= _OF_MAP:
        drawn = heat_map_text(proof.rated, latency=proof.run.latency)
        fits = len(drawn) + len(below) <= room and max(map(len, drawn)) <= width
        drawn = drawn if verbose or fits else ()
    return tuple(map(Line, drawn)), below, tuple(last)


def _lines(text: str, width: int, indent: str) -> list[Line]:
    """A sentence, wrapped; its mark has the colour of what it stands for."""
    first, *others = wrapped(text, width, indent)
    return [Line(first, state_of(first[0])), *map(Line, others)]


def _cut(lines: list[Line], most: int | None) -> list[Line]:
    """So many of them, and how many there are besides."""
    if most is None or len(lines) <= most:
        return lines
    more = f"  … {len(lines) - most + 1} more lines: --verbose, or -o json"
    return [*lines[: most - 1], Line(more)]


def _suspect_lines(proof: PairProof, width: int) -> list[Line]:
    """A line for each, and behind those of a kind where to look."""
    lines: list[Line] = []
    for kind, group in groupby(proof.suspects, lambda suspect: suspect.kind):
        for suspect in group:
            lines += _lines(f"✗ {suspect_text(suspect, unit(proof.run))}.", width, "    ")
        lines += _lines(f"    → {_LOOK[kind]}.", width, "      ")
    return lines


def suspect_text(suspect: Suspect, its_unit: str) -> str:
    """Who it is, and what its pairs have."""
    who = _who(suspect)
    why = suspect.why.rstrip(".")
    if suspect.of == 1:
        return f"{who}: {why}"
    count = f"{suspect.pairs} of {suspect.of} pairs"
    if suspect.median is None:
        return f"{who}: {count} failed: {why}"
    due = "" if suspect.due is None else f" (due {_short(suspect.due)})"
    return f"{who}: {count} at ~{_short(suspect.median)} {its_unit}{due}"


def _who(suspect: Suspect) -> str:
    who = {
        SuspectKind.CARD: f"{suspect.node} {suspect.device}",
        SuspectKind.NODE: f"{suspect.node}, all devices",
        SuspectKind.RAIL: f"rail {suspect.rail} ({suspect.device})",
        SuspectKind.PAIR: f"{suspect.node} → {suspect.peer}",
    }[suspect.kind]
    if not suspect.peer_device:
        return who
    return f"{who} ({suspect.device} → {suspect.peer_device})"


def _short(figure: float) -> str:
    """Three digits, of big figures all."""
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def _pair_lines(proof: PairProof, width: int) -> list[Line]:
    """Each bad pair, where none is to blame more than the others."""
    lines: list[Line] = []
    for pair in proof.rated:
        if pair.why:
            text = f"{_MARKS[pair.rating]} {_between(pair)}: {pair.why.rstrip('.')}."
            lines += _lines(text, width, "    ")
    return lines


def _absent_lines(proof: PairProof, width: int) -> list[Line]:
    """Who takes no part; those for the same reason together."""
    names: dict[str, list[str]] = {}
    for name, why in proof.left_out:
        names.setdefault(why.rstrip("."), []).append(name)
    lines: list[Line] = []
    for why, those in names.items():
        shown = ", ".join(those[:_NAMES]) + (", …" if len(those) > _NAMES else "")
        text = f"! {shown} takes no part: {why}."
        if len(those) > 1:
            text = f"! {len(those)} take no part: {why} ({shown})."
        lines += _lines(text, width, "    ")
    return lines


def _comparison_lines(proof: PairProof, width: int) -> list[Line]:
    """The run beside an earlier one as a whole; what single pairs lost is told of them."""
    compared = proof.comparison
    if compared is None:
        return []
    text = f"Beside the earlier run: {_pairs(compared.pairs)}"
    if compared.before is not None and compared.now is not None:
        its_unit = unit(proof.run)
        text += f", median {compared.before:.2f} → {compared.now:.2f} {its_unit}"
    if compared.missing:
        text += f"; {_pairs(compared.missing)} of it not measured now"
    return _lines(f"{text}.", width, "    ")


def _between(pair: RatedPair) -> str:
    outcome = pair.outcome
    return f"{outcome.client} → {outcome.server} ({' → '.join(outcome.devices)})"


def verdict(proof: PairProof, *, details: bool = True) -> str:
    """All of it in one sentence; with `details` the first suspect has its figures."""
    rated, run = proof.rated, proof.run
    rows = [pair.outcome.standing(latency=run.latency) for pair in rated]
    figures = sorted(row.figure for row in rows if row is not None)
    if not rated:
        return "Nothing was measured: at least two pods with RDMA devices are needed."
    count = _pairs(len(rated))
    spread = f"{figures[0]:.2f} to {figures[-1]:.2f} {unit(run)}" if figures else "no figure"
    if proof.is_well:
        return f"All is well: {count}, {spread}."
    rest = "".join(f"; {gap}" for gap in _gaps(proof))
    if proof.holds:
        return f"Well as far as it goes: {count}, {spread}{rest}."
    wrong = sum(pair.rating is not Rating.WELL for pair in rated)
    whose = ""
    if proof.suspects:
        more = f", and {len(proof.suspects) - 1} more" if len(proof.suspects) > 1 else ""
        text = suspect_text(proof.suspects[0], unit(run))
        whose = f"; {text}{more}" if details else f"; look at {_who(proof.suspects[0])}{more}"
    return f"Not well: {wrong} of {count}, {spread}{whose}{rest}."


def _gaps(proof: PairProof) -> Iterator[str]:
    """What was to be measured and was not."""
    if proof.unseen:
        yield f"{proof.unseen} could not take part"
    why = "it was interrupted" if proof.interrupted else "the time of the run was over"
    if proof.unmeasured:
        yield f"{_pairs(proof.unmeasured)} not measured, as {why}"
    elif proof.interrupted:
        yield f"{why} before its end"


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def proof_document(proof: PairProof) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed.

    `figure`, `median` and `due` are in `unit` everywhere; `unmeasured` counts pairs,
    `unseen` those of `leftOut` that had to take part.
    """
    return {
        "well": proof.is_well,
        "unit": "us" if proof.run.latency else "Gb/s",
        "test": perftest_name(proof.run),
        "pairing": proof.pairing.value,
        "interrupted": proof.interrupted,
        "pairs": [_pair_document(pair, proof.run) for pair in proof.rated],
        "suspects": [_suspect_document(suspect) for suspect in proof.suspects],
        "unmeasured": proof.unmeasured,
        "unseen": proof.unseen,
        "against": _comparison_document(proof.comparison),
        "leftOut": [{"name": name, "why": why} for name, why in proof.left_out],
    }


def _comparison_document(compared: RunComparison | None) -> dict[str, object] | None:
    """Null where the run is compared with none."""
    if compared is None:
        return None
    return {
        "pairs": compared.pairs,
        "missing": compared.missing,
        "medianBefore": compared.before,
        "medianNow": compared.now,
    }


def perftest_name(run: PerftestRun) -> str:
    """perftest's name of it."""
    return f"ib_{run.operation}_{'lat' if run.latency else 'bw'}"


def _suspect_document(suspect: Suspect) -> dict[str, object]:
    """What does not belong to its kind is null."""
    return {
        "kind": suspect.kind.value,
        "node": suspect.node or None,
        "device": suspect.device or None,
        "rail": suspect.rail,
        "peer": suspect.peer or None,
        "peerDevice": suspect.peer_device or None,
        "pairs": suspect.pairs,
        "of": suspect.of,
        "median": suspect.median,
        "due": suspect.due,
        "why": suspect.why or None,
    }


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


def earlier_figures(
    document: Any, run: PerftestRun, where: str, pairing: Pairing | None = None
) -> Mapping[PairKey, float]:
    """The figures of an earlier run's document; Refused when it is none, or of another test.

    Rails that were measured all at once are not compared with rails one at a time: `pairing` has
    to be the same, unless it is None. Documents of before 0.2 have none, and were of all pairs.
    """
    mine = perftest_name(run)
    if not isinstance(document, dict) or not isinstance(document.get("pairs"), list):
        raise Refused(
            "it is not a result of kube-rdma verify",
            remedy="Give a file that `kube-rdma verify … -o json` has written",
            where=where,
        )
    if document.get("test") != mine:
        raise Refused(
            f"it is of {document.get('test')}, and this run is of {mine}",
            remedy="Give a result of the same test",
            where=where,
        )
    theirs = document.get("pairing", Pairing.ALL.value)
    if pairing is not None and theirs != pairing.value:
        raise Refused(
            f"it has --pairs {theirs}, and this run has --pairs {pairing.value}",
            remedy="Give a result of the same pairs, or say what it has",
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
