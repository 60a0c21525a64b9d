"""Reports of nodes on a real API server, and `kube-rdma status`, which explains what is broken.

Each broken state is made as it happens to people, and told by its code until it is mended.
"""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from kube_rdma.cli.output import ExitCode
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native.replay import Replay
from tests.kit.pods import sleeping_pod

RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
NAMESPACE = "kube-rdma-vke"
NODE = "node-1"
ABOUT = f"node/{NODE}"
CARDS = 8
EXAMPLE = scc.examples() / "s1-vke"
CONFIG = scc.examples().parent / "config"
ADMISSION = CONFIG / "admission"
COLUMNS = ["NAME", "CARDS", "HEALTHY", "POOLS", "MODE", "PENDING", "PROBLEMS", "AGE"]


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with seed S1's agents, which have role node; node-1 is labelled."""
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", str(CONFIG / "crds"))
    for name in ("daemonset", "controller"):
        cluster.kubectl(native, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
    label(native, "shared")
    cluster.rollout(native, "rdma-device-plugin", NAMESPACE)
    cluster.wait(
        native, "-n", NAMESPACE, "deployment/kube-rdma-controller", "--for=condition=Available"
    )
    cluster.wait_for_resource(native, RESOURCE, CARDS, node=NODE)
    yield native
    label(native, "")
    for name in ("controller", "daemonset"):
        cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/{name}.yaml", "--cascade=foreground")
    cluster.kubectl(native, "delete", "nodereports", "--all")


def label(lab, value, key=LABEL):
    """Label the node; an empty value takes the label away."""
    words = f"{key}={value}" if value else f"{key}-"
    cluster.kubectl(lab, "label", "node", NODE, words, "--overwrite")


def report(lab, node=NODE):
    """The status of a node's report, empty without it: the object is made before its status."""
    items = cluster.get(lab, "nodereports")["items"]
    return {each["metadata"]["name"]: each.get("status", {}) for each in items}.get(node, {})


def healthy(lab):
    return report(lab).get("summary", {}).get("healthy")


def status(lab, kubeconfig=None, output="json"):
    """What the command prints, and its exit code."""
    words = ("status", f"--kubeconfig={kubeconfig or lab.kubeconfig}", "-o", output)
    command = (sys.executable, "-m", "kube_rdma.cli.main", *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {ExitCode.OK, ExitCode.PROBLEM, ExitCode.UNKNOWN}, done.stderr
    return done.stdout, done.returncode


def problems(lab):
    """What is wrong, by code and object."""
    text, code = status(lab)
    document = json.loads(text)
    assert code == {"healthy": 0, "problems": 1, "unknown": 2}[document["health"]]
    return {(each["code"], each["about"]): each["sentence"] for each in document["problems"]}


@contextmanager
def pod(lab, name, **spec):
    """A pod that asks for shares; removed at the end."""
    cluster.apply(lab, sleeping_pod(name, terminationGracePeriodSeconds=1, **spec))
    try:
        yield
    finally:
        cluster.kubectl(lab, "delete", "pod", name, "--ignore-not-found")


def test_every_node_has_a_report_worth_reading(lab):
    waiting.until(lab, "the cards of the report", lambda: healthy(lab) == CARDS)
    head, *rows = cluster.kubectl(lab, "get", "nodereports").splitlines()
    assert head.split() == COLUMNS
    cells = {row.split()[0]: row.split() for row in rows}
    assert cells[NODE][1:6] == ["8", "8", RESOURCE, "8/8", "shared"]
    assert set(cells) >= {"node-1", "node-2"}
    first = report(lab)["cards"][0]
    assert first["ports"][0]["rate"][-1] in "MG"
    assert first["resources"] == [RESOURCE]
    cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=Ready")


def test_a_node_at_rest_writes_nothing(lab):
    """However often the agent looks: it lists again and again, and the object stays the same."""
    waiting.until(lab, "the report", lambda: healthy(lab) == CARDS)
    words = (f"nodereport/{NODE}", "-o", "jsonpath={.metadata.resourceVersion}")
    version = cluster.kubectl(lab, "get", *words)
    label(lab, "2", key="example.org/of-nobody")  # the agent sees its node, and has no news
    with pod(lab, "no-shares", nodeName=NODE):
        cluster.ready(lab, "no-shares")
    label(lab, "", key="example.org/of-nobody")
    assert cluster.kubectl(lab, "get", *words) == version


def test_a_report_that_is_deleted_comes_again(lab):
    cluster.kubectl(lab, "delete", "nodereport", NODE)
    waiting.until(lab, "the report again", lambda: healthy(lab) == CARDS)
    (owner,) = cluster.get(lab, f"nodereport/{NODE}")["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.get(lab, f"node/{NODE}")["metadata"]["uid"]


def test_a_card_that_fails_is_reported_and_explained(lab):
    replay = Replay(lab, NODE)
    replay.down("mlx5_3")
    try:
        sentence = waiting.until(
            lab, "the explanation", lambda: problems(lab).get(("CardsUnhealthy", ABOUT))
        )
        assert sentence.startswith("7 of 8 cards can be used. mlx5_3: no port is ACTIVE")
        assert "mlx5_3" in report(lab)["summary"]["problems"]
        cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=CardsHealthy=False")
    finally:
        replay.up("mlx5_3")
    cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=Ready")


def test_a_card_that_is_pulled_is_reported_as_gone(lab):
    replay = Replay(lab, NODE)
    address = replay.pull("mlx5_5")
    try:
        gone = waiting.until(
            lab,
            "the card that is gone",
            lambda: [c["name"] for c in report(lab)["cards"] if c.get("gone")],
        )
        assert gone == ["mlx5_5"]
    finally:
        replay.plug(address)
    cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=Ready")


def test_an_agent_that_is_taken_from_a_node_is_explained(lab):
    label(lab, "off", key="kube-rdma.io/agent")
    try:
        waiting.until(lab, "the explanation", lambda: problems(lab).get(("AgentMissing", ABOUT)))
        cluster.wait_for_resource(lab, RESOURCE, 0, node=NODE)
    finally:
        label(lab, "", key="kube-rdma.io/agent")
    waiting.until(lab, "the end", lambda: ("AgentMissing", ABOUT) not in problems(lab))
    cluster.wait_for_resource(lab, RESOURCE, CARDS, node=NODE)


def test_a_change_of_mode_that_waits_is_reported_and_is_advice(lab):
    with pod(lab, "holder", limits={RESOURCE: "1"}, nodeName=NODE):
        cluster.ready(lab, "holder")
        label(lab, "exclusive")
        sentence = waiting.until(
            lab, "the explanation", lambda: problems(lab).get(("ModeChangePending", ABOUT))
        )
        assert "default/holder" in sentence
        assert report(lab)["summary"]["pending"] == f"{RESOURCE} to exclusive"
        label(lab, "shared")
    cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=Ready")


def test_a_label_that_nobody_understands_is_explained(lab):
    label(lab, "sharde")
    try:
        sentence = waiting.until(
            lab, "the explanation", lambda: problems(lab).get(("ConfigurationRefused", ABOUT))
        )
        assert "sharde" in sentence
    finally:
        label(lab, "shared")
    cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=Ready")


def test_pods_that_wait_are_explained_until_they_are_gone(lab):
    """For shares that nobody has, and for a network that is not there."""
    with pod(lab, "hungry", limits={RESOURCE: "9"}):
        about = ("PodWaitsForShares", "pod/default/hungry")
        sentence = waiting.until(lab, "the explanation", lambda: problems(lab).get(about))
        assert f"Insufficient {RESOURCE}" in sentence
    annotations = {"k8s.v1.cni.cncf.io/networks": "nowhere"}
    with pod(lab, "lonely", annotations=annotations, nodeName=NODE):
        about = ("PodWaitsForNetworks", "pod/default/lonely")
        sentence = waiting.until(lab, "the explanation", lambda: problems(lab).get(about))
        assert "there is no network default/nowhere" in sentence
    left = {about for _, about in problems(lab)}
    assert not left & {"pod/default/hungry", "pod/default/lonely"}


def test_a_controller_that_is_away_is_explained(lab):
    scale = ("scale", "-n", NAMESPACE, "deployment/kube-rdma-controller")
    image = ("set", "image", "-n", NAMESPACE, "deployment/kube-rdma-controller")
    about = f"deployment/{NAMESPACE}/kube-rdma-controller"
    cluster.kubectl(lab, *image, "controller=kube-rdma.io/nobody:has-this")
    cluster.kubectl(lab, *scale, "--replicas=0")
    cluster.kubectl(lab, *scale, "--replicas=1")
    try:
        waiting.until(
            lab, "the explanation", lambda: problems(lab).get(("ControllerNotReady", about))
        )
    finally:
        cluster.kubectl(lab, *image, "controller=kube-rdma.io/kube-rdma:dev")
    waiting.until(lab, "its end", lambda: ("ControllerNotReady", about) not in problems(lab))


def test_agents_that_nobody_holds_to_their_nodes_are_advice(lab):
    cluster.kubectl(lab, "delete", "-f", str(ADMISSION), "--ignore-not-found")
    assert ("AdmissionPolicyMissing", "") in problems(lab)
    cluster.kubectl(lab, "apply", "-f", str(ADMISSION))
    try:
        assert ("AdmissionPolicyMissing", "") not in problems(lab)
    finally:
        cluster.kubectl(lab, "delete", "-f", str(ADMISSION))


def test_who_may_see_nothing_is_told_which_rights_to_ask_for(lab, tmp_path):
    token = cluster.kubectl(lab, "create", "token", "default")
    config = json.loads(lab.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    text, code = status(lab, kubeconfig, output="table")
    assert code == ExitCode.UNKNOWN
    for what in ("nodes", "nodereports", "ippools", "daemonsets", "events"):
        assert f'resources: ["{what}"]' in " ".join(text.split())
