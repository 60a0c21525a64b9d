"""Labels of leaves: the leaf is a node's own, the block is that of the others on its leaves."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.fabric.rules import leaves as rules
from kube_rdma.model.card import CardId
from kube_rdma.model.fabric import CardPort, NodeCables, SwitchPort
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.pools.rules.labels import VALUE

NAMES = st.text(min_size=1, max_size=80) | st.text(string.ascii_lowercase + "-_.0123", min_size=1)
SETS = st.frozensets(NAMES, min_size=1, max_size=9)
RAILS = frozenset(f"rail{n}-leaf1" for n in range(8))


def node_on(*leaves, name="node-1"):
    """A node with a card on each leaf; None is a card that hears no switch."""
    ports = [
        CardPort(CardId(f"0000:{n:02x}:00.0"), 1, f"mlx5_{n}", leaf and SwitchPort(leaf, f"swp{n}"))
        for n, leaf in enumerate(leaves)
    ]
    return NodeCables(name, tuple(ports))


@given(SETS)
def test_a_leaf_is_a_legal_value_of_a_label(some):
    assert VALUE.fullmatch(rules.leaf_value(some))


@given(SETS, SETS)
def test_different_leaves_have_different_values(some, others):
    assert (rules.leaf_value(some) == rules.leaf_value(others)) == (some == others)


def test_names_that_look_like_a_set_are_not_taken_for_it():
    assert rules.leaf_value({"a", "b"}) == "a__b"
    for other in ({"a__b"}, {"a_", "b"}, {"a", "_b"}, {"a.b"}, {"a b"}, {"a", "b", ""}):
        assert rules.leaf_value(other) != "a__b"


def test_one_leaf_keeps_its_name_and_eight_are_named_by_the_first_and_the_last():
    assert rules.leaf_value({"leaf-1.dc1.example.com"}) == "leaf-1.dc1.example.com"
    value = rules.leaf_value(RAILS)
    assert value.startswith("rail0-leaf1__rail7-leaf1-")
    assert value != rules.leaf_value(RAILS - {"rail3-leaf1"})


def test_a_silent_port_and_a_card_that_is_gone_keep_their_leaf():
    before = rules.leaves_by_port(node_on("a", "b", "c"), {})
    assert list(before.values()) == ["a", "b", "c"]
    silent = node_on("a", None, "c")
    assert rules.leaves_by_port(silent, before) == before
    lost = replace(silent, ports=silent.ports[:2], gone=frozenset({silent.ports[2].card}))
    assert rules.leaves_by_port(lost, before) == before


def test_a_card_that_no_pool_has_any_more_loses_its_leaf():
    before = rules.leaves_by_port(node_on("a", "b"), {})
    assert list(rules.leaves_by_port(node_on("a"), before).values()) == ["a"]


def test_ports_that_are_remembered_have_an_end():
    many = node_on(*(f"leaf-{n}" for n in range(4096)))
    assert len(rules.leaves_by_port(many, {})) == 64


def test_a_node_with_a_cable_in_the_wrong_leaf_stays_in_its_block():
    wrong = RAILS - {"rail3-leaf1"} | {"rail3-leaf2"}
    nodes = {**{f"node-{n}": RAILS for n in range(3)}, "wrong": wrong, "two": frozenset(["x", "y"])}
    found = rules.blocks(nodes)
    assert found["wrong"] == RAILS
    assert found["two"] == {"x", "y"}


def test_a_node_with_one_of_its_cards_on_another_leaf_stays_in_its_block():
    nodes = {"a": ["x"] * 8, "b": ["x"] * 8, "wrong": [*["x"] * 7, "y"], "c": ["y"] * 8}
    assert rules.blocks(nodes)["wrong"] == {"x"}


def test_a_leaf_of_all_nodes_costs_no_comparison_of_all_with_all():
    """As where most switches have the name that they were delivered with."""
    nodes = {f"node-{n}": ("sonic", f"leaf-{n}") for n in range(2000)}
    nodes |= {f"more-{n}": ("sonic", "sonic", "leaf-7") for n in range(3)}
    found = rules.blocks(nodes)
    assert found["node-7"] == found["more-0"] == {"sonic", "leaf-7"}
    assert len({*found.values()}) == 2000


def test_a_node_with_some_of_the_leaves_is_in_the_block():
    nodes = {"a": RAILS, "b": RAILS, "storage": frozenset(["rail0-leaf1", "rail1-leaf1"])}
    assert rules.blocks(nodes)["storage"] == RAILS


@given(
    st.dictionaries(st.sampled_from("stuvwxyz"), st.sampled_from("abc"), min_size=1),
    st.frozensets(st.sampled_from("abcdef")),
)
def test_a_node_that_lies_moves_no_other(honest, lie):
    """Each of the others has all cards on one leaf."""
    nodes = {name: frozenset(leaf) for name, leaf in honest.items()}
    with_lie = rules.blocks({**nodes, "liar": lie})
    alone = {k for k, own in nodes.items() if list(nodes.values()).count(own) > 1}
    for name in alone:
        assert with_lie[name] == rules.blocks(nodes)[name] == nodes[name]


@given(st.dictionaries(st.text(max_size=3), st.frozensets(st.sampled_from("abcdef"))))
def test_blocks_do_not_depend_on_the_order_of_nodes(nodes):
    assert rules.blocks(nodes) == rules.blocks(dict(reversed(nodes.items())))


# The change of a Node object.

LABELS = rules.wanted_labels({"a/1": "leaf-1"}, frozenset({"leaf-1"}), "write-topograph")


def applied(node, change):
    """The node after a change."""
    if change is None:
        return node
    labels = {**dict(node.labels), **change.labels}
    notes = {**dict(node.annotations), **change.annotations}
    kept = [tuple(sorted((k, v) for k, v in d.items() if v is not None)) for d in (labels, notes)]
    return replace(node, labels=kept[0], annotations=kept[1])


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        ("write", {}),
        ("write-topograph", {"fabric.topograph.run/tier-0": "leaf-1"}),
        ("write-ack", {"alibabacloud.com/asw-id": "leaf-1"}),
    ],
)
def test_a_leaf_is_written_in_the_dialect_that_is_wanted(mode, more):
    own = {"kube-rdma.io/leaf": "leaf-1", "kube-rdma.io/block": "leaf-1"}
    assert rules.wanted_labels({"a/1": "leaf-1"}, frozenset({"leaf-1"}), mode) == own | more


KEYS = st.sampled_from([*LABELS, "team"])
VALUES = st.sampled_from(["leaf-1", "leaf-2", "mine"])


@given(
    st.dictionaries(KEYS, VALUES),
    st.lists(st.tuples(st.booleans(), st.dictionaries(KEYS, VALUES | st.none())), max_size=6),
)
def test_labels_of_others_stay_whatever_happens(foreign, story):
    """Somebody labels the node between the controller's writes; each write starts from the node."""
    node = NodeState("node-1", labels=tuple(sorted(foreign.items())))
    theirs = dict(foreign)
    for removes, meddled in story:
        change = rules.label_change(node, {} if removes else LABELS, {}, "")
        assert not (change and change.labels.keys() & theirs.keys())
        node = applied(node, change)
        assert rules.label_change(node, {} if removes else LABELS, {}, "") is None
        has = dict(node.labels)
        if removes:
            assert has == theirs
        for key, value in meddled.items():
            if value is None:
                theirs.pop(key, None)
                has.pop(key, None)
            elif has.get(key) != value:
                theirs[key] = has[key] = value
        node = replace(node, labels=tuple(sorted(has.items())))


def test_a_garbled_annotation_takes_no_label_of_others():
    notes = ((rules.OWN, '{"team": "blue", "kube-rdma.io/leaf": "x"}'), (rules.LEAVES, "[1"))
    node = NodeState("node-1", labels=(("team", "blue"),), annotations=notes)
    change = rules.label_change(node, {}, {}, "")
    assert change.labels == {}
    assert change.annotations == {rules.OWN: None, rules.LEAVES: None}
    assert rules.remembered_leaves(node) == {}


def test_a_dialect_that_is_given_up_takes_its_labels_along():
    node = applied(NodeState("node-1"), rules.label_change(NodeState("node-1"), LABELS, {}, ""))
    own = rules.wanted_labels({"a/1": "leaf-1"}, frozenset({"leaf-1"}), "write-ack")
    assert rules.label_change(node, own, {}, "").labels == {
        "fabric.topograph.run/tier-0": None,
        "alibabacloud.com/asw-id": "leaf-1",
    }
