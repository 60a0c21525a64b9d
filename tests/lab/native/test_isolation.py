"""Networks of other tenants, with the chart's value agent.namespaceIsolation (docs/tenancy.md).

A pod that names a network of another namespace does not start, and its Event says why; whoever may
name it starts. The value says whose networks are everybody's, and without it all are.
"""

import json

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_lab.demo import scc
from tests.kit import helm as kit
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

RELEASE, RECORDS = "isolated", "kube-system"
NAMESPACE, DAEMON_SET = "mlnx-network-operator", "rdma-shared-dp-ds"
VALUE = "default,kube-system"
OWN, OTHER = TENANTS = ("team-a", "team-b")
NETWORK = "net"
NODE = "node-1"


@pytest.fixture(scope="module")
def lab(native):
    """Two tenants, and a network of one name in the namespace of one and of everybody."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    cluster.kubectl(native, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    for name in TENANTS:
        cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    networks = [definition(namespace) for namespace in (OWN, *VALUE.split(","))]
    cluster.apply(native, *networks)
    yield native
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": networks})
    cluster.kubectl(native, "delete", "-f", "-", stdin=text)
    cluster.kubectl(native, "delete", "namespace", *TENANTS)
    cluster.kubectl(native, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")


@pytest.fixture(scope="module")
def release(lab, tmp_path_factory):
    """The chart with a value of the option; a function that gives the release another one."""
    home = tmp_path_factory.mktemp("helm")
    with kit.on_lab(lab, home, RECORDS) as helm:

        def call(*arguments):
            code, printed = helm(*arguments)
            assert code == 0, printed

        def install(isolation):
            path = home / "values.json"
            agent = {"namespaceIsolation": isolation}
            values = {"preset": "nvidia", "crds": {"install": False}, "agent": agent}
            values["image"] = {"repository": IMAGE}
            path.write_text(json.dumps(values))
            call("upgrade", "--install", RELEASE, str(kit.CHART), "--values", str(path))
            cluster.rollout(lab, DAEMON_SET, NAMESPACE)
            cluster.until_chained(lab, NODE)

        install(VALUE)
        yield install
        for name in TENANTS:  # a release that serves networks of pods is not taken away
            cluster.kubectl(lab, "delete", "pods", "--all", "-n", name, "--grace-period=1")
        call("uninstall", RELEASE, "--wait")


def definition(namespace):
    return manifests.network(
        NETWORK, {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0"}, namespace
    )


def ask(lab, name, namespace, whose="", blocks=()):
    """A pod of a namespace that names the network of another or its own."""
    asking = {"k8s.v1.cni.cncf.io/networks": f"{whose}/{NETWORK}"}
    if blocks:
        text = json.dumps([{"cniConf": {"name": name}} for name in blocks])
        asking = {"k8s.volcengine.com/pod-networks": text}
    pod = sleeping_pod(name, namespace=namespace, annotations=asking, nodeName=NODE)
    cluster.apply(lab, pod)


def until_attached(lab, name, namespace, interface="net1"):
    cluster.ready(lab, name, namespace=namespace)
    link = cluster.kubectl(
        lab, "-n", namespace, "exec", name, "--", "ip", "-d", "link", "show", interface
    )
    assert "macvlan" in link


def until_refused(lab, name, namespace, whose):
    """Until the pod's own Event has the sentence; AssertionError when the pod runs."""
    wanted = f"the network {whose}/{NETWORK} is for pods of {whose}, and this pod is of namespace"
    until_told(lab, name, namespace, f"{wanted} {namespace}")


def until_told(lab, name, namespace, wanted):
    """The same of any sentence."""

    def said():
        assert cluster.get(lab, "-n", namespace, f"pod/{name}")["status"]["phase"] == "Pending"
        chosen = f"--field-selector=involvedObject.name={name},reason=FailedCreatePodSandBox"
        events = cluster.get(lab, "events", "-n", namespace, chosen)["items"]
        return any(wanted in event["message"] for event in events)

    waiting.until(lab, "the refused pod's Event", said)


def test_a_network_is_for_pods_of_its_own_namespace_and_of_everybody_s_for_all(lab, release):
    """A pod that waits goes on when another list, or none, lets it."""
    ask(lab, "own", OWN, OWN)
    ask(lab, "other", OTHER, OWN)
    for whose in VALUE.split(","):
        ask(lab, f"of-{whose}", OTHER, whose)
    until_refused(lab, "other", OTHER, OWN)
    until_attached(lab, "own", OWN)
    for whose in VALUE.split(","):
        until_attached(lab, f"of-{whose}", OTHER)

    ask(lab, "block", OTHER, blocks=(NETWORK,))
    ask(lab, "node-s", OTHER, blocks=("lab",))
    until_attached(lab, "block", OTHER, "eth1")
    until_told(lab, "node-s", OTHER, "there is no network lab: known are rdma")

    release(OWN)
    until_attached(lab, "other", OTHER)
    ask(lab, "late-block", OTHER, blocks=(NETWORK,))
    until_refused(lab, "late-block", OTHER, "kube-system")
    ask(lab, "late", OTHER, "default")
    until_refused(lab, "late", OTHER, "default")

    release("")
    until_attached(lab, "late", OTHER)
