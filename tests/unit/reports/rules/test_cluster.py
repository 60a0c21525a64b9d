"""What is wrong with a cluster: each broken state has its code, a sentence and a next step."""

from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import NetworkRoute
from kube_rdma.model.card import CardId
from kube_rdma.model.finding import NotSeen, Severity
from kube_rdma.model.kubernetes import NodeState, Taint, Toleration
from kube_rdma.model.repair import KEY, RepairEntry
from kube_rdma.model.reports import (
    AddressPool,
    ChosenNodes,
    ClusterEvent,
    ClusterFacts,
    ClusterHealth,
    ExpectedCable,
    NodePolicyState,
    NodeReport,
    PendingMode,
    PolicyState,
    ProgramPod,
    ProgramRole,
    ProgramTemplate,
    ReportedCard,
    ReportedPool,
    ReportedPort,
    WaitingPod,
    Workload,
)
from kube_rdma.reports.rules.cluster import (
    AWAITED,
    awaited,
    findings,
    global_namespaces,
    health,
    program_role,
    programs,
    says,
)
from tests.unit.fabric.world import status

HCA = "rdma/hca"
AGENTS = Workload(ProgramRole.AGENT, "kr", "agent", 2, 2, 2, "kube-rdma:1", reports=True)
CONTROLLER = Workload(ProgramRole.CONTROLLER, "kr", "controller", 1, 1, 1, "kube-rdma:1")
POOL = ReportedPool(HCA, "hca", 1000, 1000, 2)
CARDS = tuple(ReportedCard(CardId(f"0000:8{n}:00.0"), f"mlx5_{n}", (HCA,)) for n in range(2))
REPORT = NodeReport("0.1.0", CARDS, (), (POOL,))
NODES = tuple(NodeState(f"node-{n}", allocatable=((HCA, 1000),), ready=True) for n in (1, 2))


def agent(number, **more):
    return replace(
        ProgramPod("kr/agent", "kr", f"agent-{number}", f"node-{number}", ready=True), **more
    )


WELL = ClusterFacts(
    nodes=NODES,
    workloads=(AGENTS, CONTROLLER),
    pods=(agent(1), agent(2)),
    reports={"node-1": REPORT, "node-2": REPORT},
    policies=(PolicyState("kr/policy", "ready", ""),),
    pools=(AddressPool("a", "10.0.0.0/24", "32", "222"),),
    waiting=(),
    events=(),
    guarded=True,
)


def ill(**changes):
    """The facts of a cluster where the report of node-1 differs so."""
    return replace(WELL, reports={"node-1": replace(REPORT, **changes), "node-2": REPORT})


def waits_for(nodes, *taints):
    """A pod that waits for shares, though both nodes offer some, with these taints."""
    pod = WaitingPod("team", "job", "", (HCA,), nodes=nodes)
    tainted = tuple(replace(node, taints=taints) for node in NODES)
    return replace(WELL, waiting=(pod,), nodes=tainted)


def pods_wait(pod, reason, note):
    """The facts of a cluster where a pod waits, and of what was told of it."""
    event = ClusterEvent("Pod", pod.namespace, pod.name, reason, note, "2026-01-01T00:00:00Z")
    return replace(WELL, waiting=(pod,), events=(event,))


def node_event(*events):
    """The facts of a cluster where this was told of node-1, in this order."""
    made = (
        ClusterEvent("Node", "", "node-1", reason, "it says why", f"2026-01-01T00:00:{n:02}Z")
        for n, reason in enumerate(events)
    )
    return replace(WELL, events=tuple(made))


def plugged(*places):
    """Cards in these places."""
    return msgspec.convert(status(*places)["cards"], tuple[ReportedCard, ...])


def expecting(*places, cards):
    """The facts of a cluster whose node-1 has these cards, expected in these places."""
    hope = tuple(
        ExpectedCable(CardId(f"0000:{n:02x}:00.0"), leaf, 1, port)
        for n, (leaf, port) in enumerate(map(str.split, places))
    )
    return replace(ill(cards=cards), cabling={"node-1": hope})


BROKEN_CARD = (CARDS[0], replace(CARDS[1], reasons=("no port is ACTIVE",)))
HUNGRY = WaitingPod("default", "train", resources=(HCA,))
NETWORKED = WaitingPod("default", "train", "node-1", networks=True)
INSUFFICIENT = "0/2 nodes are available: 2 Insufficient rdma/hca."
BROKEN = {
    "NoAgent": (replace(WELL, workloads=(CONTROLLER,), pods=()), ""),
    "NoNodeMatches": (
        replace(
            WELL,
            workloads=(replace(AGENTS, desired=0, ready=0, updated=0), CONTROLLER),
            pods=(),
            reports={},
        ),
        "daemonset/kr/agent",
    ),
    "ControllerMissing": (replace(WELL, workloads=(AGENTS,)), ""),
    "ControllerNotReady": (
        replace(WELL, workloads=(AGENTS, replace(CONTROLLER, ready=0))),
        "deployment/kr/controller",
    ),
    "AgentNotReady": (
        replace(WELL, pods=(agent(1, ready=False, why="CrashLoopBackOff"), agent(2))),
        "node/node-1",
    ),
    "AgentMissing": (replace(WELL, pods=(agent(2),)), "node/node-1"),
    "ReportOld": (
        replace(
            ill(renew_time="2026-01-01T00:00:00Z", pools=(replace(POOL, healthy=7),)),
            read_at=datetime(2026, 1, 1, 0, 25, tzinfo=UTC),
        ),
        "node/node-1",
    ),
    "PodWaitsForNode": (waits_for(ChosenNodes((("pci-15b3.present", "true"),))), "pod/team/job"),
    "NodeNotReady": (replace(WELL, nodes=(replace(NODES[0], ready=None), NODES[1])), "node/node-1"),
    "ReportMissing": (replace(WELL, reports={"node-2": REPORT}), "node/node-1"),
    "CardsUnhealthy": (ill(cards=BROKEN_CARD), "node/node-1"),
    "CableMoved": (expecting("leaf-1 1", cards=plugged("leaf-2 1")), "node/node-1"),
    "CableLost": (expecting("leaf-1 1", cards=plugged("")), "node/node-1"),
    "CablesSwapped": (
        expecting("leaf-1 1", "leaf-2 1", cards=plugged("leaf-2 1", "leaf-1 1")),
        "node/node-1",
    ),
    "ConfigurationRefused": (ill(refusals=("line 3: no",)), "node/node-1"),
    "ConfigurationConflict": (ill(troubles=("twice",)), "node/node-1"),
    "SharesDiffer": (ill(pools=(replace(POOL, healthy=7),)), "node/node-1"),
    "PolicyNotReady": (
        replace(WELL, policies=(PolicyState("kr/policy", "error", "spec.devicePlugin: no"),)),
        "nicclusterpolicy/kr/policy",
    ),
    "PolicyNotSeen": (
        replace(WELL, policies=(PolicyState("kr/policy", "", ""),)),
        "nicclusterpolicy/kr/policy",
    ),
    "PolicyRefused": (
        replace(
            WELL,
            node_policies=(
                NodePolicyState(
                    "p",
                    seen=True,
                    nodes=2,
                    applied=1,
                    refused=1,
                    reason="RefusedByNodes",
                    message="refused on 1 of 2 nodes. node-1: twice",
                ),
            ),
        ),
        "nodepolicy/p",
    ),
    "AddressPoolBroken": (
        replace(WELL, pools=(AddressPool("a", "", "", "", broken="it overlaps b"),)),
        "ippool/a",
    ),
    "AddressPoolNearlyFull": (
        replace(WELL, pools=(AddressPool("a", "", "", "", scarce="2 of 2 are held"),)),
        "ippool/a",
    ),
    "AddressPoolEmpty": (
        replace(WELL, pools=(AddressPool("a", "", "", "", short=("node-1",)),)),
        "ippool/a",
    ),
    "PodWaitsForShares": (pods_wait(HUNGRY, "FailedScheduling", INSUFFICIENT), "pod/default/train"),
    "PodWaitsForNetworks": (
        pods_wait(NETWORKED, "FailedCreatePodSandBox", 'plugin type="kube-rdma" failed: no'),
        "pod/default/train",
    ),
    "CniFilesRefused": (node_event("NetworkConfigurationRefused"), "node/node-1"),
    "AddressTrouble": (node_event("AddressTroubleOver", "AddressTrouble"), "node/node-1"),
    "JournalTrouble": (node_event("JournalTrouble"), "node/node-1"),
}
NAMES = ("node-1", "node-2")
NONE = "rdma/none"
EVERYWHERE = NetworkRoute(ip_network("0.0.0.0/0"))
ROUTED = kinds.MacvlanNetwork("default/net", "here", routes=(EVERYWHERE,))
EMPTY = ReportedPool(NONE, "shared", 0, 0, 0)
PENDING = PendingMode(HCA, "shared", f"{HCA} stays in mode hca until a/b has ended")
ADVICE = {
    "CableMoved": expecting("leaf-1 1", cards=plugged("leaf-1 2")),
    "CableUnknown": expecting("leaf-1 1", cards=plugged("leaf-1 1", "leaf-2 1")),
    "MetricsNotServed": ill(metrics="cannot listen on *:9879 (Address already in use)"),
    "CardsDegraded": ill(cards=(CARDS[0], replace(CARDS[1], degraded="symbol_error rises"))),
    "NetworksNotInstalled": replace(
        WELL,
        workloads=(replace(AGENTS, networks=True), CONTROLLER),
        missing=("NetworkAttachmentDefinition",),
    ),
    "CardInNoPool": ill(
        cards=(*CARDS, ReportedCard(CardId("0000:8f:00.0"), "mlx5_7", reasons=("ib7 is not",)))
    ),
    "DriversNotCurrent": replace(
        WELL, policies=(PolicyState("kr/policy", "ready", "", ("DriversCurrent: it waits",)),)
    ),
    "PolicyPending": replace(
        WELL,
        node_policies=(
            NodePolicyState(
                "p",
                seen=True,
                nodes=2,
                pending=2,
                reason="WaitsForNodes",
                message="pending on 2 of 2 nodes. node-1: it waits",
            ),
        ),
    ),
    "PolicyNotSeen": replace(WELL, node_policies=(NodePolicyState("p"),)),
    "NodeTainted": replace(
        WELL, nodes=(replace(NODES[0], taints=(Taint(KEY, "NoSchedule", "cards"),)), NODES[1])
    ),
    "CardTainted": replace(
        WELL, repairs={"cards": (RepairEntry("n", "Tainted", "errors rise", "0000:01:00.0"),)}
    ),
    "NodeNotTainted": replace(WELL, repairs={"cards": (RepairEntry("n", "WouldTaint", "down"),)}),
    "DefaultRoute": replace(WELL, networks=(ROUTED,)),
    "PodsRerouted": ill(rerouted=("default/train by net1",)),
    "ModeChangePending": ill(pending=(PENDING,)),
    "AgentVersionsDiffer": ill(version="0.0.9"),
    "NoCards": replace(WELL, reports={n: replace(REPORT, cards=(), pools=(EMPTY,)) for n in NAMES}),
    "UpdateUnderWay": replace(WELL, workloads=(replace(AGENTS, updated=1), CONTROLLER)),
    "ReportsNotInstalled": replace(WELL, reports=None, missing=("NodeReport",)),
    "AdmissionPolicyMissing": replace(WELL, guarded=False),
    "PreflightPolicyMissing": replace(
        WELL,
        measured=False,
        workloads=(AGENTS, replace(CONTROLLER, words=("controller", "--preflight"))),
    ),
    "PolicyOfAnotherOperator": replace(
        WELL, policies=(PolicyState("policy", "ready", "", ours=False),)
    ),
    "PolicyNotReady": replace(WELL, policies=(PolicyState("policy", "ignore", "nothing"),)),
}


def test_an_agent_of_another_kind_does_not_write_the_report():
    """A plain device plugin runs on the node; the report is old all the same."""
    plugin = Workload(ProgramRole.AGENT, "kube-system", "plugin", 2, 2, 2, "kube-rdma:1")
    pods = (agent(2), agent(1, workload=plugin.title, namespace="kube-system"))
    facts = replace(WELL, workloads=(AGENTS, plugin, CONTROLLER), pods=pods)
    assert [(p.code, p.subject) for p in findings(facts)] == [("AgentMissing", "node/node-1")]


def test_a_healthy_cluster_has_no_problem():
    assert findings(WELL) == ()
    assert health(WELL, ()) is ClusterHealth.HEALTHY


@pytest.mark.parametrize("reason", ["Refused", "NotUnderstood"])
def test_a_policy_that_nobody_understands_is_a_problem(reason):
    policy = NodePolicyState("p", seen=True, reason=reason, message="spec.pools[0].mode: no")
    (problem,) = findings(replace(WELL, node_policies=(policy,)))
    assert (problem.code, problem.problem) == ("PolicyRefused", "spec.pools[0].mode: no")
    assert problem.is_error


MEASURING = replace(CONTROLLER, words=("kube-rdma", "controller", "--preflight"))


@pytest.mark.parametrize(
    ("more", "subject"),
    [
        ({"waiting": (replace(HUNGRY, resources=(), preflight=True),)}, "default/train asks for"),
        ({"workloads": (AGENTS, MEASURING)}, "kr/controller has --preflight"),
    ],
)
def test_where_nothing_makes_pods_measure_it_is_told_if_any_asks(more, subject):
    """Also before Kubernetes 1.30, which has no such policies; not where it was not looked at."""
    asks = replace(WELL, **more)
    absent = {"measured": None, "missing": ("ValidatingAdmissionPolicyBinding",)}
    for facts in (replace(asks, measured=False), replace(asks, **absent)):
        (advice,) = findings(facts)
        assert advice.problem.startswith(subject)
        assert "controller.preflight=true" in advice.remedy
    for facts in (replace(asks, measured=True), asks, replace(WELL, measured=False)):
        assert findings(facts) == ()


def test_a_policy_that_a_higher_one_overrules_is_well():
    policy = NodePolicyState("p", seen=True, nodes=2, applied=1, overruled=1)
    assert findings(replace(WELL, node_policies=(policy,))) == ()


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_state_is_told_with_its_object_and_a_next_step(code):
    """Alone: nothing else is blamed for it."""
    facts, about = BROKEN[code]
    (problem,) = findings(facts)
    assert (problem.code, problem.subject, problem.is_error) == (code, about, True)
    assert problem.problem
    assert problem.remedy
    assert health(facts, (problem,)) is ClusterHealth.PROBLEMS


@pytest.mark.parametrize("code", ADVICE)
def test_advice_leaves_a_cluster_healthy(code):
    """But where nothing tells of cards, nobody knows."""
    (problem,) = findings(ADVICE[code])
    assert (problem.code, problem.severity) == (code, Severity.ADVICE)
    expected = ClusterHealth.UNKNOWN if ADVICE[code].hides_cards else ClusterHealth.HEALTHY
    assert health(ADVICE[code], (problem,)) is expected


def test_the_sentence_of_a_card_names_it_and_says_why():
    (problem,) = findings(BROKEN["CardsUnhealthy"][0])
    assert problem.problem == "1 of 2 cards can be used. mlx5_1: no port is ACTIVE"


def test_a_pool_without_cards_is_told_with_the_cards_that_nobody_has():
    """As with the interface of a document that no node has: agents run, and nothing is offered."""
    ports = (ReportedPort("mlx5_0", 1, "ACTIVE", "Ethernet", netdev="ens1f0"),)
    spare = replace(CARDS[0], resources=(), ports=ports)
    wrong = replace(REPORT, cards=(spare,), pools=(replace(EMPTY, resource=NONE),))
    facts = replace(WELL, reports=dict.fromkeys(NAMES, wrong))
    (advice,) = findings(facts)
    assert advice.code == "NoCards"
    assert advice.problem == (
        f"No node has a card for {NONE}. node-1 has cards that are in no pool: mlx5_0 (ens1f0)"
    )
    assert "selectors" in advice.remedy


def test_a_node_without_cards_is_well_beside_one_with_some():
    """A control plane has an agent too."""
    empty = replace(REPORT, cards=(), pools=(replace(POOL, shares=0, healthy=0, cards=0),))
    nodes = (NODES[0], replace(NODES[1], allocatable=()))
    facts = replace(WELL, nodes=nodes, reports={"node-1": REPORT, "node-2": empty})
    assert findings(facts) == ()


def test_a_pod_that_waits_for_a_pool_without_cards_is_not_told_to_end_others():
    pod = replace(HUNGRY, resources=(NONE,))
    facts = pods_wait(pod, "FailedScheduling", INSUFFICIENT.replace(HCA, NONE))
    reports = {name: replace(REPORT, pools=(POOL, EMPTY)) for name in NAMES}
    *_, problem = sorted(findings(replace(facts, reports=reports)), key=lambda one: one.is_error)
    assert problem.code == "PodWaitsForShares"
    assert "of which no node has a healthy share" in problem.problem
    assert "End pods" not in problem.remedy


def test_a_pod_that_waits_for_gpus_is_no_problem_of_cards():
    """Nodes offer them, and others hold all; its shares of cards are there."""
    gpus = "nvidia.com/gpu"
    pod = replace(HUNGRY, resources=(gpus, HCA))
    facts = pods_wait(pod, "FailedScheduling", INSUFFICIENT.replace(HCA, gpus))
    offering = tuple(
        replace(node, allocatable=(*node.allocatable, (gpus, 8))) for node in facts.nodes
    )
    assert findings(replace(facts, nodes=offering)) == ()
    (problem,) = findings(facts)  # where no node has any, the name may be wrong
    assert "install the program that offers it" in problem.remedy


def test_an_image_that_cannot_be_pulled_has_no_log():
    """The remedy names what to set, and no command that ends with an error."""
    why = 'ImagePullBackOff: Back-off pulling image "a:1"'
    (problem,) = findings(replace(WELL, pods=(agent(1, ready=False, why=why), agent(2))))
    assert "image.repository" in problem.remedy
    assert "logs" not in problem.remedy


def test_agents_that_never_report_need_no_definition():
    """Those of presets ack and scc: the definition alone would change nothing."""
    plain = replace(AGENTS, reports=False)
    facts = replace(WELL, workloads=(plain, CONTROLLER), reports=None, missing=("NodeReport",))
    (advice,) = findings(facts)
    assert advice.code == "ReportsNotInstalled"
    assert "config/crds" not in advice.remedy
    assert "config/crds" in findings(ADVICE["ReportsNotInstalled"])[0].remedy


def test_a_resource_that_no_node_reports_is_told_apart():
    """A wrong name waits for ever, and nobody has to end."""
    pod = replace(HUNGRY, resources=("rdma/hcas",))
    note = INSUFFICIENT.replace(HCA, "rdma/hcas")
    (problem,) = findings(pods_wait(pod, "FailedScheduling", note))
    assert "which no node reports" in problem.problem


@pytest.mark.parametrize(
    "facts",
    [
        pods_wait(WaitingPod("default", "web"), "FailedScheduling", "2 Insufficient cpu."),
        pods_wait(HUNGRY, "FailedScheduling", "0/2 nodes are available: 2 Insufficient cpu."),
        pods_wait(replace(HUNGRY, node="node-1"), "FailedScheduling", INSUFFICIENT),
        pods_wait(WaitingPod("d", "web", "node-1"), "FailedCreatePodSandBox", "rdma: no"),
        pods_wait(NETWORKED, "FailedCreatePodSandBox", "calico: no address"),
        replace(pods_wait(HUNGRY, "FailedScheduling", INSUFFICIENT), waiting=()),
        node_event("NetworkConfigurationRefused", "NetworkConfiguration"),
        node_event("AddressTrouble", "AddressTroubleOver"),
        node_event("ModeChangePending"),
    ],
)
def test_what_is_over_or_of_others_is_no_problem(facts):
    assert findings(facts) == ()


def test_a_node_without_an_agent_is_well_when_it_never_had_any():
    assert findings(replace(WELL, nodes=(*NODES, NodeState("cpu-1")))) == ()


def test_advice_comes_behind_findings():
    facts = replace(BROKEN["CardsUnhealthy"][0], guarded=False)
    assert [problem.is_error for problem in findings(facts)] == [True, False]


def test_what_could_not_be_read_makes_no_problem_and_no_health():
    facts = ClusterFacts(not_seen=(NotSeen("nodes", "no right"),))
    assert findings(facts) == ()
    assert health(facts, ()) is ClusterHealth.UNKNOWN
    blind = replace(WELL, reports=None, not_seen=(NotSeen("NodeReport", "no right"),))
    assert health(blind, findings(blind)) is ClusterHealth.UNKNOWN
    without = replace(WELL, reports=None, missing=("NodeReport",))
    assert health(without, findings(without)) is ClusterHealth.UNKNOWN
    lesser = replace(WELL, events=None, not_seen=(NotSeen("Events", "no right"),))
    assert health(lesser, findings(lesser)) is ClusterHealth.HEALTHY


PARTS = [f for f in ClusterFacts.__struct_fields__ if f not in {"missing", "not_seen"}]
EVERY = [WELL, *ADVICE.values(), *(facts for facts, _ in BROKEN.values())]


@given(st.sampled_from(EVERY), st.sets(st.sampled_from(PARTS)))
def test_a_part_that_nobody_may_read_hides_problems_and_invents_none(facts, hidden):
    """A missing right must not look like a missing agent."""
    less = replace(facts, **dict.fromkeys(hidden))
    codes = {(problem.code, problem.subject) for problem in findings(facts)}
    assert {(problem.code, problem.subject) for problem in findings(less)} <= codes


# Which containers are kube-rdma's: those of every example, and none of others.

EXAMPLES = Path(__file__).parents[4] / "examples"


def workloads():
    """Each DaemonSet and Deployment of the examples as a template, with its file."""
    for path in sorted(EXAMPLES.glob("*/*.y*ml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and document.get("kind") in {"DaemonSet", "Deployment"}:
                container = document["spec"]["template"]["spec"]["containers"][0]
                words = (*container.get("command", ()), *container.get("args", ()))
                yield path, ProgramTemplate(document["metadata"]["name"], container["image"], words)


@pytest.mark.parametrize(
    ("path", "template"), tuple(workloads()), ids=lambda value: getattr(value, "name", "")
)
def test_every_program_of_the_examples_is_recognized(path, template):
    role = program_role(template)
    if "verbs" in template.image or template.image.startswith("registry.example.com/"):
        assert role is None
    elif path.stem in {"controller", "operator"}:
        assert role is ProgramRole.CONTROLLER
    else:
        assert role is ProgramRole.AGENT


@pytest.mark.parametrize(
    ("template", "role"),
    [
        (ProgramTemplate("rdma", "own/rdma-agent:1", ("agent", "--role=node")), ProgramRole.AGENT),
        (ProgramTemplate("x", "own/y:1", ("/usr/bin/kube-rdma", "agent")), ProgramRole.AGENT),
        (ProgramTemplate("x", "kube-rdma:1", ("kube-rdma", "devices")), None),
        (ProgramTemplate("x", "kube-rdma:1", ("kube-rdma",)), None),
        (ProgramTemplate("logs", "fluent:1", ("agent",)), None),
        (ProgramTemplate("logs", "fluent:1"), None),
        (ProgramTemplate("many", "kube-rdma.example.com/pause:3.10"), None),
    ],
)
def test_it_goes_by_the_words_and_not_by_the_name_alone(template, role):
    assert program_role(template) is role


@pytest.mark.parametrize(
    ("roles", "reports"), [(("plugin", "node"), True), (("plugin",), False), (("node",), False)]
)
def test_an_agent_that_only_labels_its_node_owes_no_report(roles, reports):
    words = ("agent", *(f"--role={role}" for role in roles))
    (found,) = programs([Workload(None, "kr", "labels", 2, 2, 2, "kube-rdma:1", words=words)])
    assert (found.role, found.reports) == (ProgramRole.AGENT, reports)


def test_an_option_is_seen_in_both_spellings():
    assert says(("agent", "--role=node"), "--role", "node")
    assert says(("agent", "--role", "node"), "--role", "node")
    assert not says(("agent", "--role", "plugin"), "--role", "node")
    assert says(("agent", "--networks"), "--networks")


@pytest.mark.parametrize(
    ("words", "namespaces"),
    [
        (("agent", "--networks"), None),
        (("agent", "--namespace-isolation"), ("default", "kube-system")),
        (("agent", "--namespace-isolation", "--networks"), ("default", "kube-system")),
        (("agent", "--namespace-isolation", "shared, team", "--networks"), ("shared", "team")),
        (("agent", "--namespace-isolation=shared"), ("shared",)),
        (("agent", "--namespace-isolation="), ()),
    ],
)
def test_whose_networks_all_pods_may_name_as_the_agent_reads_its_option(words, namespaces):
    assert global_namespaces(words) == namespaces


def test_labels_that_no_offering_node_has_are_the_cause_of_the_wait():
    """Forty mistakes, 31: Node Feature Discovery is not there, or writes another label."""
    (finding,) = findings(waits_for(ChosenNodes((("pci-15b3.present", "true"),))))
    assert finding.problem == (
        "Each node that offers rdma/hca lacks the label pci-15b3.present=true of the nodeSelector"
    )
    assert "rdma/hca chooses the nodes" in finding.remedy
    hostname = ChosenNodes((("kubernetes.io/hostname", "node-1"),))
    labelled = replace(NODES[0], labels=hostname.labels)
    assert findings(replace(waits_for(hostname), nodes=(labelled, NODES[1]))) == ()


GPU = Taint("nvidia.com/gpu", "NoSchedule", "present")


@pytest.mark.parametrize(
    ("taint", "toleration", "waits"),
    [
        (GPU, Toleration("node-role.kubernetes.io/control-plane", "Exists"), True),
        (GPU, Toleration("nvidia.com/gpu", "Equal", "other"), True),
        (GPU, Toleration("nvidia.com/gpu", "Exists"), False),
        (GPU, Toleration("nvidia.com/gpu", "", "present", "NoSchedule"), False),
        (GPU, Toleration(operator="Exists"), False),
        (replace(GPU, effect="PreferNoSchedule"), Toleration("x"), False),
        (Taint("node.kubernetes.io/memory-pressure", "NoSchedule"), Toleration("x"), False),
    ],
)
def test_a_taint_of_all_offering_nodes_is_the_cause_unless_it_is_tolerated(
    taint, toleration, waits
):
    """Forty mistakes, 32."""
    found = findings(waits_for(ChosenNodes(tolerations=(toleration,)), taint))
    assert [one.code for one in found] == ["PodWaitsForNode"] * waits
    for one in found:
        assert "has the taint nvidia.com/gpu=present:NoSchedule" in one.problem
        assert one.remedy.startswith("Add a toleration")


@pytest.mark.parametrize(
    ("labels", "selector", "why"),
    [
        (
            (),
            (("rdma-ready", "yes"),),
            "DaemonSet kr/agent leaves it out: the node lacks the label rdma-ready=yes",
        ),
        ((("kube-rdma.io/agent", "off"),), (), "the node has the label kube-rdma.io/agent=off"),
        ((), (), "so what it says is old"),
    ],
)
def test_what_keeps_the_agent_off_a_node_is_named(labels, selector, why):
    """Forty mistakes, 39, and a label that somebody set."""
    agents = replace(AGENTS, nodes=ChosenNodes(selector))
    nodes = (replace(NODES[0], labels=labels), replace(NODES[1], labels=selector))
    facts = replace(WELL, pods=(agent(2),), workloads=(agents, CONTROLLER), nodes=nodes)
    (finding,) = findings(facts)
    assert finding.code == "AgentMissing"
    assert why in finding.problem


@pytest.mark.parametrize("renewed", ["", "noon", "2026-01-01T00:00:00", "2026-01-01T00:20:00Z"])
def test_a_report_that_is_young_or_says_no_time_is_not_called_old(renewed):
    facts = replace(ill(renew_time=renewed), read_at=datetime(2026, 1, 1, 0, 25, tzinfo=UTC))
    assert findings(facts) == ()


def test_what_repair_policies_would_taint_is_said_with_the_reason():
    entries = [RepairEntry(f"n{at}", "WouldTaint", "down\x1b[2J") for at in range(5)]
    entries += [RepairEntry("n7", "OverBudget", "slow", "0000:01:00.0")]
    entries += [RepairEntry("n8", "Tainted", "down"), RepairEntry("n9", "Clearing", "", "card")]
    would, over = findings(replace(WELL, repairs={"cards": tuple(entries)}))
    assert would.problem.startswith("It is a dry run, or paused, and would taint: n0 (down")
    assert "n2" in would.problem
    assert would.problem.endswith("and 2 more")
    assert "\x1b" not in would.problem
    assert over.problem == "Its budget is used up, and it does not taint: n7 0000:01:00.0 (slow)"
    assert {would.subject, over.subject} == {"repairpolicy/cards"}


def test_each_word_of_wait_for_waits_for_more_than_the_one_before():
    every = [one for facts, _ in BROKEN.values() for one in findings(facts)]
    agents, cards, everything = (set(awaited(every, what)) for what in ("agents", "cards", "all"))
    assert agents < cards < everything
    assert everything == {one for one in every if one.is_error}
    for begin in {word for words in AWAITED.values() for word in words}:
        assert any(one.code.startswith(begin) for one in every)
