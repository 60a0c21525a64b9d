"""The tree of questions leads to each mode by answers that are true of it, and of no other one."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from kube_rdma.model.pools import Mode
from kube_rdma.pools.rules.modes import MODES
from kube_rdma_tools.mode_tree import TREE, mode_tree_svg, ways
from tests.house.tree import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def true_of(answers):
    """The modes of which all of these answers are true."""
    return [
        mode
        for mode, row in MODES.items()
        if all(question.holds(row) is answer for question, answer in answers)
    ]


def test_each_mode_is_at_the_end_of_one_way():
    assert Counter(mode for mode, _ in ways(TREE)) == Counter(Mode)


@pytest.mark.parametrize(("mode", "answers"), tuple(ways(TREE)))
def test_the_answers_are_those_of_its_row_alone(mode, answers):
    assert true_of(answers) == [mode]


def test_an_answer_that_is_wrong_is_noticed():
    answers = dict(ways(TREE))[Mode.SRIOV]
    (question, answer) = answers[-1]
    assert true_of((*answers[:-1], (question, not answer))) == [Mode.EXCLUSIVE]


def test_the_picture_of_the_page_is_the_one_that_is_drawn():
    """`python -m kube_rdma_tools.mode_tree docs/modes.svg` writes it."""
    assert (ROOT / "docs/modes.svg").read_text(encoding="utf-8") == mode_tree_svg()


def test_boxes_do_not_overlap_and_have_all_words():
    picture = ET.fromstring(mode_tree_svg())  # noqa: S314  # made here
    boxes = [
        [int(rect.get(key)) for key in ("x", "y", "width", "height")]
        for rect in picture.iter(f"{SVG}rect")
        if rect.get("x")
    ]
    assert len(boxes) == 4 + len(Mode)
    for number, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[:number]:
            apart = x >= other_x + other_width or other_x >= x + width
            assert apart or y >= other_y + other_height or other_y >= y + height
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert {mode.value for mode in Mode} <= set(words)
