"""The stages of an attachment: each refuses what is its own, and the agent and explain take all."""

from __future__ import annotations

import ast
import json
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest
from hypothesis import given as given_by

import kube_rdma
from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules import procedure
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans
from kube_rdma.attach.rules.procedure import NetworkRequest
from kube_rdma.model.attach.attachment import NetworkKind, PodView, SeenLink
from kube_rdma.model.attach.cni import CniResult, Dns, LinkAddress
from kube_rdma.model.attach.steps import AddRule, CallPlugin
from kube_rdma.model.pools import FunctionSettings, Mode
from tests.kit.pod_networks import SANDBOX, card, given, network, node, pods, share, wish

GUID = "02:00:0a:00:00:00:00:01"
STAGES = ("match", "locate", "settle", "address", "plan")
DRIVERS = {
    "attach/attach.py": (*STAGES, "observe", "conclude"),
    "explain/rules/planning.py": STAGES,  # nothing is made for it
    "../kube_rdma_selftest/choice.py": STAGES,  # run.py does the Steps, without a pod
}
INSIDE = ("addresses", "delegated", "foreign_plugins", "plan", "placement", "vf", "infiniband")


def placed(*wishes, shares=(), on=None, **facts):
    """The third stage of these entries."""
    wished = procedure.match(asked(*wishes, **facts), tuple(shares))
    return procedure.settle(procedure.locate(wished, on or node(card(0))))


def asked(*wishes, **facts):
    networks = {one.network.name: one.network for one in wishes}
    return NetworkRequest(tuple(one.ask for one in wishes), tuple(networks.values()), **facts)


@given_by(pods())
def test_the_stages_come_to_the_plan_that_the_rules_make(pod):
    """Of any pod that the rules take; what they refuse, a stage refuses in the same words."""
    wishes, shares, _, on, leases = pod
    plan = procedure.plan(procedure.address(placed(*wishes, shares=shares, on=on), SANDBOX, leases))
    assert plan.plans == plan.own == plans(SANDBOX, pod_nics(wishes, shares, on), leases, on)


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_takes_every_stage_in_the_order_of_the_procedure(name):
    """And has no rule of a stage by another way, or a step would miss in the other driver."""
    tree = ast.parse((Path(kube_rdma.__file__).parent / name).read_text())
    calls = [
        (node.lineno, node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "procedure"
        and node.func.attr.islower()  # no type
    ]
    assert tuple(stage for _, stage in sorted(calls)) == DRIVERS[name]
    imported = {
        one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module.rpartition(".")[0] == "kube_rdma.attach.rules"
        if node.module.rpartition(".")[2] in INSIDE
        for one in node.names
    }
    assert imported <= {"is_of_card", "of_allocations", "owner", "refuse_missing", "link_of"}


def test_a_guid_of_two_entries_is_refused_before_anything_is_taken():
    first = card(1, link_type="infiniband", virtual=True)
    second = card(2, link_type="infiniband", virtual=True)
    facts = {"function": FunctionSettings(), "infiniband": True}
    of = network(kind=NetworkKind.DEVICE, **facts)
    held = [share(one, mode=Mode.SRIOV) for one in (first, second)]
    with pytest.raises(Refused, match="the GUID 02:00:0a:00:00:00:00:01 is taken"):
        placed(wish(0, of, guid=GUID), wish(1, of, guid=GUID), shares=held, on=node(first, second))


def test_a_guid_that_another_add_is_about_to_give_is_refused():
    of = card(1, link_type="infiniband", virtual=True)
    facts = {"function": FunctionSettings(), "infiniband": True}
    entry = wish(0, network(kind=NetworkKind.DEVICE, **facts), guid=GUID)
    wished = procedure.match(asked(entry), (share(of, mode=Mode.SRIOV),))
    located = procedure.locate(wished, node(of))
    assert procedure.settle(located).sole == (GUID,)
    with pytest.raises(Refused, match="default/other is being given it"):
        procedure.settle(located, claimed={GUID: "default/other is being given it"})


def test_for_the_caller_of_one_network_no_rule_to_its_table_is_made():
    of = network(kind=NetworkKind.MACVLAN)
    lease = given(1, "10.0.0.7/24", gateway=ip_address("10.0.0.1"))
    both = (
        placed(wish(0, of), shares=[share(card(0))], called=called, table=table)
        for called, table in ((True, None), (True, 107))
    )
    own, callers = (
        procedure.plan(procedure.address(one, SANDBOX, [lease])).own[0].steps for one in both
    )
    rules = [step for step in own if isinstance(step, AddRule)]
    assert [one.table for one in rules] == [101]
    assert not any(isinstance(step, AddRule) for step in callers)
    assert {step.table for step in callers if hasattr(step, "table")} <= {None, 107}


def test_an_ipam_plugin_is_asked_before_the_plan_and_its_answer_is_in_it():
    text = json.dumps({"cniVersion": "1.0.0", "type": "macvlan", "ipam": {"type": "site-ipam"}})
    facts = {"ipam_plugin": "site-ipam", "config": text.encode()}
    entry = wish(0, network(kind=NetworkKind.MACVLAN, **facts))
    place = placed(entry, shares=[share(card(0))])
    (call,) = place.plugin_calls
    addressed = procedure.address(place, SANDBOX, ())
    (first,) = addressed.begun
    assert first.steps[-1] == call
    answer = CniResult(addresses=(LinkAddress(ip_interface("10.6.0.7/24")),))
    planned = procedure.plan(addressed, {entry.ask.interface: answer})
    assert [str(one.address) for one in planned.own[0].addresses] == ["10.6.0.7"]
    unasked = procedure.plan(addressed)
    assert any(isinstance(step, CallPlugin) for step in unasked.own[0].steps)
    assert unasked.own[0].addresses == ()


def test_an_interface_has_the_dns_of_its_document():
    dns = Dns(("10.0.0.53",))
    entry = wish(0, network(kind=NetworkKind.MACVLAN, dns=dns))
    place = placed(entry, shares=[share(card(0))])
    plan = procedure.plan(procedure.address(place, SANDBOX, [given(1, "10.0.0.7/24")]))
    view = PodView(links=(SeenLink(entry.ask.interface, 9, 1500, "02:00:00:00:00:01", up=True),))
    made = procedure.observe(plan, view)
    assert made.devices
    assert [one.dns for one in procedure.conclude(made, (), None).interfaces] == [dns]


def test_without_a_share_a_network_that_names_no_card_is_another_plugins_unless_one_is_called_for():
    text = b'{"cniVersion": "1.0.0", "type": "macvlan"}'
    of = network(kind=NetworkKind.MACVLAN, resource=None, config=text, plugin="macvlan")
    entry = replace(wish(0, of))
    assert procedure.match(asked(entry), ()).needs_plugins
    assert not procedure.match(asked(entry, called=True), ()).needs_plugins
