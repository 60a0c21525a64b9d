"""The page of many nodes: one block for the same Finding, and nodes that did not answer."""

from __future__ import annotations

import json

import pytest

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose_fleet
from kube_rdma.doctor.views import fleet_document, fleet_page
from kube_rdma.lib.page import page_text
from kube_rdma.model.doctor import NodeAnswer
from tests.unit.doctor.rules.healthy import HEALTHY

NODES = [f"node-{number}" for number in range(1, 13)]
ILL = replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, sockets=()))


def fleet(ill=(), dark=()):
    """Nodes that are well, but those without a kubelet and those that did not answer."""
    for node in NODES:
        if node in dark:
            yield NodeAnswer(node, why=f"The doctor on node {node} does not answer within 20 s.")
        else:
            yield NodeAnswer(node, replace(ILL if node in ill else HEALTHY, node=node))


def text(**more):
    return page_text(fleet_page(diagnose_fleet(fleet(**more))), 80)


def test_a_well_fleet_is_two_lines():
    assert text() == "12 nodes with an agent · 12 answered\n\nNo error on 12 nodes."


def test_the_same_finding_is_one_block_with_a_count_and_names():
    page = text(ill=NODES[:10])
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


def test_one_node_that_did_not_answer_is_named_in_its_reason():
    assert "The doctor on node node-3 does not answer" in " ".join(text(dark=("node-3",)).split())


@pytest.mark.parametrize("more", [{}, {"ill": NODES}, {"dark": NODES}], ids=["well", "ill", "dark"])
def test_no_page_is_wider_than_the_terminal(more):
    assert max(map(len, text(**more).splitlines())) <= 80


def test_the_document_has_every_node_and_every_place():
    document = fleet_document(diagnose_fleet(fleet(ill=("node-2",), dark=("node-3",))))
    document = json.loads(json.dumps(document))
    by_node = {one["node"]: one for one in document["nodes"]}
    assert list(by_node) == NODES
    assert (by_node["node-3"]["answered"], by_node["node-3"]["errors"]) == (False, None)
    assert by_node["node-2"]["errors"] >= 1
    (row,) = [one for one in document["findings"] if one["code"] == "KR201"]
    assert (row["count"], row["nodes"]) == (1, ["node-2"])
    assert row["places"][0]["about"] == "kubelet"
    assert row["places"][0]["fix"]
