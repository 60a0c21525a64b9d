"""Spans of a Timeline as a picture: a row for each, a bar from when to when.

The row names who works and at what, so colours only help. Spans that follow each other and do the
same kind of thing are one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from bench.timeline import TimelineSpan
from kube_base.frozen import replace
from kube_rdma.lib.page import shortened
from kube_rdma.lib.svg import MIDDLE, PictureSize, Tone, heading, picture, text

_WIDTH, _LINE, _MARGIN = 800, 20, 20
_LANE, _WORK = 86, 290  # pixels of the two columns of words
_LEFT = _MARGIN + _LANE + _WORK
_ROOM = 64  # pixels behind the last bar, for its time
_LETTERS = 40  # of the work, whose end says how much more it is; all of it is in the tip
_HEAD = 92
_THINNEST = 2.0
_SHORTEST = 1.0  # ms that there is room for at least: of a moment alone no scale could be made
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_TICKS = 7
_LANES = {
    "API server": Tone("api", "#0072b2", "#5aa9dd"),
    "kubelet": Tone("kubelet", "#9a5f86", "#cc79a7"),
    "disk": Tone("disk", "#7b8794", "#8b98a5"),
    "addresses": Tone("addresses", "#b87a00", "#e3b341"),
    "kernel": Tone("kernel", "#00805c", "#2fb98d"),
    "agent": Tone("agent", "#4c46d6", "#8f8af0"),
}
_TONES = (*_LANES.values(), Tone("grid", "#dfe5ec", "#262d36", of="stroke"))


def timeline_svg(spans: Sequence[TimelineSpan], title: str, note: str) -> str:
    """The whole picture; `note` says below the title where the spans are from."""
    rows = list(merged(spans))
    end = max((row.end for row in rows), default=0.0)
    width = max(end, _SHORTEST)
    scale = (_WIDTH - _ROOM - _LEFT) / width
    bottom = _HEAD + _LINE * len(rows)
    parts = [
        heading(_MARGIN, title),
        text(_MARGIN, 50, note, "faint", ' style="font-size: 11px"'),
        *_grid(width, scale, bottom),
    ]
    for number, row in enumerate(rows):
        parts += _row(row, _HEAD + _LINE * number, scale)
    return picture(PictureSize(_WIDTH, bottom + _MARGIN), f"{title}: {end:.1f} ms", _TONES, parts)


def merged(spans: Iterable[TimelineSpan]) -> Iterator[TimelineSpan]:
    """Steps of one kind behind each other are one: the first word of their text is the same."""
    row: TimelineSpan | None = None
    more = 0
    for span in sorted(spans, key=lambda one: one.begin):
        if row and _alike(row, span):
            row, more = replace(row, end=span.end), more + 1
            continue
        if row:
            yield _counted(row, more)
        row, more = span, 0
    if row:
        yield _counted(row, more)


def _alike(row: TimelineSpan, span: TimelineSpan) -> bool:
    verbs = {one.text.partition(" ")[0] for one in (row, span)}
    return row.lane == span.lane == "kernel" and len(verbs) == 1 and span.begin >= row.end


def _counted(row: TimelineSpan, more: int) -> TimelineSpan:
    return replace(row, text=f"{row.text}, and {more} more") if more else row


def _grid(end: float, scale: float, bottom: int) -> Iterator[str]:
    step = next((one for one in _STEPS if end / one <= _MOST_TICKS), _STEPS[-1])
    for number in range(int(end / step) + 1):
        x = round(_LEFT + number * step * scale, 1)
        yield f'<path class="grid" d="M {x} {_HEAD - 8} V {bottom}" stroke-width="1"/>'
        label = f"{number * step:g}" + (" ms" if number == 0 else "")
        yield text(x, _HEAD - 14, label, "faint", MIDDLE)


def _row(row: TimelineSpan, top: int, scale: float) -> Iterator[str]:
    x, middle = _LEFT + row.begin * scale, top + 14
    width = max(_THINNEST, (row.end - row.begin) * scale)
    milliseconds = row.end - row.begin
    lasted = f"{milliseconds:.1f} ms" if milliseconds >= 0.05 else "< 0.1 ms"
    tip = f"{row.text}: {lasted}, from {row.begin:.2f} ms on"
    yield f"<g><title>{escape(tip)}</title>"
    yield text(_MARGIN, middle, row.lane, "faint", ' style="font-size: 11px"')
    yield text(
        _MARGIN + _LANE, middle, shortened(row.text, _LETTERS), more=' style="font-size: 11px"'
    )
    yield (
        f'<rect class="{_LANES[row.lane].name}" x="{x:.1f}" y="{top + 4}" width="{width:.1f}" '
        f'height="{_LINE - 8}" rx="2"/>'
    )
    yield text(round(x + width + 5, 1), middle, lasted, "faint", ' style="font-size: 11px"')
    yield "</g>"
