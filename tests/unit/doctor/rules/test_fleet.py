"""Findings of many nodes: the same one is one row, whatever its evidence says on each node."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_base.natural import natural
from kube_rdma.doctor.rules.diagnose import diagnose, diagnose_fleet
from kube_rdma.doctor.rules.errors import outliers
from kube_rdma.doctor.views import fleet_document, fleet_page
from kube_rdma.lib.page import page_text
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


def test_a_node_that_does_not_answer_is_no_well_node():
    fleet = diagnose_fleet([*answers(), NodeAnswer("node-99", why="it hangs")])
    assert (fleet.ill, fleet.is_blind) == (False, True)
    assert fleet.nodes[-1].why == "it hangs"
    for few in ((), [NodeAnswer("a", HEALTHY), NodeAnswer("b", Observation("b"))]):
        assert diagnose_fleet(few).is_blind


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
    (row,) = [one for one in diagnose_fleet([*answers(), odd]).findings if one.code == "KR128"]
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


# The page and the document of all nodes.

NAMES = [f"node-{number}" for number in range(1, 13)]
ILL = replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, sockets=()))


def fleet(ill=(), dark=()):
    """Nodes that are well, but those without a kubelet and those that did not answer."""
    for node in NAMES:
        if node in dark:
            yield NodeAnswer(node, why=f"The doctor on node {node} does not answer within 20 s.")
        else:
            yield NodeAnswer(node, replace(ILL if node in ill else HEALTHY, node=node))


def text(**more):
    return page_text(fleet_page(diagnose_fleet(fleet(**more))), 80)


def test_a_well_fleet_is_two_lines():
    assert text() == "12 nodes with an agent · 12 answered\n\nNo error on 12 nodes."


def test_the_same_finding_is_one_block_with_a_count_and_names():
    page = text(ill=NAMES[:10])
    assert page.count("KR201") == 1
    assert "✗ KR201  10 of 12 nodes  kubelet" in page
    assert "    Nodes  node-1, node-2, node-3, node-4, node-5, node-6, node-7, node-8 and 2" in page
    assert "and so: KR202" in page
    assert page.splitlines()[-1] == "1 error on 10 nodes, 0 notes."


def test_nodes_that_did_not_answer_for_one_reason_are_one_line():
    page = text(dark=("node-3", "node-4"))
    assert "12 nodes with an agent · 10 answered" in page
    assert page.count("? Not seen") == 1
    assert "? Not seen: node-3, node-4." in page
    assert page.splitlines()[-1].startswith("Too little was seen to rule out problems")
    one = " ".join(text(dark=("node-3",)).split())
    assert "The doctor on node node-3 does not answer" in one


@pytest.mark.parametrize("more", [{}, {"ill": NAMES}, {"dark": NAMES}], ids=["well", "ill", "dark"])
def test_no_page_is_wider_than_the_terminal(more):
    assert max(map(len, text(**more).splitlines())) <= 80


def test_the_document_has_every_node_and_every_place():
    document = fleet_document(diagnose_fleet(fleet(ill=("node-2",), dark=("node-3",))))
    document = json.loads(json.dumps(document))
    by_node = {one["node"]: one for one in document["nodes"]}
    assert list(by_node) == NAMES
    assert (by_node["node-3"]["answered"], by_node["node-3"]["errors"]) == (False, None)
    assert by_node["node-2"]["errors"] >= 1
    (row,) = [one for one in document["findings"] if one["code"] == "KR201"]
    assert (row["count"], row["nodes"]) == (1, ["node-2"])
    assert row["places"][0]["about"] == "kubelet"
    assert row["places"][0]["fix"]
