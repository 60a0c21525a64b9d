"""The metrics in the hands of the real Prometheus: it scrapes the agents, and their alerts fire.

The agents are those of the chart, on native nodes with constructed cards, whose counters the test
writes. They are in the mode that VKE's document prefers, and have its names too; kubelet and
containerd are real. Prometheus and promtool are Debian's, and Prometheus runs in the network of the
control plane.
"""

import json

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.metrics.rules import families
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from kube_rdma_lab.native.replay import Replay
from kube_rdma_lab.waiting import until
from kube_rdma_testing.kernel.tree_counters import write_counters
from kube_rdma_tools.metrics import rule_groups
from tests.documents.shell import Shell
from tests.kit import prometheus as kit
from tests.kit.pods import sleeping_pod

RESOURCE, NAMESPACE, LABEL = "vke.volcengine.com/rdma", "kube-rdma-vke", "vke.node.rdma.mode"
NODE, CARD, POD = "node-1", "mlx5_0", "train-0"
PORT = 9879
RECEIVED, BY_VKE = (one["port_rcv_data"].name for one in (families.OF_POD, families.OF_VKE))
MONITORED = ("namespace", "rights", "workloads")


@pytest.fixture(scope="module")
def program():
    with kit.programs() as folder:
        yield folder


@pytest.fixture(scope="module")
def lab(native):
    """Agents of preset vke that answer Prometheus; a card of node-1 has one holder at a time."""
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", f"{scc.examples().parent}/config/crds")
    values = (
        "controller.enabled=false",
        "admission.install=false",
        f"metrics.port={PORT}",
        "metrics.pods=true",
        "agent.extraArgs=[--metrics-names=vke]",
    )
    layers = [assignment(text) for text in values]
    made = [one for part in MONITORED for one in objects(layers, "vke", part)]
    try:
        cluster.apply(native, *(one for one in made if one["kind"] == "Namespace"))
        cluster.apply(native, *made)
        cluster.kubectl(native, "label", "node", NODE, f"{LABEL}=shared", "--overwrite")
        cluster.rollout(native, "rdma-device-plugin", NAMESPACE)
        cluster.wait_for_resource(native, RESOURCE, 8, node=NODE)
        yield native
    finally:
        cluster.kubectl(native, "label", "node", NODE, f"{LABEL}-")
        cluster.kubectl(native, "delete", "pod", POD, "--ignore-not-found")
        for one in reversed(made):
            where = ("-n", NAMESPACE) if "namespace" in one["metadata"] else ()
            words = (one["kind"], one["metadata"]["name"], "--ignore-not-found")
            cluster.kubectl(native, "delete", *where, *words)


@pytest.fixture
def inside(lab):
    """Words that run a command in the control plane's network."""
    return ("nsenter", f"--target={lab.state.pid}", "--net", "--")


@pytest.fixture
def counted(lab):
    """A function that lets a file of the card's port count so far."""
    tree = lab.home / "nodes" / NODE / "sys"

    def write(file, value):
        write_counters(tree, f"{CARD}/ports/1", "counters", {file: value})

    yield write
    place = (tree / "class/infiniband" / CARD / "ports/1/counters").resolve()
    for path in place.glob("*"):
        path.unlink()
    if place.is_dir():
        place.rmdir()


def address(lab, node):
    listed = cluster.get(lab, "node", node)["status"]["addresses"]
    (own,) = [one["address"] for one in listed if one["type"] == "InternalIP"]
    return f"{own}:{PORT}"


def seen_by_top(lab):
    """Pod, device, node and state of the rows that `kube-rdma top pods` shows."""
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}, lab.state.binaries) as shell:
        shown = shell.check("kube-rdma top pods -A --once --interval 1 -o json")
    document = json.loads(shown)
    assert document["silentNodes"] == {}
    return {(row["pod"], row["device"], row["node"], row["state"]) for row in document["rows"]}


def test_promtool_accepts_the_rules(program, tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": rule_groups()}))
    code, text = kit.check(program, "rules", path)
    assert (code, "SUCCESS" in text) == (0, True), text


def test_promtool_accepts_what_an_agent_says(program, lab, inside, counted, tmp_path):
    counted("port_rcv_data", 1)
    path = tmp_path / "metrics.txt"
    path.write_text(kit.get(f"http://{address(lab, NODE)}/metrics", inside))
    code, text = kit.check(program, "metrics", path)
    assert (code, text) == (0, ""), text
    assert "node_infiniband_state_id" in path.read_text()


def test_a_pods_traffic_and_its_dead_port_reach_prometheus(program, lab, inside, counted, tmp_path):
    counted("port_rcv_data", 1000)
    targets = [address(lab, node) for node in ("node-1", "node-2")]
    replay = Replay(lab, NODE)
    with kit.running(program, tmp_path, targets, rule_groups(), inside) as prometheus:
        both = {(None, None): 2}
        until(lab, "both agents are scraped", lambda: prometheus.values("sum(up)") == both)
        cluster.apply(lab, sleeping_pod(POD, limits={RESOURCE: "8"}, nodeName=NODE))
        cluster.wait(lab, f"pod/{POD}", "--for=condition=Ready")
        at = (POD, CARD)
        until(lab, "the pod's bytes", lambda: prometheus.values(RECEIVED) == {at: 4000})
        assert prometheus.values(BY_VKE) == {(None, CARD): 4000}
        counted("port_rcv_data", 3000)
        until(lab, "more of them", lambda: prometheus.values(RECEIVED) == {at: 12000})
        assert (POD, CARD, NODE, "active") in seen_by_top(lab)
        assert ("KubeRdmaPodPortDown", POD) not in prometheus.firing()
        replay.down(CARD)
        try:
            alert = ("KubeRdmaPodPortDown", POD)
            until(lab, "the alert fires", lambda: alert in prometheus.firing())
        finally:
            replay.up(CARD)
        until(lab, "the alert ends", lambda: alert not in prometheus.firing())
        cluster.kubectl(lab, "delete", "pod", POD)
        until(lab, "the series ends", lambda: prometheus.values(RECEIVED) == {})
