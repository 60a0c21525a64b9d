"""What a look of the agent comes to in its report."""

from ipaddress import ip_network

import pytest

from kube_base.frozen import replace
from kube_rdma.hardware.machines import machine
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import AddRoute
from kube_rdma.model.card import CardId, Function, Netdev, Use
from kube_rdma.model.device import PortState
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import Mode, PoolSpec, Selector
from kube_rdma.model.reports import (
    CardState,
    ClusterFacts,
    KnownNeighbour,
    NodeReport,
    ProgramPod,
    ProgramRole,
    ReportedCard,
    ReportedNeighbour,
    ReportedPort,
    Workload,
)
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.condition import CardsState, next_state
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from kube_rdma.pools.rules.staging import PendingPool
from kube_rdma.reports.node_report import report_status
from kube_rdma.reports.rules.node_report import (
    MOST_CARDS,
    AgentLook,
    card_grid,
    first_report,
    node_report,
)
from tests.unit.agent.conftest import RDMA_CM, card
from tests.unit.agent.world import hard_card, position

HCA = PoolSpec("rdma/hca", Mode.HCA, "config.json")


def look(*devices, specs=(HCA,), before=None, functions=4, **more):
    """What an agent knows after a look at these devices, and the state for the next."""
    up = [(Netdev(f"eth{n}", "ether", up=True, carrier=True),) for n in range(functions)]
    positions = tuple(
        Function(position(n), 0x15B3, 0x1017, "mlx5_core", up[n]) for n in range(functions)
    )
    survey = Survey(devices, RDMA_CM, NamespaceMode.SHARED, functions=positions)
    verdict = evaluate(NodeFacts(survey, node_cards(survey), specs))
    cards = next_state(before or CardsState(), verdict, specs, survey)
    return AgentLook("1", survey, verdict, cards, **more)


def test_cards_of_pools_come_with_ports_resources_and_reasons():
    report = node_report(look(hard_card(0), hard_card(1, PortState.DOWN)))
    well, ill = report.cards
    assert (well.name, well.resources, well.reasons) == ("mlx5_0", ("rdma/hca",), ())
    assert (ill.ports[0].state, ill.ports[0].rate) == ("DOWN", "100G")
    assert ill.reasons[0].startswith("no port is ACTIVE")
    assert report.ill == (ill,)
    (pool,) = report.pools
    assert (pool.resource, pool.mode, pool.cards, pool.bind) == ("rdma/hca", "hca", 2, "pool")
    assert pool.healthy == pool.shares > 0


def test_cards_have_the_rails_that_addresses_are_chosen_by():
    first, second = node_report(look(hard_card(0), hard_card(1))).cards
    report = node_report(look(hard_card(0), hard_card(1), rails={second.id: 0}))
    assert [(one.id, one.rail) for one in report.cards] == [(first.id, None), (second.id, 0)]
    assert report_status(None, report, "2026-01-01T00:00:00Z").cards[1].rail == 0


def test_a_card_that_a_selector_seems_to_mean_is_there_with_the_name_that_nothing_has():
    """It is no card of the pool, so it counts in no column and makes nothing ill."""
    named = replace(HCA, selectors=(Selector(rdma_devices=("mlx5_0", "mlx5_9")),))
    report = node_report(look(hard_card(0), hard_card(1), specs=(named,), functions=2))
    (card,) = report.left_out
    assert (card.name, card.resources, report.ill) == ("mlx5_1", (), ())
    assert card.reasons[0].endswith("names mlx5_9, which the node does not have")


def test_a_port_has_its_neighbour_or_why_there_is_none():
    leaf = ReportedNeighbour("leaf-1", "Ethernet1/1", "52:54:00:aa:00:01")
    known = {
        (position(0).pci, "mlx5_0", 1): KnownNeighbour(leaf),
        (position(1).pci, "mlx5_1", 1): KnownNeighbour(unheard="no LLDP frame for 121 s"),
    }
    report = node_report(look(hard_card(0), hard_card(1), neighbours=known))
    heard, silent = (card.ports[0] for card in report.cards)
    assert (heard.neighbour, heard.unheard) == (leaf, "")
    assert (silent.neighbour, silent.unheard) == (None, "no LLDP frame for 121 s")


def test_why_nobody_gets_the_metrics_is_reported():
    made = report_status(None, node_report(look(hard_card(0), metrics="x" * 600)), "now")
    assert made.metrics == "x" * 511 + "…"


def test_a_card_has_the_firmware_of_its_device_cut_to_a_word():
    devices = (
        replace(hard_card(0), firmware="28.39.1002" * 9),
        replace(hard_card(1), firmware=None),
    )
    first, second = report_status(None, node_report(look(*devices)), "now").cards
    assert (len(first.firmware), first.firmware[:10], second.firmware) == (63, "28.39.1002", "")


def test_a_card_that_no_pool_has_is_rejected_with_its_reason_or_merely_there():
    """Interfaces without RDMA are nobody's news."""
    only = replace(HCA, selectors=(Selector(rdma_devices=("mlx5_0",)),))
    devices = (hard_card(0), hard_card(1), hard_card(2, PortState.DOWN))
    report = node_report(look(*devices, specs=(only,)))
    assert [(c.name, c.resources) for c in report.cards] == [
        ("mlx5_0", ("rdma/hca",)),
        ("mlx5_1", ()),
    ]
    assert [c.name for c in report.rejected] == ["mlx5_2"]
    assert report.ill == ()


def test_a_card_comes_with_its_driver_and_a_part_with_its_physical_card():
    survey = survey_at(machine("mlx5-roce-pf-vfs"))
    report = first_report("1", survey)
    cards = {card.name: (card.driver, card.part_of) for card in (*report.cards, *report.rejected)}
    part = ("mlx5_core", "0000:c1:00.0")
    assert cards == {"mlx5_0": ("mlx5_core", ""), "mlx5_1": part, "mlx5_2": part}
    written = report_status(None, report, "2026-01-01T00:00:00Z")
    assert {card.part_of for card in written.cards} == {"", "0000:c1:00.0"}


def test_a_card_that_vanished_is_reported_as_gone():
    first = look(hard_card(0), hard_card(1))
    report = node_report(look(hard_card(0), before=first.cards, functions=1))
    gone = report.cards[1]
    assert (gone.name, gone.gone, gone.ports) == ("mlx5_1", True, ())
    assert report.ill == (gone,)


def test_two_pools_of_one_card_are_a_trouble():
    other = replace(HCA, resource="rdma/other", mode=Mode.EXCLUSIVE)
    report = node_report(look(hard_card(0), specs=(HCA, other)))
    assert any("mlx5_0 belongs to rdma/hca" in trouble for trouble in report.troubles)


def test_pods_whose_default_route_is_a_network_s_are_in_it():
    """By the journal, whoever asked for it; one of an interface's own table is no such route."""
    everywhere, sandbox = ip_network("0.0.0.0/0"), Sandbox("1", PodName("team", "a"), "u", "/n", 1)
    steps = {
        "net1": AddRoute("net1", everywhere, table=101),
        "net2": AddRoute("net2", ip_network("128.0.0.0/1")),
        "net3": AddRoute("net3", ip_network("10.0.0.0/8")),
        "eth0": AddRoute("eth0", everywhere),
    }
    plans = tuple(Plan(name, "team/x", None, (step,)) for name, step in steps.items())
    made = (Attachment(sandbox, plans, complete=True),)
    assert node_report(look(hard_card(0), attachments=made)).rerouted == ("team/a by net2",)


def test_what_waits_and_what_is_refused_is_in_it():
    pending = PendingPool(HCA, replace(HCA, mode=Mode.SHARED), "these pods have ended: a/b")
    report = node_report(look(hard_card(0), pending=(pending,), refusals=("b: no", "a: no")))
    assert report.pending[0].mode == "shared"
    assert "a/b" in report.pending[0].sentence
    assert report.refusals == ("a: no", "b: no")


def test_where_room_is_short_ill_and_degraded_cards_come_first():
    devices = [card(n) for n in range(MOST_CARDS + 20)]
    devices[-1] = card(MOST_CARDS + 19, PortState.DOWN)
    rising = CardId(devices[-2].identity)
    report = node_report(look(*devices, degraded={rising: "symbol_error rises"}))
    assert (len(report.cards), report.omitted) == (MOST_CARDS, 20)
    assert [ill.name for ill in report.ill] == [devices[-1].name]
    degraded = {card.id: card.degraded for card in report.cards if card.degraded}
    assert degraded == {rising: "symbol_error rises"}


def test_the_same_node_reports_the_same():
    devices = (hard_card(0), hard_card(1, PortState.DOWN))
    assert node_report(look(*devices)) == node_report(look(*reversed(devices)))


def test_what_the_node_needs_a_card_for_is_in_it():
    """Routes and storage; and the node's addresses on it, for who knows which of them count."""
    use = Use(addresses=("10.0.0.2/24",), beyond=("10.9.0.0/16",), storage=("nfs 10.9.0.1",))
    used = Netdev("ens1", "ether", up=True, carrier=True, use=use)
    reported = []
    for netdev in (used, replace(used, default_route=True, use=None)):
        made = look(hard_card(0))
        function = replace(made.verdict.cards[0].function, netdevs=(netdev,))
        cards = (replace(made.verdict.cards[0], function=function),)
        verdict = replace(made.verdict, cards=cards, pools=())
        reported += node_report(replace(made, verdict=verdict)).cards
    assert [card.carries for card in reported if card.carries] == [
        ("ens1 leads to storage, nfs 10.9.0.1", "routes to 10.9.0.0/16 lead through ens1"),
        ("the default route leads through ens1",),
    ]
    assert reported[0].addresses == ("10.0.0.2",)


# Each card of the fleet has one state, and what nobody tells of now is not known.

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
