"""A node out of its report: what the rules take from it is what the agent has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.explain.rules.node import basis
from kube_rdma.hardware.machines import machine
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Attach, Bind, Mode, PoolSpec
from kube_rdma.model.settings import FabricProfile
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.condition import CardsState
from kube_rdma.pools.rules.labels import NAMESPACES
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from kube_rdma.reports.rules.node_report import AgentLook, node_report
from tests.kit import explained as kit
from tests.kit.nodes import nodes

RESOURCE = "rdma/hca"


def look(node, spec):
    """What the agent of a node knows, and reports."""
    verdict = evaluate(NodeFacts(node.survey, node.cards, (spec,)))
    return verdict, node_report(AgentLook("1", node.survey, verdict, CardsState()))


@given(nodes(), st.sampled_from(Mode), st.integers(1, 3))
def test_pools_come_back_from_a_report(node, mode, shares):
    """Which shares there are, how many are healthy, and what they stand for."""
    most = 1 if mode in (Mode.EXCLUSIVE, Mode.SHARED, Mode.SRIOV) else shares
    verdict, report = look(node, PoolSpec(RESOURCE, mode, "here", shares=most))
    (agents,), (seen,) = verdict.pools, basis("n", report).pools
    assert [card.id for card in seen.cards] == [card.id for card in agents.cards]
    assert {s.id: s.healthy for s in seen.shares} == {s.id: s.healthy for s in agents.shares}
    if agents.shares:
        assert terms(seen.spec).bind is terms(agents.spec).bind


@given(nodes())
def test_links_are_those_of_the_reported_ports(node):
    _, report = look(node, PoolSpec(RESOURCE, Mode.HCA, "here"))
    ports = [port for card in report.cards for port in card.ports if port.netdev]
    names = {port.netdev for port in ports} | {port.bond for port in ports if port.bond}
    host = basis("n", report).host
    assert {link.name for link in host.links} == names
    assert len({link.index for link in host.links}) == len(host.links)


def test_a_bond_of_a_port_is_a_link_of_its_own():
    """So a network on the bond is planned as the agent plans it."""
    survey = survey_at(machine("mlx5-bond"))
    spec = PoolSpec(RESOURCE, Mode.SHARED, "here")
    verdict = evaluate(NodeFacts(survey, node_cards(survey), (spec,)))
    slave, bond = basis("n", node_report(AgentLook("1", survey, verdict, CardsState()))).host.links
    assert (slave.name, slave.master, slave.bonded) == ("ens1f0np0", "bond0", True)
    assert (bond.name, bond.pci, bond.kind) == ("bond0", None, "bond")


def test_a_policy_says_what_a_report_does_not():
    report = kit.reported()
    fabric = FabricProfile(traffic_class=106)
    spec = PoolSpec(RESOURCE, Mode.SHARED, "NodePolicy a", fabric=fabric, attach=Attach.REQUIRED)
    (pool,) = basis("n", report, specs=(spec,)).pools
    assert pool.spec == spec
    (pool,) = basis("n", report, specs=(replace(spec, mode=Mode.HCA),)).pools
    assert pool.spec.fabric is None


def test_a_number_of_shares_that_no_card_has_is_the_pools():
    """The mode says per card, and a document has said otherwise."""
    (pool,) = basis("n", kit.reported("shared", 3)).pools
    assert (pool.spec.bind, len(pool.shares)) == (Bind.POOL, 3)


def test_the_namespace_mode_is_the_labels():
    report = kit.reported()
    for word in ("shared", "exclusive"):
        state = NodeState("n", labels=((NAMESPACES, word),))
        assert basis("n", report, state).host.namespace_mode is NamespaceMode(word)
    assert basis("n", report).host.namespace_mode is NamespaceMode.UNKNOWN


def test_a_mode_of_a_later_release_is_left_out():
    report = kit.reported()
    later = replace(report.pools[0], mode="quantum")
    assert basis("n", replace(report, pools=(later,))).pools == ()
