"""The picture of a node: all that it has, boxes in boxes, words that are escaped."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.cli.devices import devices
from kube_rdma.hardware import machines
from kube_rdma.hardware.rules.node_picture import node_topology
from kube_rdma.hardware.views.topology import topology_svg
from kube_rdma.lib.svg import NestedBox, drawn, size
from tests.house.tree import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    return ET.fromstring(svg)  # noqa: S314


def boxes(picture, kind):
    for rect in picture.iter(f"{SVG}rect"):
        if rect.get("class") == kind:
            x, y, width, height = (int(rect.get(key)) for key in ("x", "y", "width", "height"))
            yield x, y, x + width, y + height


def inside(inner, outer):
    return (
        inner[0] > outer[0] and inner[1] > outer[1] and inner[2] < outer[2] and inner[3] < outer[3]
    )


def apart(one, other):
    return one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]


def well_laid(picture):
    """Leaves lie apart, groups apart or one inside the other, each leaf wholly in its groups."""
    leaves, groups = [*boxes(picture, "leaf")], [*boxes(picture, "group")]
    page = (0, 0, int(picture.get("width")), int(picture.get("height")))
    for number, box in enumerate(leaves):
        assert all(apart(box, other) for other in leaves[:number])
        assert all(apart(box, other) or inside(box, other) for other in (*groups, page))
    for number, box in enumerate(groups):
        for other in groups[:number]:
            assert apart(box, other) or inside(box, other) or inside(other, box)
        assert inside(box, page)


def words(picture):
    return [text.text for text in picture.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", machines.names())
def test_every_machine_has_all_its_devices_in_the_picture(name):
    survey = read_survey(machines.machine(name))
    picture = parsed(topology_svg(node_topology(survey), name))
    well_laid(picture)
    text = "\n".join(filter(None, words(picture)))
    assert all(device.name in text for device in survey.devices)
    assert all(f"GPU{number}\n{gpu.position.pci}" in text for number, gpu in enumerate(survey.gpus))


def test_the_picture_of_the_page_is_what_the_command_draws(tmp_path):
    """`kube-rdma devices --sysfs dgx-like --svg docs/topology.svg` writes it."""
    file = tmp_path / "topology.svg"
    result = CliRunner().invoke(devices, ["--sysfs", "dgx-like", "--svg", str(file)])
    assert result.exit_code == 0
    assert result.output == f"{file}: the topology of dgx-like.\n"
    assert file.read_bytes() == (ROOT / "docs/topology.svg").read_bytes()


def test_a_card_that_pods_cannot_get_is_dashed_and_says_why():
    survey = read_survey(machines.machine("mlx5-dual-port"))
    picture = parsed(topology_svg(node_topology(survey), "a"))
    dashed = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("stroke-dasharray")]
    assert len(dashed) == 1
    tips = [title.text for title in picture.iter(f"{SVG}title")]
    assert [tip for tip in tips if "no port is ACTIVE" in tip]


def test_a_node_with_nothing_says_so():
    picture = parsed(topology_svg((), "<&>"))
    assert "no GPU and no network card" in words(picture)
    assert "<&>" in words(picture)
    well_laid(picture)


LEAVES = st.builds(
    NestedBox,
    st.text(max_size=20),
    lines=st.lists(st.text(max_size=30), max_size=4).map(tuple),
    strip=st.sampled_from(["", "rail 1"]),
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        NestedBox,
        st.text(max_size=20),
        rows=st.lists(st.lists(inner, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    ),
    max_leaves=12,
)


@given(NESTED)
def test_boxes_of_any_words_lie_in_each_other_and_never_across(box):
    width, height = size(box)
    svg = "\n".join(drawn(box, 5, 5))
    cleaned = "".join(letter for letter in svg if letter.isprintable() or letter == "\n")
    page = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 20}" height="{height + 20}">'
    well_laid(parsed(f"{page}{cleaned}</svg>"))
