"""Shows the result of `kube-rdma verify` and of BandwidthChecks to people and programs.

The page says whose fault bad pairs are, and the verdict. A row for each pair, or a map wider than a
screen, is shown only on request. The rest is cut to the height of a terminal. The SVG has one map
of all pairs, or one for each rail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, TypeAlias

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_base.natural import natural
from kube_base.plain_text import ended
from kube_rdma.lib.json_values import json_list, json_object
from kube_rdma.lib.page import (
    Line,
    Page,
    PageRow,
    PageSection,
    PageTable,
    Sentence,
    state_of,
    wrapped,
)
from kube_rdma.lib.svg import END, PictureSize, Tone, heading, picture, text
from kube_rdma.model import verify

_MARKS = {verify.Rating.WELL: "✓", verify.Rating.SLOW: "!", verify.Rating.FAILED: "✗"}
_RIGHT = (4, 5)
_OF_MAP = 3  # pods from which on a map says more than rows
_UNCUT = 10_000  # columns of a line that is not wrapped
_MOST_DRAWN = 8  # measurements of a report; each has up to 500 pairs
_NAMES = 3  # of those that are left out for one reason
_LOOK = {
    verify.SuspectKind.CARD: "Look at the card's cable and port, and at the card",
    verify.SuspectKind.NODE: "Look at what the node's cards share: PCIe, driver, power, settings",
    verify.SuspectKind.RAIL: "Look at what the rail's cards share: the leaf switch behind them",
    verify.SuspectKind.PAIR: "Look at what lies between the two; no end of it is bad with most "
    "others",
}


def unit(run: verify.PerftestRun) -> str:
    """Return the unit of a run's figures: µs for latency, else Gb/s."""
    return "µs" if run.latency else "Gb/s"


class PairTable:
    """A table whose rows are printed one by one, with column widths that are known before."""

    def __init__(self, pods: Sequence[verify.PairedPod], run: verify.PerftestRun) -> None:
        """Make an empty table, with columns as wide as measurements among these pods need."""
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
        """Return the table's heading, without rows."""
        return ((self._table,),)

    def row(self, outcome: verify.PairOutcome) -> Page:
        """Return the table row of one measurement, which is not rated yet."""
        row = outcome.standing(latency=self._run.latency)
        devices = " → ".join(outcome.devices)
        mark, figure, share = "✗", "-", "-"
        if row is not None:
            mark, figure = "", f"{row.figure:.2f}"
            if outcome.line_gbps and not self._run.latency:
                share = f"{row.figure / outcome.line_gbps:.0%}"
        cells = (mark, outcome.client, outcome.server, devices, figure, share)
        return ((replace(self._table, rows=(PageRow(cells, state_of(mark)),), headless=True),),)


def proof_page(
    proof: verify.PairProof, width: int, height: int = 24, *, verbose: bool = False
) -> Page:
    """Return the page of a proof: map, problems and verdict; unless `verbose` it fits a screen.

    Its lines are wrapped already, because they are counted.
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
    """Wrap a sentence into lines; the first has the colour of the mark it begins with."""
    first, *others = wrapped(text, width, indent)
    return [Line(first, state_of(first[0])), *map(Line, others)]


def _cut(lines: list[Line], most: int | None) -> list[Line]:
    """Cut lines to `most`; the last one then says how many were left out."""
    if most is None or len(lines) <= most:
        return lines
    more = f"  … {len(lines) - most + 1} more lines: --verbose, or -o json"
    return [*lines[: most - 1], Line(more)]


def _suspect_lines(proof: verify.PairProof, width: int) -> list[Line]:
    """Return the lines of all suspects, each kind followed by advice where to look."""
    lines: list[Line] = []
    for kind, group in groupby(proof.suspects, lambda suspect: suspect.kind):
        for suspect in group:
            lines += _lines(f"✗ {suspect_text(suspect, unit(proof.run))}.", width, "    ")
        lines += _lines(f"    → {_LOOK[kind]}.", width, "      ")
    return lines


def suspect_text(suspect: verify.Suspect, its_unit: str) -> str:
    """Return a sentence on a suspect: its name, its number of bad pairs, and what is wrong."""
    who = _who(suspect)
    why = (suspect.why or "").rstrip(".")
    if suspect.of == 1:
        return f"{who}: {why}"
    count = f"{suspect.pairs} of {suspect.of} pairs"
    if suspect.median is None:
        return f"{who}: {count} failed: {why}"
    due = "" if suspect.due is None else f" (due {_short(suspect.due)})"
    return f"{who}: {count} at ~{_short(suspect.median)} {its_unit}{due}"


def _who(suspect: verify.Suspect) -> str:
    who = {
        verify.SuspectKind.CARD: f"{suspect.node} {suspect.device}",
        verify.SuspectKind.NODE: f"{suspect.node}, all devices",
        verify.SuspectKind.RAIL: f"rail {suspect.rail} ({suspect.device})",
        verify.SuspectKind.PAIR: f"{suspect.node} → {suspect.peer}",
    }[suspect.kind]
    if not suspect.peer_device:
        return who
    return f"{who} ({suspect.device} → {suspect.peer_device})"


def _short(figure: float) -> str:
    """Return a figure with three significant digits, or all digits before the point."""
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def _pair_lines(proof: verify.PairProof, width: int) -> list[Line]:
    """Return a line for each bad pair, for runs that have no suspects."""
    lines: list[Line] = []
    for pair in proof.rated:
        if pair.why:
            text = f"{_MARKS[pair.rating]} {_between(pair)}: {pair.why.rstrip('.')}."
            lines += _lines(text, width, "    ")
    return lines


def _absent_lines(proof: verify.PairProof, width: int) -> list[Line]:
    """Return lines about pods that take no part, grouped by reason."""
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


def _comparison_lines(proof: verify.PairProof, width: int) -> list[Line]:
    """Return the lines that compare the medians of this run and an earlier one, if any."""
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


def _between(pair: verify.RatedPair) -> str:
    outcome = pair.outcome
    return f"{outcome.client} → {outcome.server} ({' → '.join(outcome.devices)})"


def verdict(proof: verify.PairProof, *, details: bool = True) -> str:
    """Return the verdict on a run in one sentence; `details` adds the first suspect's figures."""
    rated, run = proof.rated, proof.run
    figures = sorted(pair.figure for pair in rated if pair.figure is not None)
    if not rated:
        return "Nothing was measured: at least two pods with RDMA devices are needed."
    count = _pairs(len(rated))
    spread = f"{figures[0]:.2f} to {figures[-1]:.2f} {unit(run)}" if figures else "no figure"
    if proof.is_well:
        return f"All is well: {count}, {spread}."
    rest = "".join(f"; {gap}" for gap in _gaps(proof))
    if proof.holds:
        return f"Well as far as it goes: {count}, {spread}{rest}."
    wrong = sum(pair.rating is not verify.Rating.WELL for pair in rated)
    whose = ""
    if proof.suspects:
        more = f", and {len(proof.suspects) - 1} more" if len(proof.suspects) > 1 else ""
        text = suspect_text(proof.suspects[0], unit(run))
        whose = f"; {text}{more}" if details else f"; look at {_who(proof.suspects[0])}{more}"
    elif wrong == len(rated):
        whose = f"; the first: {rated[0].why}"
    return f"Not well: {wrong} of {count}, {spread}{whose}{rest}."


def _gaps(proof: verify.PairProof) -> Iterator[str]:
    """Yield phrases about what should have been measured and was not."""
    if proof.unseen:
        yield f"{proof.unseen} could not take part"
    why = "it was interrupted" if proof.interrupted else "the time of the run was over"
    if proof.unmeasured:
        yield f"{_pairs(proof.unmeasured)} not measured, as {why}"
    elif proof.interrupted:
        yield f"{why} before its end"


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def proof_document(proof: verify.PairProof) -> dict[str, object]:
    """Return the proof as JSON values. Keys are stable: only added to, never renamed or removed.

    `figure`, `median` and `due` are in `unit` everywhere; `unmeasured` counts pairs, `unseen` the
    entries of `leftOut` that had to take part.
    """
    against = None
    if last := proof.comparison:
        against = json_object(
            last, "pairs", "missing", medianBefore=last.before, medianNow=last.now
        )
    return {
        "well": proof.is_well,
        "unit": "us" if proof.run.latency else "Gb/s",
        "test": perftest_name(proof.run),
        "pairing": proof.pairing.value,
        "interrupted": proof.interrupted,
        "pairs": [_pair_document(pair) for pair in proof.rated],
        "suspects": json_list(proof.suspects),
        "unmeasured": proof.unmeasured,
        "unseen": proof.unseen,
        "against": against,
        "leftOut": [{"name": name, "why": why} for name, why in proof.left_out],
    }


def perftest_name(run: verify.PerftestRun) -> str:
    """Return the name of the perftest program that a run uses, such as ib_write_bw."""
    return f"ib_{run.operation}_{'lat' if run.latency else 'bw'}"


def _pair_document(pair: verify.RatedPair) -> dict[str, Any]:
    outcome = pair.outcome
    return {
        **json_object(outcome, without=("rows", "failure")),
        **json_object(pair, "figure", "rating", "why"),
        "rows": [
            {"bytes": row.size, **json_object(row, "iterations", "figure", "percentile_99")}
            for row in outcome.rows
        ],
    }


def earlier_figures(
    document: Any, run: verify.PerftestRun, where: str, pairing: verify.Pairing | None = None
) -> Mapping[verify.PairKey, float]:
    """Return the figures in an earlier run's document; raise Refused if it is of another test.

    Rails measured all at once are not compared with rails one at a time: `pairing` has to be the
    same, unless it is None. Documents of releases before 0.2 lack it and are of all pairs.
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
    theirs = document.get("pairing", verify.Pairing.ALL.value)
    if pairing is not None and theirs != pairing.value:
        raise Refused(
            f"it has --pairs {theirs}, and this run has --pairs {pairing.value}",
            remedy="Give a result of the same pairs, or say what it has",
            where=where,
        )
    figures: dict[tuple[str, str, int], float] = {}
    for pair in document["pairs"]:
        try:
            key = str(pair["client"]), str(pair["server"]), int(pair["rail"])
            if pair["figure"] is not None:
                figures[key] = float(pair["figure"])
        except (KeyError, TypeError, ValueError):
            continue  # what cannot be read is compared with nothing
    return figures


# One map of all pairs: in letters for a terminal, and as SVG.

_SHADES = "·░▒▓█"  # from nothing to the best
_FAILED, _SELF, _NOBODY = "✗", " ", " "
_FEW = 9  # pods whose figures fit beside each other
_CELL, _LETTER, _NARROWEST = 44, 7.2, 420  # pixels; a letter is that wide at most
# From worst to best: dark red, orange, light, blue. Told apart by people who see no red or green.
_COLOURS = ("#8c2d04", "#e6842a", "#f6e8c3", "#67a9cf", "#2166ac")
_GREY, _EDGE = "#bbbbbb", Tone("edge", "#111820", "#ffffff", of="stroke")


def pods_of(rated: Sequence[verify.RatedPair]) -> list[str]:
    """Return the pods' names in the order of a map's rows: w-2 before w-10."""
    return sorted({end for p in rated for end in (p.outcome.client, p.outcome.server)}, key=natural)


def rails_of(rated: Sequence[verify.RatedPair]) -> list[int]:
    """Return the sorted numbers of the rails that were measured."""
    return sorted({pair.outcome.rail for pair in rated})


def heat_map_text(rated: Sequence[verify.RatedPair], *, latency: bool) -> list[str]:
    """Return the heat map as text, a line for each client, with figures if these fit."""
    pods, cells = pods_of(rated), _worst_cells(rated)
    scale = _Scale(rated, latency=latency)
    numbers = [str(number) for number in range(1, len(pods) + 1)]
    few = len(pods) <= _FEW
    width = max(7 if few else 2, len(numbers[-1]) + 1)
    name = max(map(len, pods)) + len(numbers[-1]) + 1
    lines = ["".join((" " * name, *(number.rjust(width) for number in numbers)))]
    for number, client in zip(numbers, pods, strict=True):
        head = f"{number.rjust(len(numbers[-1]))} {client}".ljust(name)
        entries = (_entry(cells.get((client, server)), scale, few=few) for server in pods)
        lines.append("".join((head, *(entry.rjust(width) for entry in entries))).rstrip())
    return lines


def heat_map_svg(rated: Sequence[verify.RatedPair], title: str, *, latency: bool) -> str:
    """Draw the heat map as SVG; a cell's tooltip has its two pods and what is wrong, if any."""
    pods, cells = pods_of(rated), _worst_cells(rated)
    scale = _Scale(rated, latency=latency)
    margin = round(_LETTER * max(map(len, pods), default=0)) + 50
    side = margin + _CELL * len(pods)
    parts = [heading(10, title)]
    for place, pod in enumerate(pods):
        middle = margin + _CELL * place + _CELL // 2
        turned = f' transform="rotate(-60 {middle} {margin - 8})"'
        label = text(margin - 8, middle + 4, pod, more=END)
        parts += [label, text(middle, margin - 8, pod, more=turned)]
    places = {pod: margin + _CELL * place for place, pod in enumerate(pods)}
    for (client, server), pair in cells.items():
        parts += _picture(pair, (places[client], places[server]), scale)
    return picture(PictureSize(max(side + 20, _NARROWEST), side + 40), title, (_EDGE,), parts)


def _worst_cells(rated: Sequence[verify.RatedPair]) -> Mapping[tuple[str, str], verify.RatedPair]:
    """Return, by client and server, the worst-rated result among their rails."""
    return _cells(sorted(rated, key=lambda pair: list(verify.Rating).index(pair.rating)))


def _cells(rated: Sequence[verify.RatedPair]) -> Mapping[tuple[str, str], verify.RatedPair]:
    """Return the last measurement by client and server in the order of a map's rows and columns.

    A lone direction stands for both.
    """
    ways = {(pair.outcome.client, pair.outcome.server): pair for pair in rated}
    both = {(server, client): pair for (client, server), pair in ways.items()} | ways
    return dict(sorted(both.items(), key=lambda one: [*map(natural, one[0])]))


class _Scale:
    """The scale of a heat map: figures are shown relative to the best one."""

    def __init__(self, rated: Sequence[verify.RatedPair], *, latency: bool) -> None:
        figures = [pair.figure for pair in rated if pair.figure is not None]
        self.best = (min if latency else max)(figures, default=0.0)
        self._latency = latency

    def goodness(self, figure: float) -> float:
        """Return how good a figure is relative to the best, from 0 to 1."""
        if self._latency:
            return self.best / figure if figure > 0 else 1.0
        return figure / self.best if self.best > 0 else 1.0

    def step(self, figure: float, count: int) -> int:
        """Return on which of `count` steps a figure is, where 0 is the worst."""
        return min(int(self.goodness(figure) * count), count - 1)


def _entry(pair: verify.RatedPair | None, scale: _Scale, *, few: bool) -> str:
    if pair is None:
        return _NOBODY
    if pair.figure is None:
        return _FAILED
    if few:
        return f"{'!' if pair.rating is verify.Rating.SLOW else ''}{pair.figure:.4g}"
    return _SHADES[scale.step(pair.figure, len(_SHADES))] * 2


def _picture(pair: verify.RatedPair, place: tuple[int, int], scale: _Scale) -> Iterator[str]:
    y, x = place
    colour, label, ink = _GREY, _FAILED, "black"
    if pair.figure is not None:
        step = scale.step(pair.figure, len(_COLOURS))
        colour, label = _COLOURS[step], f"{pair.figure:.3g}"
        ink = "black" if step in (1, 2, 3) else "white"
    edge = ' class="edge" stroke-width="2"' if pair.rating is not verify.Rating.WELL else ""
    tip = f"{pair.outcome.client} → {pair.outcome.server}: {pair.why or label}"
    yield (
        f'<g><title>{escape(tip)}</title><rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" '
        f'height="{_CELL - 2}" fill="{colour}"{edge}/>'
    )
    centre = f'x="{x + _CELL // 2}" y="{y + _CELL // 2 + 4}"'
    yield f'<text {centre} text-anchor="middle" fill="{ink}">{label}</text></g>'


def pairs_svg(proof: verify.PairProof, title: str) -> str:
    """Draw the pairs as SVG: a heat map, or a map for each of several rails."""
    draw = rail_maps_svg if len(rails_of(proof.rated)) > 1 else heat_map_svg
    return draw(proof.rated, title, latency=proof.run.latency)


Checks: TypeAlias = Sequence[tuple[str, verify.BandwidthCheckStatus]]
"""Titles and statuses of BandwidthChecks that list pairs."""


def measurement_sections(checks: Checks) -> Iterator[PageSection]:
    """Yield a section of a report for each BandwidthCheck, and one that counts further ones."""
    yield from (_measurement(*check) for check in checks[:_MOST_DRAWN])
    if more := checks[_MOST_DRAWN:]:
        yield PageSection(
            "Further measurements", (Sentence(f"{len(more)} earlier ones are left out."),)
        )


def _measurement(title: str, status: verify.BandwidthCheckStatus) -> PageSection:
    mark, proof = "✓" if status.is_well else "✗", status.listed
    result = status.result or "A run is under way; these are the figures of the run before"
    lines = [*_suspect_lines(proof, _UNCUT), *_absent_lines(proof, _UNCUT)]
    if status.pairs_measured > len(proof.rated):
        of = f"{len(proof.rated)} of {_pairs(status.pairs_measured)}"
        lines.append(Line(f"The picture has {of}: the worst, which the object lists."))
    parts = (Sentence(line.text, state=line.state) for line in lines)
    name = f"{'Latency in µs' if proof.run.latency else 'Bandwidth in Gb/s'}, {title}"
    return PageSection(
        f"Measurement {title} of {(status.start_time or '')[:10]}",
        (Line(f"{mark} {ended(result)}", state_of(mark)), *parts),
        (pairs_svg(proof, name),),
    )


# A map for each rail, with a legend: --svg of a run over several rails.

_WIDE, _MARGIN, _HEAD, _GAP = 800, 20, 74, 18
_SMALLEST, _LARGEST, _PANEL = 3, 20, 168  # pixels: of a mark, and of a rail's map as a rule
_TITLE, _LEGEND = 24, 20
# From best to worst; told apart by people who see no red or green, and by their lightness.
_SHARES = (
    (0.9, Tone("best", "#2166ac", "#4393c3"), "at least 90 % of the best"),
    (0.7, Tone("good", "#67a9cf", "#2a6f97"), "70 to 90 %"),
    (0.4, Tone("half", "#f2b04a", "#d98e1f"), "40 to 70 %"),
    (0.0, Tone("poor", "#8c2d04", "#d1495b"), "less than 40 %"),
)
_CROSS = Tone("failed", "#8c2d04", "#f0763a", of="stroke")
_UNTOLD = Tone("untold", "#e4e9ef", "#21262d")
_WORDS = {
    _CROSS.name: "the pair failed",
    _UNTOLD.name: "not measured",
    "missed": "a dot: less than is due, so the pair is not well",
}
_MISSED = Tone("missed", "#111820", "#ffffff")


class _Layout(Frozen):
    """The layout of rail maps: size of marks and maps in pixels, and maps per row."""

    mark: int
    side: int
    across: int

    def place(self, number: int) -> tuple[int, int]:
        """Return the coordinates of the upper left corner of the map with this number."""
        row, column = divmod(number, self.across)
        step = self.side + _GAP
        return _MARGIN + column * step, _HEAD + _TITLE + row * (step + _TITLE)


def rail_maps_svg(rated: Sequence[verify.RatedPair], title: str, *, latency: bool) -> str:
    """Draw a map for each rail as SVG; `title` names what was measured, with its unit."""
    pods, rails = pods_of(rated), rails_of(rated)
    places = {pod: place for place, pod in enumerate(pods)}
    layout = _laid_out(len(pods))
    scale = _Scale(rated, latency=latency)
    parts = [
        heading(_MARGIN, title),
        text(
            _MARGIN,
            52,
            f"A map for each of {len(rails)} rails. Rows are clients, columns servers, from "
            f"{pods[0]} to {pods[-1]}. The best is {scale.best:.4g}.",
            "faint",
        ),
    ]
    seen: set[str] = set()
    for number, rail in enumerate(rails):
        of_rail = [pair for pair in rated if pair.outcome.rail == rail]
        corner = layout.place(number)
        parts.append(text(corner[0], corner[1] - 7, f"rail {rail}{_who_is_bad(of_rail)}"))
        cells = _cells(of_rail)  # a retry counts, not what it repeats
        if len(cells) < len(pods) * (len(pods) - 1):
            seen.add(_UNTOLD.name)
            parts.append(_shape(_UNTOLD.name, corner, layout.side))
        for (client, server), pair in cells.items():
            at = corner[0] + places[server] * layout.mark, corner[1] + places[client] * layout.mark
            kinds = _kinds(pair, scale)
            seen |= set(kinds)
            parts.append(_mark(pair, kinds, at, layout.mark))
    _, y = layout.place(len(rails) - 1)
    bottom = y + layout.side + _GAP + 8
    legend = list(_legend(seen, bottom))
    width = max(_WIDE, layout.side + 2 * _MARGIN)
    size = PictureSize(width, bottom + _LEGEND * len(legend) // 2 + 8)
    tones = (*(tone for _, tone, _ in _SHARES), _CROSS, _UNTOLD, _MISSED)
    return picture(size, f"{title}, a map for each rail", tones, (*parts, *legend))


def _who_is_bad(of_rail: Sequence[verify.RatedPair]) -> str:
    """Return a map's caption: the pod at an end of all bad pairs, else their number if any."""
    bad = [pair.outcome for pair in of_rail if pair.rating is not verify.Rating.WELL]
    ends = [{pair.client, pair.server} for pair in bad]
    common = set.intersection(*ends) if ends else set()
    if len(common) == 1:
        return f" · {common.pop().partition('.')[0]} not well"  # without the domain, for room
    return f" · {len(bad)} not well" if bad else ""


def _laid_out(pods: int) -> _Layout:
    """Choose the layout for so many pods: marks fill a map of usual size, within limits."""
    mark = max(_SMALLEST, min(_LARGEST, _PANEL // max(pods, 1)))
    side = mark * pods
    return _Layout(mark, side, max(1, (_WIDE - 2 * _MARGIN + _GAP) // (side + _GAP)))


def _kinds(pair: verify.RatedPair, scale: _Scale) -> tuple[str, ...]:
    """Return the CSS classes of a mark, by which a pair's rating is drawn."""
    if pair.figure is None:
        return (_CROSS.name,)
    share = scale.goodness(pair.figure)
    tone = next(tone.name for least, tone, _ in _SHARES if share >= least)
    return (tone,) if pair.rating is verify.Rating.WELL else (tone, _MISSED.name)


def _mark(pair: verify.RatedPair, kinds: Sequence[str], at: tuple[int, int], size: int) -> str:
    parts = "".join(_shape(kind, at, size) for kind in kinds)
    ends = pair.outcome.devices
    tip = (
        f"{pair.outcome.client} {ends[0]} → {pair.outcome.server} {ends[1]}: "
        f"{pair.why or pair.outcome.failure or 'ok'}"
    )
    return f"<g><title>{escape(tip)}</title>{parts}</g>"


def _shape(kind: str, at: tuple[int, int], size: int) -> str:
    x, y = at
    inner = size - 1
    if kind == _MISSED.name:
        middle = f'cx="{x + inner / 2:g}" cy="{y + inner / 2:g}"'
        return f'<circle class="missed" {middle} r="{max(1.0, size / 6):g}"/>'
    if kind == _CROSS.name:
        cross = f"M{x},{y} l{inner},{inner} M{x + inner},{y} l{-inner},{inner}"
        return f'<path class="failed" fill="none" d="{cross}"/>'
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{inner}" height="{inner}"/>'


def _legend(seen: set[str], top: int) -> Iterator[str]:
    """Yield the SVG of a legend line for each kind of mark in use: the mark and its meaning."""
    words = {tone.name: meaning for _, tone, meaning in _SHARES} | _WORDS
    shown = [kind for kind in words if kind in seen]
    for number, kind in enumerate(shown):
        y = top + number * _LEGEND
        yield _shape(kind, (_MARGIN, y), 14)
        yield text(_MARGIN + 24, y + 11, words[kind], "faint")
