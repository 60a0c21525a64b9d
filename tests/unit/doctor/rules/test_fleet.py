"""Findings of many nodes: the same one is one row, whatever its evidence says on each node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.doctor.rules.diagnose import diagnose, diagnose_fleet
from kube_rdma.doctor.rules.errors import outliers
from kube_rdma.model.doctor import NodeAnswer, Observation
from kube_rdma.model.finding import Severity
from tests.unit.doctor.rules.healthy import HEALTHY, with_device
from tests.unit.doctor.rules.test_faults import FAULTS

NODES = [f"node-{number}" for number in range(12)]
OF_NODE = sorted(name for name, (_, seen) in FAULTS.items() if seen.pod is None)


def answers(**faults):
    """Each node with its fault, and all others well."""
    for node in NODES:
        fault = faults.get(node.replace("-", "_"))
        yield NodeAnswer(node, replace(FAULTS[fault][1] if fault else HEALTHY, node=node))


def test_a_well_fleet_has_nothing_to_say():
    fleet = diagnose_fleet(answers())
    assert (fleet.findings, fleet.ill, fleet.is_blind) == ((), False, False)
    assert [one.node for one in fleet.nodes] == NODES  # node-2 before node-10


def test_the_same_finding_is_one_row_with_its_nodes():
    fleet = diagnose_fleet(answers(node_3="rdma_ucm unloaded", node_11="rdma_ucm unloaded"))
    (row,) = fleet.findings
    assert (row.code, row.nodes) == ("KR106", ("node-3", "node-11"))
    assert {place.finding.code for place in row.places} == {"KR106"}


def test_a_node_that_does_not_answer_is_no_well_node():
    fleet = diagnose_fleet([*answers(), NodeAnswer("node-99", why="it hangs")])
    assert (fleet.ill, fleet.is_blind) == (False, True)
    assert fleet.nodes[-1].why == "it hangs"


def test_a_fleet_of_no_node_is_not_well():
    assert diagnose_fleet(()).is_blind


def test_a_node_that_sees_too_little_makes_the_fleet_blind():
    fleet = diagnose_fleet([NodeAnswer("a", HEALTHY), NodeAnswer("b", Observation("b"))])
    assert fleet.is_blind


def test_the_worst_comes_first_however_few_have_it():
    often = "rdma_ucm unloaded"
    fleet = diagnose_fleet(answers(node_1=often, node_2=often, node_3="ib_uverbs unloaded"))
    roots = [one for one in fleet.findings if not one.follows]
    assert [(one.severity, one.code) for one in roots] == [
        (Severity.ERROR, "KR104"),
        (Severity.WARNING, "KR106"),
    ]


def changed(node, **facts):
    """The answer of a well node whose first device or its port is otherwise."""
    return NodeAnswer(node, replace(with_device(**facts), node=node))


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"port": {"rate_gbps": 50.0}}, "has rate 50 Gb/s, and 4 of 5 nodes have 100 Gb/s"),
        ({"port": {"gids": ()}}, "has GID count 0, and 4 of 5 nodes have 1"),
        ({"firmware": "28.1"}, "has firmware 28.1, and 4 of 5 cards of its kind have 28.2"),
    ],
)
def test_a_node_unlike_the_others_is_named(facts, word):
    others = [changed(node, firmware="28.2") for node in NODES[:4]]
    odd = changed("node-odd", **({"firmware": "28.2"} | facts))
    rows = [one for one in diagnose_fleet([*others, odd]).findings if one.code == "KR128"]
    assert [(row.nodes, row.places[0].finding.problem) for row in rows] == [
        (("node-odd",), f"mlx5_0 of node-odd {word}")
    ]


def test_an_mtu_unlike_the_others_is_named_without_another_card_on_the_node():
    links = tuple(replace(link, mtu=1500) for link in HEALTHY.links)
    odd = NodeAnswer("node-odd", replace(HEALTHY, node="node-odd", links=links))
    fleet = diagnose_fleet([*answers(), odd])
    (row,) = [one for one in fleet.findings if one.code == "KR128"]
    assert row.nodes == ("node-odd",)
    assert [place.finding.subject for place in row.places] == ["mlx5_0", "mlx5_1"]


def test_without_a_majority_nobody_is_unlike():
    halves = [changed(n, port={"rate_gbps": 50.0 if i % 2 else 100.0}) for i, n in enumerate(NODES)]
    assert not [one for one in diagnose_fleet(halves).findings if one.code == "KR128"]
    two = [changed("a"), changed("b", port={"rate_gbps": 50.0})]
    assert not [one for one in diagnose_fleet(two).findings if one.code == "KR128"]


@given(st.dictionaries(st.sampled_from(NODES), st.sampled_from(OF_NODE)))
def test_no_finding_of_any_node_is_lost_or_invented(faults):
    """The rows hold each node's Findings, each in one row alone."""
    seen = list(answers(**{node.replace("-", "_"): name for node, name in faults.items()}))
    fleet = diagnose_fleet(seen)
    rows = [(p.node, p.finding) for row in fleet.findings for p in row.places]
    every = [(one.node, finding) for one in seen for finding in diagnose(one.seen).findings]
    unlike = outliers([one.seen for one in seen])
    every += [(node, finding) for node, some in unlike.items() for finding in some]
    assert sorted(rows, key=repr) == sorted(every, key=repr)
    keys = [(row.code, row.severity, row.cause) for row in fleet.findings]
    assert len(keys) == len(set(keys))


@given(st.lists(st.integers(0, 10**9), unique=True), st.lists(st.text(max_size=12)))
def test_names_come_by_their_numbers_and_any_name_has_a_place(numbers, others):
    names = [f"node-{number}" for number in numbers]
    ordered = [name for name in sorted([*names, *others], key=natural) if name in names]
    assert list(dict.fromkeys(ordered)) == [f"node-{number}" for number in sorted(numbers)]
