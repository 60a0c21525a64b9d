"""What `kube-rdma explain` says of Steps is what the agent does: planned first, then attached."""

from __future__ import annotations

import json

import pytest

from kube_base.frozen import replace
from kube_rdma.attach.documents import network_status, networks
from kube_rdma.explain.rules.node import basis
from kube_rdma.explain.rules.pod import explain
from kube_rdma.explain.views import step_texts
from kube_rdma.model.admission import ContainerTemplate, PodTemplate, ResourceAsk
from kube_rdma.model.explain import PodEvidence, StepsFrom
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Mode
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool, ReportedPort
from kube_rdma.pools.rules.labels import NAMESPACES
from tests.unit.attach.network_world import POD, RESOURCE, World, card, config, share

OWN_STATUS = "kube-rdma.io/network-status"


def reported(of):
    (device,) = of.devices
    (port,) = device.ports
    seen = ReportedPort(device.name, port.number, port.state, port.link_layer, netdev=port.netdev)
    return ReportedCard(of.id, of.name, (RESOURCE,), 0, (seen,))


def node(cards, mode, shares):
    """The node's report, and its label of namespaces."""
    pool = ReportedPool(RESOURCE, mode, shares, shares, len(cards))
    report = NodeReport("0.1.0", tuple(map(reported, cards)), pools=(pool,))
    labels, offers = ((NAMESPACES, "shared"),), ((RESOURCE, shares),)
    return basis("node-1", report, NodeState("node-1", labels=labels, allocatable=offers))


async def evidence(world, text, count, on):
    asks = networks.asks(text, POD.namespace)
    names = dict.fromkeys(ask.network for ask in asks)
    definitions = [await world.node.definition(POD.namespace, name) for name in names]
    brought = [one.ipam.pool for one in definitions if one.ipam.pool]
    ask = ResourceAsk(RESOURCE, count, ())
    main = ContainerTemplate("main", (), asks=(ask,))
    template = PodTemplate(POD.namespace, POD.name, containers=(main,))
    return PodEvidence(
        template,
        "node-1",
        asks=asks,
        networks=tuple(one.network for one in definitions),
        ip_pools={**world.node.pools, **{one.name: one for one in brought}},
        basis=on,
    )


ASKED = {
    "name": "rdma",
    "ips": ["10.9.0.77"],
    "mac": "02:00:00:00:00:77",
    "default-route": ["10.9.0.254"],
}
CASES = {
    "macvlan": (Mode.SHARED_MULTI, config("macvlan"), "rdma", 2),
    "two": (Mode.SHARED_MULTI, config("macvlan"), "rdma,rdma", 2),
    "ipvlan": (Mode.SHARED, config("ipvlan"), "rdma@fabric", 1),
    "whole": (Mode.EXCLUSIVE, config("host-device"), "rdma", 1),
    "two whole": (Mode.EXCLUSIVE, config("host-device"), "rdma@a,rdma@b", 2),
    "its mode": (Mode.SHARED, config("kube-rdma", mtu=4200), "rdma", 1),
    "its own mode": (Mode.EXCLUSIVE, config("kube-rdma"), "rdma", 1),
    "asked": (Mode.SHARED, config("macvlan"), json.dumps([ASKED]), 1),
}


@pytest.mark.parametrize("name", CASES)
async def test_what_is_planned_from_a_report_is_what_the_agent_does(name, tmp_path):
    mode, network, text, count = CASES[name]
    cards = [card(number) for number in range(2)]
    held = [share(one, mode) for one in cards[:count]]
    world = World(tmp_path / "w", cards, held, {"default/rdma": network})
    world.sandbox()
    before = await evidence(world, text, count, node(cards, mode, 2))
    planned = explain(before)
    assert not planned.findings
    assert planned.source is StepsFrom.RULES
    world.ask(text)
    await world.add(1)
    (attachment,) = world.attachments.by_key.values()
    recorded = explain(replace(before, phase="Running", recorded=(attachment,)))
    assert recorded.source is StepsFrom.RECORD
    told = tuple(network_status.own_attached(told_of(world)))
    by_name = {one.interface: one for one in told}
    for plan, done in zip(planned.plans, recorded.plans, strict=True):
        assert done.done
        (address,) = by_name[plan.interface].addresses
        texts = [one.replace("ADDRESS", str(address.address)) for one in step_texts(plan)]
        assert texts == list(step_texts(done))


async def test_what_other_plugins_make_is_planned_as_their_call(tmp_path):
    """Of a pod without shares; kube-rdma calls the plugin of that name."""
    network = (None, config("bridge")[1])
    world = World(tmp_path / "w", [card(0)], [], {"default/rdma": network})
    world.sandbox()
    before = await evidence(world, "rdma", 0, node([card(0)], Mode.SHARED, 1))
    planned = explain(before)
    world.ask("rdma")
    await world.add(1)
    (attachment,) = world.attachments.by_key.values()
    recorded = explain(replace(before, phase="Running", recorded=(attachment,)))
    assert [step_texts(one) for one in planned.plans] == [step_texts(one) for one in recorded.plans]
    assert planned.networks[0].means.startswith("made by the CNI plugin bridge")


def told_of(world):
    return json.dumps(world.node.told[OWN_STATUS])


@pytest.mark.parametrize("name", ["macvlan", "two", "ipvlan"])
async def test_steps_are_told_again_from_what_the_pod_was_told(name, tmp_path):
    """Without the record: the same words, of a pod that shares its cards."""
    mode, network, text, count = CASES[name]
    cards = [card(number) for number in range(2)]
    held = [share(one, mode) for one in cards[:count]]
    world = World(tmp_path / "w", cards, held, {"default/rdma": network})
    world.sandbox()
    before = await evidence(world, text, count, node(cards, mode, 2))
    world.ask(text)
    await world.add(1)
    (attachment,) = world.attachments.by_key.values()
    told = tuple(network_status.own_attached(told_of(world)))
    again = explain(replace(before, phase="Running", attached=told))
    recorded = explain(replace(before, phase="Running", recorded=(attachment,)))
    assert [step_texts(one) for one in again.plans] == [step_texts(one) for one in recorded.plans]
    assert [one.card for one in again.shares if one.sure] == [one.card for one in told]


async def test_a_soft_device_has_the_name_that_it_was_given(tmp_path):
    cards = [card(0, soft=True)]
    world = World(
        tmp_path / "w", cards, [share(cards[0], Mode.SHARED)], {"default/rdma": config("macvlan")}
    )
    world.sandbox()
    before = await evidence(world, "rdma", 1, node(cards, Mode.SHARED, 1))
    # A report does not say that the card is soft where a PCI function is below it.
    pools = tuple(replace(one, cards=tuple(cards)) for one in before.basis.pools)
    before = replace(before, basis=replace(before.basis, pools=pools))
    before = replace(before, basis=replace(before.basis, host=await world.node.host()))
    (plan,) = explain(before).plans
    assert "make the rxe device DEVICE on net1" in step_texts(plan)
    assert any(word.meaning.startswith("DEVICE gets") for word in plan.stand_ins)
    world.ask("rdma")
    await world.add(1)
    told = tuple(network_status.own_attached(told_of(world)))
    (plan,) = explain(replace(before, phase="Running", attached=told)).plans
    assert f"make the rxe device {told[0].rdma_device} on net1" in step_texts(plan)
