"""A pod explained out of values: shares and addresses that nobody knows yet, and refusals."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.documents import networks
from kube_rdma.explain.rules.node import basis
from kube_rdma.explain.rules.planning import assumed_shares
from kube_rdma.explain.rules.pod import explain
from kube_rdma.explain.views import explain_document, explain_page, step_texts
from kube_rdma.lib.page import page_text
from kube_rdma.model.admission import ContainerRole, ContainerTemplate, PodTemplate, ResourceAsk
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import AskedAddress, Attachment, NetworkRoute, Plan, Sandbox
from kube_rdma.model.doctor import ObservedContainer, ObservedLink, ObservedPod
from kube_rdma.model.explain import PodEvidence
from kube_rdma.model.finding import Finding, Severity, Stage
from kube_rdma.model.ipam import IPPool, IPRange, PoolName, Route
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import FunctionSettings, Mode, PoolSpec, Selector
from kube_rdma.model.settings import FabricProfile
from tests.kit import explained as kit

RAIL = PoolName("rail")
POOL = IPPool(RAIL, (IPRange(ip_network("10.20.0.0/29"), gateway=ip_address("10.20.0.1")),))
NETWORK = kinds.CardNetwork("default/net", "here", resource=kit.HCA, pools=(RAIL,))
STATE = NodeState("node-1", allocatable=((kit.HCA, 2),))


def container(name, count, role=ContainerRole.MAIN):
    return ContainerTemplate(name, (), role, (ResourceAsk(kit.HCA, count, ()),))


def template(*containers):
    return PodTemplate("default", "new", containers=containers or (container("main", 1),))


def evidence(text="net", network=NETWORK, pool=POOL, **more):
    """A pod that does not exist yet, on a node of two cards."""
    node = basis("node-1", kit.reported(), STATE)
    asks = networks.asks(text, "default")
    pools = {pool.name: pool}
    return replace(
        PodEvidence(template(), "node-1", "", "", asks, (network,), pools, basis=node), **more
    )


def text_of(explanation):
    """What a pipe gets."""
    return page_text(explain_page(explanation), 100)


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 4), st.sampled_from(Mode))
def test_as_many_shares_are_assumed_as_are_asked_for_and_none_twice(counts, per_card, mode):
    """Unless there are too few: then nobody assumes any."""
    report = kit.reported(mode, 2 * per_card if mode is not Mode.HCA else per_card)
    node = basis("node-1", report, STATE)
    containers = tuple(container(f"c{n}", count) for n, count in enumerate(counts))
    pod = PodTemplate("default", "new", containers=containers)
    (pool,) = node.pools
    wanted = sum(counts)
    outcome = explain(PodEvidence(pod, "node-1", basis=node))
    if wanted > len(pool.shares):
        assert outcome.is_refused
        return
    granted = list(assumed_shares(pod, node))
    assert len({one.share for one in granted}) == len(granted) == wanted
    held = [sum(one.container == f"c{n}" for one in granted) for n in range(len(counts))]
    assert held == counts


def test_what_an_init_container_holds_is_free_again():
    pod = template(container("first", 2, ContainerRole.INIT), container("main", 2))
    granted = list(assumed_shares(pod, basis("node-1", kit.reported(), STATE)))
    assert [one.container for one in granted] == ["main", "main"]


def test_each_interface_has_a_stand_in_of_its_own():
    """Both have addresses of one pool, which no rule of the agent takes for one address."""
    explanation = explain(replace(evidence("net,net"), template=template(container("main", 2))))
    first, second = explanation.plans
    assert first.stand_ins[0].text != second.stand_ins[0].text
    assert first.stand_ins[0].word == second.stand_ins[0].word == "ADDRESS"
    text = text_of(explanation)
    assert all(one.stand_ins[0].text not in text for one in explanation.plans)
    assert "by 10.20.0.1, in table 101" in text


def test_an_address_that_is_asked_for_is_no_stand_in():
    pod = evidence()
    (ask,) = pod.asks
    address = ip_address("10.20.0.5")
    (plan,) = explain(replace(pod, asks=(replace(ask, addresses=(AskedAddress(address),)),))).plans
    assert "give net1 the address 10.20.0.5/29" in step_texts(plan)
    assert plan.stand_ins == ()


def test_both_families_have_a_word():
    six = IPRange(ip_network("fd00::/64"))
    (plan,) = explain(evidence(pool=replace(POOL, ranges=(*POOL.ranges, six)))).plans
    texts = step_texts(plan)
    assert "give net1 the address ADDRESS/29" in texts
    assert "give net1 the address ADDRESS6/64" in texts


def test_several_pools_are_all_named():
    (plan,) = explain(evidence(network=replace(NETWORK, pools=(RAIL, PoolName("other"))))).plans
    assert "one of IPPools rail, other, by the rail of its card" in plan.stand_ins[0].meaning


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"pool": replace(POOL, namespaces=("ops",))}, "IPPool rail is for pods of ops"),
        ({"ip_pools": {}}, "there is no IPPool rail"),
    ],
)
def test_what_ipam_would_refuse_is_refused_in_its_words(more, problem):
    (finding,) = explain(evidence(**more)).findings
    assert (finding.stage, finding.is_error) == (Stage.AGENT, True)
    assert finding.problem.startswith(problem)


EVERYWHERE = ip_network("0.0.0.0/0")


@pytest.mark.parametrize(
    ("network", "pool", "about"),
    [
        (replace(NETWORK, routes=(NetworkRoute(EVERYWHERE),)), POOL, "network/default/net"),
        (NETWORK, replace(POOL, routes=(Route(EVERYWHERE),)), "ippool/rail"),
    ],
    ids=["network", "pool"],
)
def test_a_default_route_that_no_entry_asks_for_is_told(network, pool, about):
    """It is in the interface's table; an entry that asks for it has it in the main one."""
    outcome = explain(evidence(network=network, pool=pool))
    (note,) = [one for one in outcome.notes if "default route" in one]
    assert note.startswith(f"{about}: Its default route is not in the main table of pods")
    assert "write default-route into its entry" in note
    steps = [text for plan in outcome.plans for text in step_texts(plan)]
    lead = "route 0.0.0.0/0 through net1 by 10.20.0.1"
    assert [one for one in steps if one.startswith(lead)] == [f"{lead}, in table 101"]
    assert not outcome.findings
    text = '[{"name": "net", "default-route": ["10.20.0.1"]}]'
    outcome = explain(evidence(text, network, pool))
    steps = [text for plan in outcome.plans for text in step_texts(plan)]
    assert [one for one in steps if one.startswith(lead)] == [f"{lead}, in table 101", lead]
    assert not [one for one in outcome.notes if "default route" in one]


@pytest.mark.parametrize("asked", [False, True])
def test_a_pod_that_an_agent_of_before_gave_a_default_route_is_told(asked):
    """By the journal; one that asks for it has what it wants."""
    network = replace(NETWORK, routes=(NetworkRoute(EVERYWHERE),))
    text = '[{"name": "net", "default-route": ["10.20.0.1"]}]'
    (plan,) = explain(evidence(text, network)).plans
    recorded = Plan(plan.interface, plan.network, None, plan.steps)
    sandbox = Sandbox(ContainerId("1"), PodName("default", "new"), "uid", "/run/n", 1)
    running = evidence(text if asked else "net", network, phase="Running")
    outcome = explain(replace(running, recorded=(Attachment(sandbox, (recorded,), complete=True),)))
    told = [one for one in outcome.notes if one.startswith("net1 has the pod's default route")]
    assert len(told) == (0 if asked else 1)


@pytest.mark.parametrize(
    ("facts", "means"), [({}, "there is no such network"), ({"unread": True}, "not read")]
)
def test_a_network_that_is_not_there_and_one_that_was_not_read_differ(facts, means):
    (network,) = explain(evidence("gone", **facts)).networks
    assert network.means == means


def test_pools_that_nobody_could_look_for_refuse_nothing():
    explanation = explain(evidence(ip_pools={}, pools_seen=False))
    assert not explanation.is_refused
    assert explanation.plans


def test_what_other_pods_have_is_not_given_again():
    """The card that a pod was told of, and the count that the scheduler keeps."""
    pod = evidence()
    used = replace(pod.basis, used_cards=("0000:80:00.0",), held=((kit.HCA, 1),))
    (share,) = explain(replace(pod, basis=used)).shares
    assert share.card == "0000:81:00.0"
    cards = ("0000:80:00.0", "0000:81:00.0")
    full = replace(pod.basis, held=((kit.HCA, 2),), used_cards=cards)
    explanation = explain(replace(pod, basis=full))
    (finding,) = explanation.findings
    assert explanation.plans
    assert any("no other pod holds shares" in note for note in explanation.notes)
    assert finding.problem == (
        "the pod asks for 1, and the node offers 2, of which other pods ask for 2"
    )


def test_an_interface_that_no_report_has_is_taken_to_be_there():
    network = kinds.MacvlanNetwork("default/net", "here", device="eth0", pools=(RAIL,))
    pod = replace(evidence(network=network), template=PodTemplate("default", "new"))
    explanation = explain(pod)
    assert not explanation.findings
    assert step_texts(explanation.plans[0])[0] == "make net1, macvlan (bridge) on eth0"
    assert any("has eth0 is not judged" in note for note in explanation.notes)


def test_settings_of_virtual_functions_are_not_guessed():
    network = kinds.DeviceNetwork(
        "default/net", "here", kit.HCA, pools=(RAIL,), function=FunctionSettings(vlan=7)
    )
    functions = basis("node-1", kit.reported(Mode.SRIOV), STATE)
    explanation = explain(evidence(network=network, basis=functions))
    assert explanation.plans == ()
    assert any("virtual function" in note for note in explanation.notes)
    assert not explanation.is_refused
    shared = explain(evidence(network=network))  # and what their mode forbids is refused
    assert "other pods share its card" in shared.findings[0].problem


def test_the_agents_word_about_a_pod_that_has_its_networks_is_not_asked():
    """Its card is inside of it, so a plan of now would not find it."""
    exclusive = kit.reported("exclusive")
    away = tuple(replace(card, ports=()) for card in exclusive.cards)
    node = basis("node-1", replace(exclusive, cards=away), STATE)
    (status,) = kit.statuses()
    explanation = explain(evidence(basis=node, phase="Running", attached=(status,)))
    assert explanation.findings == ()
    assert [one.card for one in explanation.shares] == ["0000:81:00.0"]
    assert any("record of the agent" in note for note in explanation.notes)
    assert dict(explanation.settings)["/etc/nccl.conf"][0] == "NCCL_IB_HCA==mlx5_1:1"


NO_PORTS = replace(kit.card(0), ports=())
MOVED = replace(kit.card(0), ports=(replace(kit.card(0).ports[0], netdev=None),))
BARE_IB = replace(MOVED, ports=(replace(MOVED.ports[0], link_layer="InfiniBand"),))
ILL = replace(kit.card(0), reasons=("no port is ACTIVE",))
RDMA = PoolSpec(kit.HCA, Mode.SRIOV, "p", selectors=(Selector(rdma=True),))
ANY = replace(RDMA, selectors=(Selector(drivers=("vfio-pci",)),))


@pytest.mark.parametrize(
    ("card", "spec", "lost"),
    [
        (NO_PORTS, ANY, ""),  # a function for user space
        (BARE_IB, RDMA, ""),  # without IPoIB
        (NO_PORTS, RDMA, "1 in other pods"),
        (MOVED, ANY, "1 in other pods"),
        (ILL, RDMA, "1 unhealthy"),
    ],
)
def test_a_card_without_device_or_interface_is_away_only_where_its_pool_needs_them(
    card, spec, lost
):
    """Nobody is advised to ask for 0, or told that an unhealthy share is there for pods."""
    report = replace(kit.reported("sriov", 1), cards=(card,))
    explanation = explain(evidence("", basis=basis("node-1", report, specs=(spec,))))
    assert explanation.is_refused is bool(lost)
    for finding in explanation.findings:
        assert f"the node has 0 of 1 available ({lost})" in finding.problem
        assert "at most" not in finding.remedy
    assert [one.card for one in explanation.shares] == ([] if lost else [card.id])


def test_the_card_that_a_pod_has_is_its_own_however_ill_it_is():
    report = replace(kit.reported(shares=1), cards=(replace(kit.card(1), reasons=("ill",)),))
    (own,) = kit.statuses()
    (share,) = assumed_shares(template(), basis("node-1", report), (own,))
    assert [card.id for card in share.cards] == [own.card]


def test_a_network_waits_for_the_cards_of_a_resource_that_no_agent_reports():
    """The pod asks for the share; to ask for it once more is no remedy."""
    explanation = explain(evidence(basis=basis("node-1", kit.reported(resource="rdma/other"))))
    assert explanation.findings == explanation.plans == ()
    assert any("No agent reports a pool of rdma/hca" in note for note in explanation.notes)


@pytest.mark.parametrize(
    ("mode", "says"), [(Mode.SHARED, True), (Mode.HCA, True), (Mode.SRIOV, False)]
)
def test_settings_are_there_where_the_agent_writes_them(mode, says):
    """Modes that give device nodes at Allocate have no late binding that could."""
    node = basis("node-1", kit.reported(mode), STATE)
    network = kinds.MacvlanNetwork("default/net", "here", kit.HCA, pools=(RAIL,))
    explanation = explain(evidence(network=network, basis=node))
    assert bool(explanation.settings) is says
    assert explanation.device_nodes


def test_the_fabric_of_a_policy_is_in_the_settings():
    spec = PoolSpec(kit.HCA, Mode.SHARED, "policy", fabric=FabricProfile(traffic_class=106))
    node = basis("node-1", kit.reported(), STATE, (spec,))
    settings = dict(explain(evidence(basis=node)).settings)
    assert "NCCL_IB_TC=106" in settings["/etc/nccl.conf"]


def test_shares_of_no_reported_pool_are_told():
    """Those of a plugin that speaks with nobody; and not those of others' cards."""
    gpus = ResourceAsk("nvidia.com/gpu", 1, ())
    main = ContainerTemplate("main", (), asks=(ResourceAsk("rdma/other", 1, ()), gpus))
    state = replace(STATE, allocatable=(("nvidia.com/gpu", 8), ("rdma/other", 1000)))
    node = basis("node-1", kit.reported(), state)
    explanation = explain(PodEvidence(template(main), "node-1", basis=node))
    assert not explanation.is_refused
    assert [note for note in explanation.notes if "No agent reports" in note] == [
        "No agent reports a pool of rdma/other on node-1; its cards are unknown"
    ]


def test_a_resource_of_a_network_is_a_share_whatever_its_name():
    """Such as those of another plugin."""
    main = ContainerTemplate("main", (), asks=(ResourceAsk("intel.com/nic", 1, ()),))
    explanation = explain(
        evidence(
            template=template(main),
            network=replace(NETWORK, resource="intel.com/nic"),
            basis=basis("node-1", kit.reported(), replace(STATE, allocatable=())),
        )
    )
    assert (
        "No agent reports a pool of intel.com/nic on node-1; its cards are unknown"
        in explanation.notes
    )


def test_a_closed_node_is_the_schedulers_word():
    node = basis("node-1", kit.reported(), replace(STATE, unschedulable=True))
    (finding,) = explain(evidence(basis=node)).findings
    assert (finding.stage, finding.problem) == (Stage.SCHEDULER, "the node is closed (cordoned)")


def test_without_a_node_no_step_is_planned():
    explanation = explain(evidence(basis=None, node=""))
    assert explanation.plans == ()
    assert any("name one with --node" in note for note in explanation.notes)
    assert "too little to plan" in text_of(explanation)


def running(**more):
    """A pod that runs and was told of its interface, seen from elsewhere unless `more` says so."""
    return evidence(phase="Running", attached=kit.statuses(), **more)


def inside(*links):
    """The pod as its processes show it."""
    nodes = ("/dev/infiniband/uverbs1",)
    return ObservedPod(
        "default", "new", links=links, containers=(ObservedContainer("main", nodes=nodes),)
    )


def test_what_nobody_looked_at_is_called_a_plan():
    """From a laptop the agent's word to the pod is known, not what is in the container."""
    explanation = explain(running())
    assert (explanation.interfaces_from, explanation.device_nodes_from) == ("status", "rules")
    text = text_of(explanation)
    assert "in /dev/infiniband, as planned: uverbs of mlx5_1" in text
    assert "/etc/nccl.conf, as planned" in text
    waits = replace(evidence(), phase="Pending")
    assert "\nWHAT PROGRAMS WOULD SEE, as the agent's rules plan" in text_of(explain(waits))


@pytest.mark.parametrize(
    ("severity", "marks"),
    [(Severity.ERROR, "✗!"), (Severity.WARNING, "!!"), (Severity.ADVICE, "··")],
)
def test_a_pod_that_runs_is_refused_by_nobody_and_notes_stay_notes(severity, marks):
    found = (Finding.of("rule", "spec", "it is so", "Leave it", severity),)
    for mark, phase in zip(marks, ("", "Running"), strict=True):
        text = text_of(explain(evidence(phase=phase, findings=found)))
        assert f"{mark} Admission, at spec" in text


def test_what_the_pod_shows_counts_more_than_what_it_was_told():
    """An address that somebody changed in the pod; and an interface that is gone."""
    link = ObservedLink("net1", 1500, True, addresses=("10.20.0.9/24", "fe80::1/64"))
    explanation = explain(running(seen=inside(link)))
    assert (explanation.interfaces_from, explanation.device_nodes_from) == ("pod", "pod")
    (seen,) = explanation.interfaces
    assert (seen.addresses, seen.mtu) == (("10.20.0.9/24",), 1500)
    assert "in /dev/infiniband: /dev/infiniband/uverbs1" in text_of(explanation)
    gone = explain(running(seen=inside(ObservedLink("eth0", 1500, True))))
    assert "Not in the pod any more: net1, which the agent has made" in gone.notes


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (3 << 20, "container main uses RDMA now: its programs have pinned 3.0 MiB"),
        (0, "container main does not use RDMA now: it is idle, or UCX or NCCL chose another"),
        (None, None),
    ],
)
def test_what_the_programs_chose_is_said_by_what_they_pin(size, says):
    """Settings are what they were told; who cannot be seen is not spoken of."""
    seen = inside(ObservedLink("net1", 1500, True))
    (main,) = seen.containers
    explanation = explain(running(seen=replace(seen, containers=(replace(main, pinned=size),))))
    text = " ".join(text_of(explanation).split())
    assert says in text if says else "RDMA now" not in text
    chosen = explain_document(explanation)["seen"]["pinnedBytes"]
    assert chosen == ({} if size is None else {"main": size})


def test_the_address_for_rdma_cm_is_the_pods_own():
    explanation = explain(running())
    (way,) = explanation.rdma_cm
    assert (way.device, way.interface, way.address) == ("mlx5_1", "net1", "10.20.0.5")
    assert "RDMA_CM takes mlx5_1 by 10.20.0.5, the address of net1" in text_of(explanation)
    document = explain_document(explain(evidence()))
    assert [one["address"] for one in document["seen"]["rdmaCm"]] == ["ADDRESS"]


@pytest.mark.parametrize("host_network", [False, True])
def test_a_pod_without_an_address_on_its_card_is_told_the_nodes(host_network):
    """RDMA_CM takes none of the overlay's; which of the node's it takes is in its report."""
    report = kit.reported(Mode.HCA)
    first = replace(report.cards[0], addresses=("192.168.7.1",))
    node = basis("node-1", replace(report, cards=(first, report.cards[1])), STATE)
    pod = replace(template(), host_network=host_network)
    text = text_of(explain(PodEvidence(pod, "node-1", "Running", basis=node)))
    own = "the address of ens0f0" if host_network else "the node's on ens0f0"
    assert f"RDMA_CM takes mlx5_0 by 192.168.7.1, {own}" in text
    assert "RDMA_CM takes mlx5_1" not in text


def test_below_a_bond_rdma_cm_takes_the_bonds_address():
    """Its slaves have none. On the node the kernel tells of the bond, in a report nobody does."""
    node = basis("node-1", kit.reported(Mode.HCA), STATE)
    pod = PodEvidence(template(), "node-1", "Running", basis=node)
    assert "RDMA_CM takes" not in text_of(explain(pod))
    first, second = node.host.links
    bond = replace(
        first, index=77, name="bond0", pci=None, addresses=((ip_address("192.0.2.9"), 24),)
    )
    links = (replace(first, master="bond0", bonded=True), second, bond)
    here = replace(node, host=replace(node.host, links=links), exact=True)
    explanation = explain(replace(pod, basis=here))
    (way,) = explanation.rdma_cm
    assert (way.device, way.interface, way.address) == ("mlx5_0", "bond0", "192.0.2.9")
    assert "RDMA_CM takes mlx5_0 by 192.0.2.9, the node's on bond0" in text_of(explanation)


@pytest.mark.parametrize(
    ("mode", "count", "told"), [("hca", 2, 1), ("hca", 1, 0), ("shared", 2, 0)]
)
def test_one_device_for_all_cards_is_given_once_where_claims_serve_the_name(mode, count, told):
    """Allocatable is 0 there and says nothing; the slices say what is left."""
    report = kit.reported(mode)
    pools = tuple(replace(pool, serve="claims") for pool in report.pools)
    state = NodeState("node-1", allocatable=((kit.HCA, 0),))
    node = basis("node-1", replace(report, pools=pools), state)
    made = evidence(basis=node, template=template(container("main", count)))
    scheduling = [one.problem for one in explain(made).findings if one.stage is Stage.SCHEDULER]
    assert len(scheduling) == told
    assert all("claims serve rdma/hca on this node as one device" in one for one in scheduling)
