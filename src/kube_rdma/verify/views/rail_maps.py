"""A map for each rail of what a run measured, with a legend: `kube-rdma verify --svg`.

    rail 0        rail 1        …
    client ─ a mark for each server, dark where it is as good as the run's best │ what marks mean

Beside heat_map, whose cells have figures and fit few pods of one rail. A mark's tip has the pair,
its devices and what is wrong with it. Where each two have measured one way, both places have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kube_base.frozen import Frozen
from kube_rdma.lib.svg import PictureSize, Tone, heading, picture, text
from kube_rdma.model.verify.bandwidth import RatedPair, Rating
from kube_rdma.verify.views.heat_map import goodness, pair_figure, pods_of, rails_of

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
_FAILED = Tone("failed", "#8c2d04", "#f0763a", of="stroke")
_UNTOLD = Tone("untold", "#e4e9ef", "#21262d")
_WORDS = {
    _FAILED.name: "the pair failed",
    _UNTOLD.name: "not measured",
    "missed": "a dot: less than is due, so the pair is not well",
}
_MISSED = Tone("missed", "#111820", "#ffffff")


class _Layout(Frozen):
    """Pixels of a mark and of a map, and how many maps stand beside each other."""

    mark: int
    side: int
    across: int

    def place(self, number: int) -> tuple[int, int]:
        """The upper left corner of a map."""
        row, column = divmod(number, self.across)
        step = self.side + _GAP
        return _MARGIN + column * step, _HEAD + _TITLE + row * (step + _TITLE)


def rail_maps_svg(rated: Sequence[RatedPair], title: str, *, latency: bool) -> str:
    """The whole picture; `title` says what was measured, and in which unit."""
    pods, rails = pods_of(rated), rails_of(rated)
    layout = _laid_out(len(pods))
    figures = [f for pair in rated if (f := pair_figure(pair, latency=latency)) is not None]
    best = (min if latency else max)(figures, default=0.0)
    parts = [
        heading(_MARGIN, title),
        text(
            _MARGIN,
            52,
            f"A map for each of {len(rails)} rails. Rows are clients, columns servers, from "
            f"{pods[0]} to {pods[-1]}. The best is {best:.4g}.",
            "faint",
        ),
    ]
    seen: set[str] = set()
    for number, rail in enumerate(rails):
        of_rail = [pair for pair in rated if pair.outcome.rail == rail]
        corner = layout.place(number)
        bad = sum(pair.rating is not Rating.WELL for pair in of_rail)
        words = f"rail {rail}" + (f" · {bad} not well" if bad else "")
        parts.append(text(corner[0], corner[1] - 7, words))
        cells = _cells(of_rail)
        for row, client in enumerate(pods):
            for column, server in enumerate(pods):
                at = corner[0] + column * layout.mark, corner[1] + row * layout.mark
                if client != server:
                    kinds = _kinds(cells.get((client, server)), best, latency=latency)
                    seen |= set(kinds)
                    parts += _mark(cells.get((client, server)), kinds, at, layout.mark)
    _, y = layout.place(len(rails) - 1)
    bottom = y + layout.side + _GAP + 8
    legend = list(_legend(seen, bottom))
    size = PictureSize(_WIDE, bottom + _LEGEND * len(legend) // 2 + 8)
    tones = (*(tone for _, tone, _ in _SHARES), _FAILED, _UNTOLD, _MISSED)
    return picture(size, f"{title}, a map for each rail", tones, (*parts, *legend))


def _laid_out(pods: int) -> _Layout:
    """Maps as large as is usual; of many pods as large as their smallest marks need."""
    mark = max(_SMALLEST, min(_LARGEST, _PANEL // max(pods, 1)))
    side = mark * pods
    return _Layout(mark, side, max(1, (_WIDE - 2 * _MARGIN + _GAP) // (side + _GAP)))


def _cells(rated: Sequence[RatedPair]) -> Mapping[tuple[str, str], RatedPair]:
    """Of two measurements of a pair, such as a retry, the later; the other way where none is."""
    ways = {(pair.outcome.client, pair.outcome.server): pair for pair in rated}
    return {(server, client): pair for (client, server), pair in ways.items()} | ways


def _kinds(pair: RatedPair | None, best: float, *, latency: bool) -> tuple[str, ...]:
    """The classes of a mark's parts."""
    if pair is None:
        return (_UNTOLD.name,)
    figure = pair_figure(pair, latency=latency)
    if figure is None:
        return (_FAILED.name,)
    share = goodness(figure, best, latency=latency)
    tone = next(tone.name for least, tone, _ in _SHARES if share >= least)
    return (tone,) if pair.rating is Rating.WELL else (tone, _MISSED.name)


def _mark(
    pair: RatedPair | None, kinds: Sequence[str], at: tuple[int, int], size: int
) -> Iterator[str]:
    parts = "".join(_shape(kind, at, size) for kind in kinds)
    if pair is None:
        yield parts
        return
    ends = pair.outcome.devices
    tip = (
        f"{pair.outcome.client} {ends[0]} → {pair.outcome.server} {ends[1]}: "
        f"{pair.why or pair.outcome.failure or 'ok'}"
    )
    yield f"<g><title>{escape(tip)}</title>{parts}</g>"


def _shape(kind: str, at: tuple[int, int], size: int) -> str:
    x, y = at
    inner = size - 1
    if kind == _MISSED.name:
        middle = f'cx="{x + inner / 2:g}" cy="{y + inner / 2:g}"'
        return f'<circle class="missed" {middle} r="{max(1.0, size / 6):g}"/>'
    if kind == _FAILED.name:
        cross = f"M{x},{y} l{inner},{inner} M{x + inner},{y} l{-inner},{inner}"
        return f'<path class="failed" fill="none" d="{cross}"/>'
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{inner}" height="{inner}"/>'


def _legend(seen: set[str], top: int) -> Iterator[str]:
    """A line for each kind that the maps have: its mark, and what it means."""
    words = {tone.name: meaning for _, tone, meaning in _SHARES} | _WORDS
    shown = [kind for kind in words if kind in seen]
    for number, kind in enumerate(shown):
        y = top + number * _LEGEND
        yield _shape(kind, (_MARGIN, y), 14)
        yield text(_MARGIN + 24, y + 11, words[kind], "faint")
