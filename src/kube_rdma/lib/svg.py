"""Draws SVG pictures: the page, its text, colours for a light and a dark screen, boxes in boxes.

In `picture` a colour is a class of the page's style, so that whoever shows the picture chooses.
Browsers take the dark ones where a reader prefers them; a program that knows no such choice shows
the light ones. Nested boxes have the fixed colours of their BoxLook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from kube_base.frozen import Frozen

LETTER = 7.4  # pixels that a letter of 12 pixels takes at most, in the fonts of _WORDS
_WORDS = 'text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 12px; }'


class Tone(Frozen):
    """A colour class of a picture, for areas or lines, on light and on dark ground."""

    name: str
    light: str
    dark: str
    of: str = "fill"

    def rule(self, *, dark: bool) -> str:
        """Return the CSS rule of the class."""
        return f".{self.name} {{ {self.of}: {self.dark if dark else self.light}; }}"


GROUND = Tone("ground", "#ffffff", "#0d1117")
INK, FAINT = Tone("ink", "#1f2933", "#e6edf3"), Tone("faint", "#5d6b7a", "#9aa7b4")
_ALWAYS = (GROUND, INK, FAINT)


class PictureSize(Frozen):
    """The width and height of a picture, in pixels."""

    width: int
    height: int


def picture(size: PictureSize, label: str, tones: Iterable[Tone], parts: Iterable[str]) -> str:
    """Return a whole SVG file; `label` describes the picture for people who cannot see it."""
    every = (*_ALWAYS, *tones)
    light = "\n".join(tone.rule(dark=False) for tone in every)
    dark = "\n".join(tone.rule(dark=True) for tone in every)
    style = f"{_WORDS}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size.width}" height="{size.height}" '
        f'viewBox="0 0 {size.width} {size.height}" role="img" aria-label="{escape(label)}">'
    )
    ground = '<rect class="ground" width="100%" height="100%"/>'
    return "\n".join((head, f"<style>{style}</style>", ground, *parts, "</svg>\n"))


def text(x: float, y: float, words: str, kind: str = "ink", more: str = "") -> str:
    """Return a line of text as SVG, at x on the baseline y; `more` are attributes."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{more}>{escape(words)}</text>'


def heading(x: float, words: str) -> str:
    """Return the title of a picture as SVG, at its top."""
    return text(x, 30, words, more=f'{BOLD} style="font-size: 16px"')


MIDDLE, END = ' text-anchor="middle"', ' text-anchor="end"'
BOLD = ' font-weight="bold"'


# Boxes in boxes as an SVG picture: sizes from the inside out, places from the outside in.

_GAP = 12  # pixels between boxes, and from a box to what it holds
_LINE = 16  # from one line of text to the next
_LETTER, _BOLD = 7.2, 8.2  # the width of a letter, at the size of lines and of titles
_STRIP = 20
_ROUND = 6

STYLE = """\
text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 12px; fill: #1f2933; }
.title { font-weight: bold; } .strip { font-weight: bold; }
"""


class BoxLook(Frozen):
    """The colours of a box and the kind of its border."""

    fill: str = "#ffffff"
    edge: str = "#52606d"
    ink: str = "#ffffff"
    dashed: bool = False


class NestedBox(Frozen):
    """A box with a title, and rows of boxes or lines of text below it."""

    title: str
    lines: tuple[str, ...] = ()
    rows: tuple[tuple[NestedBox, ...], ...] = ()
    look: BoxLook = BoxLook()
    strip: str = ""  # a line on a ground of the edge's colour, at the lower edge
    tip: str = ""  # that a browser shows under the pointer


def size(box: NestedBox) -> tuple[int, int]:
    """Return the width and height that a box needs for its content, in pixels."""
    text = max(_LETTER * len(line) for line in (box.strip, *box.lines))
    width = round(max(text, _BOLD * len(box.title))) + 2 * _GAP
    height = _GAP + _LINE * (1 + len(box.lines)) + (_STRIP if box.strip else 0)
    if not box.rows:
        return width, height + _GAP // 2
    rows = [_placed(row, _column(box)) for row in box.rows]
    widest = max(sum(one.width + _GAP for one in row) for row in rows)
    return max(width, widest + _GAP), height + sum(row[0].height + _GAP for row in rows)


def drawn(box: NestedBox, x: int, y: int) -> Iterator[str]:
    """Yield the SVG of a box with all boxes inside of it, its upper left corner at x and y."""
    yield from _drawn(_BoxPlace(box, *size(box)), x, y)


class _BoxPlace(Frozen):
    """A box with the width and height that it gets, which may be more than its size."""

    box: NestedBox
    width: int
    height: int


def _column(box: NestedBox) -> int:
    """Return the widest width of the boxes without rows in a box, so that these form columns."""
    return max((size(one)[0] for row in box.rows for one in row if not one.rows), default=0)


def _placed(row: tuple[NestedBox, ...], column: int) -> list[_BoxPlace]:
    """Return the boxes of a row with their widths, all as high as the highest one."""
    sizes = [(one, *size(one)) for one in row]
    highest = max(height for _, _, height in sizes)
    return [
        _BoxPlace(one, width if one.rows else max(width, column), highest)
        for one, width, _ in sizes
    ]


def _drawn(place: _BoxPlace, x: int, y: int) -> Iterator[str]:
    box, look = place.box, place.box.look
    kind = "group" if box.rows else "leaf"
    tip = f"<title>{escape(box.tip)}</title>" if box.tip else ""
    dashes = ' stroke-dasharray="5 3"' if look.dashed else ""
    yield (
        f'<g>{tip}<rect class="{kind}" x="{x}" y="{y}" width="{place.width}" '
        f'height="{place.height}" rx="{_ROUND}" fill="{look.fill}" stroke="{look.edge}" '
        f'stroke-width="1.5"{dashes}/>'
    )
    line = y + _LINE + 2
    yield text(x + _GAP, line, box.title, "title")
    for words in box.lines:
        line += _LINE
        yield text(x + _GAP, line, words, "line")
    if box.strip:
        yield from _strip(box, x, y + place.height - _STRIP, place.width)
    yield "</g>"
    top = y + _GAP + _LINE * (1 + len(box.lines))
    for row in box.rows:
        left = x + _GAP
        placed = _placed(row, _column(box))
        for inner in placed:
            yield from _drawn(inner, left, top)
            left += inner.width + _GAP
        top += placed[0].height + _GAP


def _strip(box: NestedBox, x: int, y: int, width: int) -> Iterator[str]:
    yield (
        f'<rect class="ground" x="{x}" y="{y}" width="{width}" height="{_STRIP}" rx="{_ROUND}" '
        f'fill="{box.look.edge}"/>'
    )
    middle = x + width // 2
    yield (
        f'<text class="strip" x="{middle}" y="{y + 14}" text-anchor="middle" '
        f'style="fill: {box.look.ink}">{escape(box.strip)}</text>'
    )
