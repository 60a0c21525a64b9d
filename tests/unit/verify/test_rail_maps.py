"""The maps of `verify --svg`: each pair of each rail has its place, and a legend has its kind."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kube_rdma.model.verify import Pairing, Rating
from kube_rdma.verify.views import rail_maps_svg
from tests.kit.golden import assert_golden
from tests.kit.rails import pods, rated

PICTURE = Path(__file__).parents[3] / "docs/verify-map.svg"
SVG = "{http://www.w3.org/2000/svg}"
TITLE = "ib_write_bw from pod to pod, Gb/s"


def of(is_bad, *, count=12, rails=8, pairing=Pairing.ALL, figure=195.0):
    return rated(pods(count, rails), is_bad, pairing, figure)


def example():
    """12 nodes with eight rails, all pairs: a slow card, and one of another rail that fails."""
    slow = of(lambda title, name: (title, name) == ("node-6", "mlx5_3"))
    failed = of(lambda title, name: (title, name) == ("node-11", "mlx5_5"), figure=None)
    return [
        *(pair for pair in slow if pair.outcome.rail != 5),
        *(pair for pair in failed if pair.outcome.rail == 5),
    ]


def parsed(svg):
    """The picture as a tree; it is made here, so it is no attack."""
    return ET.fromstring(svg)  # noqa: S314


def kinds(picture):
    """The class of the mark of each place that was measured, by its tip."""
    for group in picture.iter(f"{SVG}g"):
        tip, first, *_ = group
        yield tip.text, first.get("class"), len(group) - 1


def test_the_picture_of_the_page_is_what_the_command_draws():
    assert_golden(PICTURE, rail_maps_svg(example(), TITLE, latency=False))


def test_a_rail_s_title_names_the_node_that_all_its_bad_pairs_have():
    """A picture on paper has no tips."""

    def titles(is_bad):
        svg = rail_maps_svg(of(is_bad, count=5, rails=2), "a", latency=False)
        return [one.text for one in parsed(svg).iter(f"{SVG}text") if one.text.startswith("rail")]

    one = {("node-3", "mlx5_1")}
    assert titles(lambda *_: False) == ["rail 0", "rail 1"]
    assert titles(lambda *card: card in one) == ["rail 0", "rail 1 · node-3 not well"]
    two = {*one, ("node-4", "mlx5_1")}
    assert titles(lambda *card: card in two) == ["rail 0", "rail 1 · 7 not well"]


@pytest.mark.parametrize(("pairing", "count"), [(Pairing.RING, 64), (Pairing.STAR, 9)])
def test_places_that_were_not_measured_are_told_apart(pairing, count):
    picture = parsed(
        rail_maps_svg(of(lambda *_: False, count=count, pairing=pairing), "a", latency=False)
    )
    assert "not measured" in {text.text for text in picture.iter(f"{SVG}text")}
    assert int(picture.get("width")) == 800


def test_the_legend_has_no_more_than_the_maps_have():
    def legend(pairs):
        picture = parsed(rail_maps_svg(pairs, "a", latency=False))
        words = {text.text for text in picture.iter(f"{SVG}text")}
        wanted = re.compile(r"at least|\d+ to|less than|the pair|a dot|not m")
        return {word for word in words if wanted.match(word)}

    assert legend(of(lambda *_: False)) == {"at least 90 % of the best"}
    assert all(pair.rating is Rating.WELL for pair in of(lambda *_: False))


def test_the_lowest_latency_is_the_best():
    pairs = of(lambda title, _: title == "node-0", count=4, rails=2, figure=900.0)
    found = {
        kind
        for tip, kind, _ in kinds(parsed(rail_maps_svg(pairs, "a", latency=True)))
        if "node-0 " in tip
    }
    assert found == {"half"}


def test_a_name_cannot_leave_the_picture():
    svg = rail_maps_svg(of(lambda *_: False, count=3, rails=2), "<script>", latency=False)
    assert "<script>" not in svg
