"""Each card of the fleet has one state, and what nobody tells of now is not known."""

import pytest

from kube_base.frozen import replace
from kube_rdma.model.card import CardId
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.reports import (
    CardState,
    ClusterFacts,
    NodeReport,
    ProgramPod,
    ProgramRole,
    ReportedCard,
    ReportedPort,
    Workload,
)
from kube_rdma.reports.rules.node_report import card_grid

AGENTS = Workload(ProgramRole.AGENT, "kube-rdma", "agent", 1, 1, 1)
POD = ProgramPod("kube-rdma/agent", "kube-rdma", "agent-1", "node-1", ready=True)
CARD = ReportedCard(CardId("0000:81:00.0"), "mlx5_0", ("rdma/nic",))
DOWN = ReportedPort("mlx5_0", 2, "DOWN", "Ethernet")


def facts(*cards, **parts):
    seen = ClusterFacts(
        nodes=(NodeState("node-1", ready=True),),
        workloads=(AGENTS,),
        pods=(POD,),
        reports={"node-1": NodeReport("0.1.0", cards)},
    )
    return replace(seen, **parts)


@pytest.mark.parametrize(
    ("card", "state", "why"),
    [
        (CARD, CardState.WELL, ""),
        (replace(CARD, reasons=("no port is ACTIVE", "b")), CardState.ILL, "no port is ACTIVE"),
        (replace(CARD, ports=(DOWN,)), CardState.PORT_DOWN, "port 2 of mlx5_0 is DOWN"),
        (replace(CARD, gone=True, reasons=("it left",)), CardState.GONE, "it left"),
        (replace(CARD, reasons=("a",), ports=(DOWN,)), CardState.ILL, "a"),
    ],
)
def test_a_card_has_the_worst_state_that_its_node_tells(card, state, why):
    (row,) = card_grid(facts(card))
    assert [(one.state, one.why) for one in row.cards] == [(state, why)]
    assert row.why == ""


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"pods": (replace(POD, ready=False),)}, "agent not ready"),
        ({"pods": ()}, "no agent"),
        ({"nodes": (NodeState("node-1", ready=False),)}, "node not ready"),
    ],
)
def test_cards_of_a_node_that_is_silent_are_not_known(parts, why):
    (row,) = card_grid(facts(CARD, **parts))
    assert row.why == why
    assert [card.state for card in row.cards] == [CardState.UNSEEN]


def test_who_may_not_list_pods_sees_what_the_reports_say():
    (row,) = card_grid(facts(CARD, pods=None))
    assert [card.state for card in row.cards] == [CardState.WELL]


def test_a_node_with_an_agent_and_no_report_is_a_row_without_cards():
    (row,) = card_grid(facts(reports={}))
    assert (row.cards, row.why) == ((), "no report")


def test_cards_that_no_pool_has_and_nodes_without_agent_are_left_out():
    nodes = (NodeState("node-1", ready=True), NodeState("node-2", ready=True))
    (row,) = card_grid(facts(replace(CARD, resources=()), nodes=nodes))
    assert (row.node, row.cards) == ("node-1", ())


def test_cards_stand_by_pci_address_and_nodes_as_people_count():
    other = replace(CARD, id=CardId("0000:18:00.0"), name="mlx5_9")
    reports = {name: NodeReport("0.1.0", (CARD, other)) for name in ("node-10", "node-2")}
    rows = card_grid(facts(nodes=(), reports=reports, pods=None))
    assert [row.node for row in rows] == ["node-2", "node-10"]
    assert [card.name for card in rows[0].cards] == ["mlx5_9", "mlx5_0"]
