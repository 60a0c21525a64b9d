"""`kube-rdma why`: one root cause out of Events, explain, status and the doctor of the node."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, POD
from kube_rdma.cli.why import why
from kube_rdma.explain.rules import why as rules
from kube_rdma.model.finding import Finding, Severity
from tests.kit import explained as kit
from tests.kit.agents import FleetOfAgents
from tests.unit.cli.test_explain_waiting import MOUNT, put_event
from tests.unit.doctor.rules.healthy import HEALTHY

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
ILL = replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, sockets=()))


@pytest.fixture
def fleet():
    server = kit.server()
    made = FleetOfAgents("node-1", seen=HEALTHY, server=server)
    (node,) = server.documents("nodes")
    server.put(NODE, node | {"status": node["status"] | READY})
    return made


def run(fleet, *words):
    opener = kit.opener(fleet.server)
    return CliRunner().invoke(why, list(words), obj=opener, catch_exceptions=False)


def put(fleet, name="waits", phase="Pending", node="node-1", **spec):
    pod = kit.pod(name, phase, node=node)
    pod["spec"] |= spec
    fleet.server.put(POD, pod)
    fleet.pods["default", name] = node


def test_an_event_that_is_not_of_rdma_is_the_one_cause(fleet):
    put(fleet)
    pod = next(p for p in fleet.server.documents("pods") if p["metadata"]["name"] == "waits")
    about = {"kind": "Pod", "name": "waits", "namespace": "default", "uid": pod["metadata"]["uid"]}
    put_event(fleet.server, "FailedMount", MOUNT, involvedObject=about)
    result = run(fleet, "pod/waits")
    head, first, seen, fix, *_ = result.stdout.splitlines()
    assert head == "pod/default/waits · ContainerCreating"
    assert first == "✗ The kubelet (KR490)"
    assert seen == f"    Seen  not RDMA: FailedMount: {MOUNT}"
    assert "Create configmap nccl-topo" in fix
    assert result.exit_code == 1


def test_a_node_that_offers_nothing_leads_to_its_agent(fleet):
    """Forty mistakes, 39: the DaemonSet does not reach the node that the pod selects."""
    labels = {"kubernetes.io/hostname": "node-2"}
    fleet.server.put(NODE, {"metadata": {"name": "node-2", "labels": labels}, "status": READY})
    (report,) = fleet.server.documents("nodereports")
    fleet.server.put(NODE_REPORT, {"metadata": {"name": "node-2"}, "status": report["status"]})
    container = {"name": "agent", "image": "kube-rdma:1", "args": ["agent", "--role=node"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": []}}}
    spec["template"]["spec"]["containers"] = [container]
    meta = {"name": "kube-rdma-agent", "namespace": "kube-rdma"}
    status = {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1}
    fleet.server.put(DAEMON_SETS, {"metadata": meta, "spec": spec, "status": status})
    put(fleet, node="", nodeSelector=labels)
    result = run(fleet, "pod/waits")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "pod/default/waits · Pending"
    assert result.stdout.splitlines()[1] == "✗ AgentMissing  node/node-2"
    assert "kube-rdma explain pod/default/waits" in result.stdout


def test_the_doctor_of_its_node_says_what_a_running_pod_lacks(fleet):
    fleet.seen["node-1"] = replace(ILL, node="node-1")
    put(fleet, "w-0", "Running")
    document = json.loads(run(fleet, "pod/w-0", "--json").stdout)
    assert (document["symptom"], document["root"]["code"]) == ("tcp", "KR201")
    assert document["root"]["source"] == "doctor pod/default/w-0"
    node = json.loads(run(fleet, "node/node-1", "--json").stdout)
    assert (node["symptom"], node["root"]["code"]) == ("fewer-shares", "KR201")


def test_nothing_found_is_said_and_what_was_not_asked_too(fleet):
    put(fleet, "w-0", "Running", hostNetwork=True)
    result = run(fleet, "pod/w-0", "--symptom", "slow")
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (0, ["Nothing was found."])
    fleet.failing["node-1"] = "it broke"
    result = run(fleet, "pod/w-0")
    assert result.exit_code == 6
    assert "? Not asked: all that status and doctor know." in result.stdout


def test_a_cause_of_the_symptom_goes_before_others_and_nothing_twice():
    rate = Finding("mlx5_0", "100 of 400", code="KR124")
    lock = Finding("main", "8 MiB", code="KR430")
    advice = Finding("x", "y", severity=Severity.ADVICE, code="KR101")
    follows = Finding("z", "no GID", code="KR418", follows="KR124")
    found = [("doctor", one) for one in (advice, follows, lock, rate)] + [("status", rate)]
    for symptom, codes in ((rules.SLOW, ["KR124", "KR430"]), (rules.TCP, ["KR430", "KR124"])):
        assert [one.code for _, one in rules.causes(symptom, found)] == codes
    warning = replace(lock, severity=Severity.WARNING)
    assert rules.causes(rules.TCP, [("doctor", warning), ("status", rate)])[0][1] == rate
    assert rules.causes(rules.SLOW, []) == ()
    assert rules.symptom_of(None) == rules.SHARES
    (option,) = [one for one in why.params if one.name == "symptom"]
    assert tuple(option.type.choices) == rules.SYMPTOMS


@pytest.mark.parametrize(
    ("phase", "node", "symptom"),
    [
        ("", "", rules.PENDING),
        ("Pending", "", rules.PENDING),
        ("Pending", "node-1", rules.CREATING),
        *((phase, "node-1", rules.TCP) for phase in ("Running", "Succeeded", "Failed", "Unknown")),
    ],
)
def test_the_symptom_is_that_of_the_pod_s_phase(phase, node, symptom):
    assert rules.symptom_of(SimpleNamespace(phase=phase, node=node)) == symptom
