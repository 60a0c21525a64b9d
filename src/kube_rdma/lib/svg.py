"""What pictures have in common: a page, its words, and colours for a light and for a dark screen.

A colour is a class of the page's style, so that whoever shows the picture chooses: browsers take
the dark ones where a reader prefers them. A program that knows no such choice shows the light ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from kube_base.frozen import Frozen

LETTER = 7.4  # pixels that a letter of 12 pixels takes at most, in the fonts of _WORDS
_WORDS = 'text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 12px; }'


class Tone(Frozen):
    """A class and what it means: the colour of areas or of lines, on light and on dark ground."""

    name: str
    light: str
    dark: str
    of: str = "fill"

    def rule(self, *, dark: bool) -> str:
        """The class in the style of a page."""
        return f".{self.name} {{ {self.of}: {self.dark if dark else self.light}; }}"


GROUND = Tone("ground", "#ffffff", "#0d1117")
INK, FAINT = Tone("ink", "#1f2933", "#e6edf3"), Tone("faint", "#5d6b7a", "#9aa7b4")
_ALWAYS = (GROUND, INK, FAINT)


class PictureSize(Frozen):
    """Width and height in pixels."""

    width: int
    height: int


def picture(size: PictureSize, label: str, tones: Iterable[Tone], parts: Iterable[str]) -> str:
    """The whole file; `label` is what a reader hears who does not see it."""
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
    """A line of text whose lower left corner is at a place; `more` are further attributes."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{more}>{escape(words)}</text>'


def heading(x: float, words: str) -> str:
    """The title at the top of a picture."""
    return text(x, 30, words, more=f'{BOLD} style="font-size: 16px"')


MIDDLE, END = ' text-anchor="middle"', ' text-anchor="end"'
BOLD = ' font-weight="bold"'
