"""Manifests with marks are read as what rules and views know."""

import pytest
import yaml

from kube_rdma.install.documents.installation import read
from kube_rdma.install.installation import described
from kube_rdma.install.rules.parts import PARTS
from kube_rdma.install.rules.presets import DEFAULTS
from kube_rdma.model.install import ABSENT, Hole, Joined, Spread, When, joined, unless


def value(text):
    """What a field's value is read as."""
    (made,) = read(f"metadata: {{name: a}}\nfield: {text}")
    return made.body["field"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("10", 10),
        ("${a.b}", Hole("a.b")),
        ("${.name}", Hole(".name")),
        ("${a}-b", joined(Hole("a"), "-b")),
        ("<${a.b}${c}>", Joined(("<", Hole("a.b"), Hole("c"), ">"))),
        ("--port=$(HOST_IP):${a}", joined("--port=$(HOST_IP):", Hole("a"))),
        ("!when {a.b: 1}", When("a.b", 1)),
        ("!when {a: 1, else: 2}", When("a", 1, 2)),
        ("!when {a: 1, b or c == x: 2}", When("a", 1, When("b or c == x", 2))),
        ("!unless {a: false}", unless("a", False)),
        ("[!all a.b, 1]", [Spread("a.b"), 1]),
        ("{b: 1, more: !all a}", {"b": 1, "more": Spread("a")}),
        ("[!when {a: [1, '${b}']}]", [When("a", [1, Hole("b")])]),
    ],
)
def test_a_mark_is_read(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize("text", ["!when {else: 1}", "!when {}", "!other x"])
def test_a_mark_that_means_nothing_is_a_fault(text):
    with pytest.raises(yaml.YAMLError):
        value(text)


def test_what_stands_above_an_object_says_when_and_how_often_it_is_made():
    first, second = read(
        "when: [a, b or c]\nmetadata: {name: a}\n---\neach: pools\nmetadata: {name: '${.name}'}"
    )
    assert (first.conditions, first.over) == (("a", "b or c"), "")
    assert (second.conditions, second.over) == ((), "pools")
    assert first.body == {"metadata": {"name": "a"}}
    assert second.body == {"metadata": {"name": Hole(".name")}}


@pytest.mark.parametrize(
    ("hook", "for_helm"), [("post-install", False), ("pre-delete", True), ("test", False)]
)
def test_annotations_of_helm_s_are_no_part_of_the_object(hook, for_helm):
    """And a hook of an uninstall is for nobody else."""
    (made,) = read(f"metadata: {{name: a, annotations: {{x: y, helm.sh/hook: {hook}}}}}")
    assert made.notes == {"helm.sh/hook": hook}
    assert made.body == {"metadata": {"name": "a", "annotations": {"x": "y"}}}
    assert made.for_helm is for_helm


def paths(node):
    """The paths of all values that a node asks for, those of an entry left out."""
    match node:
        case Hole(path) | Spread(path):
            yield path
        case Joined(parts):
            yield from (path for part in parts for path in paths(part))
        case When(condition, then, otherwise):
            yield from (one.partition(" == ")[0] for one in condition.split(" or "))
            yield from (*paths(then), *paths(otherwise))
        case dict():
            yield from (path for inner in node.values() for path in paths(inner))
        case list():
            yield from (path for inner in node for path in paths(inner))
        case _:
            assert node is ABSENT or isinstance(node, str | int)


@pytest.mark.parametrize("part", PARTS)
def test_a_file_asks_for_no_value_that_an_installation_lacks(part):
    for blueprint in described(part):
        asked = {*paths(blueprint.body), *filter(None, (blueprint.over,))}
        asked |= {path for one in blueprint.conditions for path in one.split(" or ")}
        for path in asked:
            layer = DEFAULTS
            for name in () if path.startswith(".") else path.split("."):
                layer = layer[name]
