"""Faults of cables: any exchange is described exactly, and what was accepted is no fault."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.fabric.rules.cabling import (
    accepted_cables,
    cable_faults,
    cable_finding,
    node_fault_texts,
)
from kube_rdma.model.card import CardId
from kube_rdma.model.fabric import CableFaultKind as Kind
from kube_rdma.model.fabric import CardPort, NodeCables, SwitchPort
from kube_rdma.model.reports import ExpectedCable

NODES, CARDS = 4, 3


def cabled(places, expected=None):
    """Nodes of CARDS cards, whose ports are in these places in order; None hears no switch."""
    nodes = []
    for first in range(0, len(places), CARDS):
        name = f"node-{first // CARDS + 1}"
        ports = tuple(
            CardPort(CardId(f"0000:{n:02x}:00.0"), 1, f"mlx5_{n}", place)
            for n, place in enumerate(places[first : first + CARDS])
        )
        nodes.append(NodeCables(name, ports))
    if expected is not None:
        hopes = map(accepted_cables, cabled(expected))
        nodes = [replace(node, expected=hope) for node, hope in zip(nodes, hopes, strict=True)]
    return nodes


def rails(nodes=NODES, cards=CARDS):
    """Card i of each node is on leaf i."""
    return [SwitchPort(f"leaf-{c}", f"swp{n}") for n in range(1, nodes + 1) for c in range(cards)]


def ends(faults):
    return [f"{cable.node} {cable.card}" for fault in faults for cable in fault.cables]


@given(st.permutations(rails()))
def test_every_cable_of_an_exchange_is_named_once_with_both_ends_and_no_other(places):
    before = rails()
    faults = cable_faults(cabled(places, before))
    moved = {n for n, place in enumerate(places) if place != before[n]}
    names = [f"node-{n // CARDS + 1} mlx5_{n % CARDS}" for n in moved]
    assert sorted(ends(faults)) == sorted(names)
    assert {fault.kind for fault in faults} <= {Kind.SWAPPED}
    for fault in faults:
        assert len(fault.cables) > 1
        for cable, following in zip(
            fault.cables, (*fault.cables[1:], fault.cables[0]), strict=True
        ):
            assert cable.seen == following.expected


PLACES = st.lists(
    st.none() | st.builds(SwitchPort, st.sampled_from("ab"), st.sampled_from("123")),
    min_size=6,
    max_size=9,
).filter(lambda places: len(places) % CARDS == 0)


@given(PLACES)
def test_what_was_accepted_as_it_is_has_no_fault_but_of_silent_nodes(places):
    """Of a node that hears nothing nothing is accepted, so it is compared with others."""
    nodes = cabled(places, places)
    silent = {node.node for node in nodes if not node.expected}
    assert not [f for f in cable_faults(nodes) if not silent.issuperset(f.nodes)]


@given(PLACES, PLACES)
def test_each_cable_is_named_at_most_once_and_each_that_differs_once(places, expected):
    """Also where several ports say that they are in one place, as anybody can say."""
    size = min(len(places), len(expected))
    before, now = expected[:size], places[:size]
    nodes = cabled(now, before)
    named = ends(f for f in cable_faults(nodes) if f.kind is not Kind.SHARED_LEAF)
    assert len(named) == len(set(named))
    accepted = {node.node for node in nodes if node.expected}
    differ = [f"node-{n // CARDS + 1} mlx5_{n % CARDS}" for n in range(size) if now[n] != before[n]]
    assert sorted(named) == sorted(end for end in differ if end.split()[0] in accepted)


def only(places, before):
    (fault,) = cable_faults(cabled(places, before))
    return fault


def changed(number, place):
    places = rails()
    places[number] = place
    return only(places, rails())


def test_a_cable_in_a_free_port_of_another_leaf_is_on_the_wrong_leaf():
    finding = cable_finding(changed(0, SwitchPort("leaf-1", "swp40")))
    assert (finding.code, finding.subject) == ("CableMoved", "node/node-1")
    assert finding.problem == "node-1 mlx5_0 is in leaf-1 swp40, and belongs in leaf-0 swp1"
    assert "kube-rdma fabric accept node-1" in finding.remedy
    assert finding.is_error


def test_a_cable_in_another_port_of_its_leaf_is_advice():
    fault = changed(0, SwitchPort("leaf-0", "swp40"))
    assert fault.kind is Kind.MOVED
    assert not cable_finding(fault).is_error


def test_a_silent_port_is_a_lost_cable():
    fault = changed(4, None)
    assert fault.kind is Kind.LOST
    problem = cable_finding(fault).problem
    assert problem == "node-2 mlx5_1 hears no switch, and belongs in leaf-1 swp2"


def test_a_node_that_hears_nothing_is_one_fault():
    fault = only([None, None, None, *rails()[3:]], rails())
    assert fault.kind is Kind.LOST
    assert len(fault.cables) == CARDS


def test_a_cable_that_nobody_accepted_is_advice():
    before = rails()
    before[5] = None
    fault = only(rails(), before)
    assert fault.kind is Kind.UNKNOWN
    problem = cable_finding(fault).problem
    assert problem == "node-2 mlx5_2 is in leaf-2 swp2, and nobody accepted it"


def test_two_cables_of_two_nodes_that_were_exchanged_are_told_to_both():
    places = rails()
    places[0], places[4] = places[4], places[0]
    fault = only(places, rails())
    assert fault.nodes == ("node-1", "node-2")
    text = (
        "node-1 mlx5_0 is in leaf-1 swp2, and belongs in leaf-0 swp1; "
        "node-2 mlx5_1 is in leaf-0 swp1, and belongs in leaf-1 swp2"
    )
    assert cable_finding(fault).problem == text
    assert node_fault_texts([fault]) == {"node-1": text, "node-2": text}


def test_an_exchange_on_one_leaf_is_advice():
    places = rails()
    places[0], places[3] = places[3], places[0]
    fault = only(places, rails())
    assert fault.kind is Kind.SWAPPED
    assert not cable_finding(fault).is_error


def test_an_exchange_of_all_cables_is_told_in_a_few_words():
    places = rails(40, 3)
    fault = only([*places[-1:], *places[:-1]], places)
    assert len(fault.cables) == 120
    finding = cable_finding(fault)
    assert finding.problem.endswith("; and 116 more")
    assert finding.remedy.endswith("node-1 node-40 node-39 …")


def test_without_a_port_of_the_switch_every_port_of_it_is_right():
    (node, *_) = cabled(rails())
    hope = tuple(ExpectedCable(port.card, port.at.switch) for port in node.ports)
    assert cable_faults([replace(node, expected=hope)]) == ()
    other = replace(hope[0], switch="leaf-9")
    (fault,) = cable_faults([replace(node, expected=(other, *hope[1:]))])
    assert fault.kind is Kind.MOVED


def test_a_card_that_is_gone_is_no_lost_cable():
    nodes = cabled(rails(), rails())
    first = replace(nodes[0], ports=nodes[0].ports[1:], gone=frozenset({nodes[0].ports[0].card}))
    assert cable_faults([first, *nodes[1:]]) == ()


def test_two_rails_on_one_leaf_are_noticed_beside_nodes_that_have_one_each():
    places = rails()
    places[1] = SwitchPort("leaf-0", "swp40")
    (fault,) = cable_faults(cabled(places))
    assert fault.kind is Kind.SHARED_LEAF
    finding = cable_finding(fault)
    assert finding.problem == (
        "node-1 mlx5_0 is in leaf-0 swp1, node-1 mlx5_1 is in leaf-0 swp40: "
        "one leaf, of which other nodes have one card each"
    )
    assert not finding.is_error
    assert cable_faults(cabled(places, places)) == ()


def test_all_cards_on_one_leaf_is_as_good_as_a_leaf_for_each():
    places = [SwitchPort(f"leaf-{n // CARDS}", f"swp{n}") for n in range(NODES * CARDS)]
    assert cable_faults(cabled(places)) == ()


def test_names_from_frames_reach_no_terminal_as_they_are():
    fault = changed(0, SwitchPort("\x1b[2Jleaf\n", "swp\u202e1"))
    assert cable_finding(fault).problem.isprintable()


def test_a_second_port_of_a_card_is_named_by_its_number():
    port = CardPort(CardId("0000:00:00.0"), 2, "mlx4_0", SwitchPort("leaf-1", "1"))
    hope = (ExpectedCable(port.card, "leaf-2", 2, "1"),)
    (fault,) = cable_faults([NodeCables("node-1", (port,), expected=hope)])
    assert ends([fault]) == ["node-1 mlx4_0 port 2"]
