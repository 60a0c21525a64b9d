"""Draws docs/modes.svg: which mode is the right one, as a tree of questions.

    python -m kube_rdma_tools.mode_tree docs/modes.svg

The tree is written by hand; the text of a mode comes from the table of pools/rules/modes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TypeAlias

from kube_base.frozen import Frozen
from kube_rdma.lib.page import wrapped
from kube_rdma.model.pools import Mode
from kube_rdma.pools.rules.modes import MODES

_WIDTH, _LINE, _GAP, _DROP = 216, 17, 14, 56  # pixels: a box, a line, between boxes, between levels
_LETTERS = 27  # of a line in a box
_HEAD = 24
_STYLE = """\
text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 12px; fill: #1f2933; }
.mode { font-weight: bold; font-size: 14px; } .answer { font-style: italic; }
"""


class ModeQuestion(Frozen):
    """A yes/no question about modes; each answer leads to a mode or another question."""

    text: str
    yes: Choice
    no: Choice


Choice: TypeAlias = "ModeQuestion | Mode"

TREE = ModeQuestion(
    "Does each pod open all cards of its node?",
    Mode.HCA,
    ModeQuestion(
        "Does a pod get the hardware itself, not an interface on top of it?",
        ModeQuestion(
            "Are cards divided into virtual functions?",
            Mode.SRIOV,
            Mode.EXCLUSIVE,
        ),
        ModeQuestion(
            "Is one pod at a time enough for a card?",
            Mode.SHARED,
            Mode.SHARED_MULTI,
        ),
    ),
)


class _DrawnPart(Frozen):
    """A drawn part of the tree: its SVG, right and bottom edge, and the x of its root's middle."""

    parts: tuple[str, ...]
    right: int
    bottom: int
    middle: int


def mode_tree_svg() -> str:
    """Draw the whole tree of questions about modes as SVG."""
    drawn = _drawn(TREE, _GAP, _HEAD)
    width, height = drawn.right + _GAP, drawn.bottom + _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="Which mode?">'
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join((head, f"<style>{_STYLE}</style>", ground, *drawn.parts, "</svg>\n"))


def _drawn(choice: Choice, left: int, top: int) -> _DrawnPart:
    """Draw a mode, or a question with everything below it, yes on the left."""
    if isinstance(choice, Mode):
        return _mode(choice, left, top)
    lines = wrapped(choice.text, _LETTERS, "")
    height = _LINE * len(lines) + _GAP
    yes = _drawn(choice.yes, left, top + height + _DROP)
    no = _drawn(choice.no, yes.right + _GAP, top + height + _DROP)
    middle = (yes.middle + no.middle) // 2
    box = _box(middle - _WIDTH // 2, top, height, ("#fff3c4", "#b44d12"))
    words = [_text(middle, top + _LINE * (n + 1), line, "") for n, line in enumerate(lines)]
    below = top + height
    links = [*_link(middle, below, yes.middle, "yes"), *_link(middle, below, no.middle, "no")]
    parts = (box, *words, *links, *yes.parts, *no.parts)
    return _DrawnPart(parts, no.right, max(yes.bottom, no.bottom), middle)


def _mode(mode: Mode, left: int, top: int) -> _DrawnPart:
    """Draw a leaf of the tree: the mode's name, and what a share of it is."""
    lines = wrapped(MODES[mode].meaning, _LETTERS, "")
    height = _LINE * (1 + len(lines)) + _GAP
    middle = left + _WIDTH // 2
    box = _box(left, top, height, ("#e3f9e5", "#3f9142"))
    name = _text(middle, top + _LINE, mode.value, "mode")
    words = [_text(middle, top + _LINE * (n + 2), line, "") for n, line in enumerate(lines)]
    return _DrawnPart((box, name, *words), left + _WIDTH, top + height, middle)


def _box(left: int, top: int, height: int, colours: tuple[str, str]) -> str:
    fill, edge = colours
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{height}" rx="6" fill="{fill}" '
        f'stroke="{edge}" stroke-width="1.5"/>'
    )


def _text(middle: int, y: int, words: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{middle}" y="{y + 4}" text-anchor="middle"{named}>{escape(words)}</text>'


def _link(start: int, top: int, end: int, answer: str) -> Iterator[str]:
    """Yield the SVG of a line from a question to an answer, and of its word, yes or no."""
    turn = top + _DROP // 2
    way = f"M {start} {top} V {turn} H {end} V {top + _DROP}"
    yield f'<path d="{way}" fill="none" stroke="#52606d" stroke-width="1.5"/>'
    yield _text((start + end) // 2, turn - 10, answer, "answer")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(mode_tree_svg(), encoding="utf-8")
