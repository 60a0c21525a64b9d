"""Holes are filled, and what is not wanted leaves no trace."""

import pytest

from kube_rdma.install.rules.parts import filled
from kube_rdma.model.install import Blueprint, Hole, Spread, When, joined, unless

VALUES = {
    "a": {
        "on": True,
        "off": False,
        "text": "x",
        "list": [1, 2],
        "map": {"b": 2, "c": 3},
        "none": {},
    },
    "pools": [{"name": "p"}],
}


def body(node):
    """What becomes of one field's value; None where the field is left out."""
    (made,) = filled([Blueprint({"field": node})], VALUES)
    assert made.keys() <= {"field"}
    return made.get("field")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (3, 3),
        (Hole("a.list"), [1, 2]),
        (joined("<", Hole("a.text"), ">"), "<x>"),
        (When("a.on", 1), 1),
        (When("a.off", 1), None),
        (When("a.off", 1, 2), 2),
        (unless("a.off", 1), 1),
        (unless("a.on", 1), None),
        (When("a.on", When("a.off", 1)), None),
        (When("a.text == x", 1), 1),
        (When("a.text == y", 1), None),
        (When("a.off or a.text == x", 1), 1),
        ([1, When("a.off", 2), When("a.on", {"b": Hole("a.text")})], [1, {"b": "x"}]),
        ([1, When("a.on", [2, When("a.off", 3, [4, 5])]), When("a.off", [6])], [1, 2, 4, 5]),
        ([When("a.on", Hole("a.list"))], [[1, 2]]),
        ([0, Spread("a.list"), 3], [0, 1, 2, 3]),
        ([When("a.on", Spread("a.list")), When("a.off", Spread("a.list"))], [1, 2]),
        ({"b": 1, "more": Spread("a.map")}, {"b": 1, "c": 3}),
        ({"b": 1, "more": Spread("a.none")}, {"b": 1}),
    ],
)
def test_a_value_is_filled(node, expected):
    assert body(node) == expected


def test_an_object_is_made_where_all_its_conditions_hold():
    listed = [Blueprint({"n": n}, paths) for n, paths in enumerate(((), ("a.on", "a.off")))]
    assert list(filled(listed, VALUES)) == [{"n": 0}]


def test_an_object_is_made_for_each_entry_of_a_list():
    assert list(filled([Blueprint({"name": Hole(".name")}, over="pools")], VALUES)) == [
        {"name": "p"}
    ]


def test_a_value_that_no_layer_has_is_a_fault_of_the_blueprint():
    with pytest.raises(KeyError):
        body(Hole("a.gone"))
