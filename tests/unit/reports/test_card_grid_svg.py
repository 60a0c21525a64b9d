"""The picture of all cards: a mark for each, in its place, with words that are escaped."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.reports import CardState, GridCard, GridRow, ReportedPort
from kube_rdma.reports.rules.node_report import card_grid
from kube_rdma.reports.views import card_grid_svg
from tests.house.tree import ROOT
from tests.kit.golden import assert_golden
from tests.unit.reports.test_pages_of_512_cards import NODES, cluster

PICTURE = ROOT / "docs/cards.svg"
SVG = "{http://www.w3.org/2000/svg}"
CLASSES = {"well", "port", "bad", "gone", "unseen"}


def example():
    """64 nodes with eight cards: some ill, one gone, one with a dead port, an agent away."""
    facts = cluster((("node-17", 3), *((name, 6) for name in NODES[40:44])), away=("node-30",))
    cards = list(facts.reports["node-5"].cards)
    cards[2] = replace(cards[2], gone=True, reasons=("the node has it no more",))
    cards[5] = replace(cards[5], ports=(ReportedPort("mlx5_5", 2, "DOWN", "Ethernet"),))
    five = replace(facts.reports["node-5"], cards=tuple(cards))
    return replace(facts, reports=facts.reports | {"node-5": five})


def parsed(svg):
    """The picture as a tree; it is made here, so it is no attack."""
    return ET.fromstring(svg)  # noqa: S314


def marks(picture):
    """Kind and place of the mark of each card."""
    for group in picture.iter(f"{SVG}g"):
        if group.get("class") == "card":
            (shape, *_) = [one for one in group if one.get("class") in CLASSES]
            yield shape.get("class"), middle(shape)


def middle(shape):
    if shape.tag == f"{SVG}circle":
        return float(shape.get("cx")), float(shape.get("cy"))
    if shape.tag == f"{SVG}rect":
        x, y, width, height = (float(shape.get(key)) for key in ("x", "y", "width", "height"))
        return x + width / 2, y + height / 2
    _, _, x, y = re.findall(r"-?[\d.]+", shape.get("d"))[:4]
    return float(x), float(y) + 7


def test_the_picture_of_the_page_is_what_the_command_draws():
    assert_golden(PICTURE, card_grid_svg(card_grid(example()), "State of the cards"))


def test_the_legend_has_no_state_that_no_card_has():
    calm = card_grid_svg(card_grid(cluster()), "a")
    words = {text.text for text in parsed(calm).iter(f"{SVG}text")}
    assert words & {state.value for state in CardState} == {CardState.WELL.value}


@pytest.mark.parametrize("rows", [(), (GridRow("a", (), "no report"),)])
def test_where_no_card_is_the_picture_says_so(rows):
    text = card_grid_svg(rows, "a")
    assert ("No node has an agent or a report." in text) or ("no report" in text)


CARDS = st.builds(GridCard, st.text(max_size=9), st.sampled_from(CardState), st.text(max_size=9))
ROWS = st.builds(
    GridRow,
    st.text(max_size=60),
    st.lists(CARDS, max_size=20).map(tuple),
    st.sampled_from(["", "no agent"]),
)


@given(st.lists(ROWS, max_size=9), st.text(max_size=30))
def test_each_card_has_a_place_of_its_own_on_the_page(rows, title):
    svg = card_grid_svg(tuple(rows), title)
    picture = parsed("".join(c for c in svg if c.isprintable() or c == "\n"))
    places = [place for _, place in marks(picture)]
    assert len(places) == sum(len(row.cards) for row in rows)
    assert len(set(places)) == len(places)
    width, height = int(picture.get("width")), int(picture.get("height"))
    assert all(10 <= x <= width - 10 and 10 <= y <= height - 10 for x, y in places)
