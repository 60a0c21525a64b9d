"""The gate of drivers on real nodes: nothing is loaded or unloaded under a pod that holds a share.

The driver is a stand-in (tests/kit/stand_in_drivers.py): it writes down when it loads and when it
would unload. Pods that hold shares write into the same file, so its order is the proof. That nodes
are changed one after the other shows a record of all that the API server was told meanwhile.
"""

import json

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.images import VERBS
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_lab.demo import scc
from tests.kit import helm as kit
from tests.kit import recorder, stand_in_drivers
from tests.kit.stand_in_drivers import DRIVERS, LOAD, NAMESPACE, POLICY, RECORD, UNLOAD

RELEASE, RECORDS = "drivers", "kube-system"
FIRST, SECOND = NODES = ("node-1", "node-2")
RESOURCE, SHARES = "rdma/stand-in", 4
HOLD, LEAVE = "holds", "leaves"
HOLDER = f"""\
trap 'echo {LEAVE} >> {RECORD}; exit 0' TERM
echo {HOLD} >> {RECORD}
: > /tmp/ready
/usr/bin/sleep infinity &
wait
"""


@pytest.fixture(scope="module")
def lab(native):
    """Two nodes with stand-ins, and shares of a plugin that reports nothing."""
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", f"{kit.ROOT}/config/operator")
    cluster.kubectl(native, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    for node in NODES:
        offer(native, node, str(SHARES))
    with stand_in_drivers.on_nodes(native, NODES):
        yield native
        cluster.kubectl(native, "delete", "pods", "-l", "test=drivers", "--ignore-not-found")
    for node in NODES:
        offer(native, node, None)
    cluster.kubectl(native, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    cluster.kubectl(native, "delete", "-f", f"{kit.ROOT}/config/operator", "--wait")


@pytest.fixture(scope="module")
def helm(lab, tmp_path_factory):
    """The operator as a release of the chart; a function that calls Helm."""
    with kit.on_lab(lab, tmp_path_factory.mktemp("helm"), RECORDS) as call:
        values = ("preset=nvidia-operator", f"image.repository={IMAGE}", "crds.install=false")
        sets = [word for value in values for word in ("--set", value)]
        code, printed = call("install", RELEASE, str(kit.CHART), *sets)
        try:
            assert code == 0, printed
            yield call
        finally:
            call("uninstall", RELEASE, "--ignore-not-found", "--no-hooks", "--wait")


def offer(lab, node, shares):
    """Offer shares as a plugin would of which the operator knows nothing."""
    body = json.dumps({"status": {"capacity": {RESOURCE: shares}}})
    cluster.kubectl(lab, "patch", "node", node, "--subresource=status", "--type=merge", "-p", body)


def hold(lab, name, node):
    """Start a pod that holds a share, and writes down how long."""
    mount = {"name": "record", "mountPath": stand_in_drivers.HERE}
    container = {
        "name": "main",
        "image": VERBS,
        "command": ["sh", "-c", HOLDER],
        "resources": {"limits": {RESOURCE: "1"}},
        "volumeMounts": [mount],
        "readinessProbe": {"exec": {"command": ["ls", "/tmp/ready"]}, "periodSeconds": 1},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
        "volumes": [{"name": "record", "hostPath": {"path": stand_in_drivers.HERE}}],
    }
    metadata = {"name": name, "namespace": "default", "labels": {"test": "drivers"}}
    cluster.apply(lab, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.ready(lab, name)


def let_go(lab, name):
    cluster.kubectl(lab, "delete", "pod", name, "--wait")


def held_in_peace(words):
    """Whether nothing was loaded or unloaded between a holder's first and last word."""
    holders = 0
    for word in words:
        holders += {HOLD: 1, LEAVE: -1}.get(word, 0)
        if holders and word in (LOAD, UNLOAD):
            return False
    return True


def until_waiting(lab, pod):
    """Until the policy says that a pod is waited for."""

    def said():
        conditions = cluster.get(lab, *POLICY).get("status", {}).get("conditions", ())
        return any(one["type"] == "DriversCurrent" and pod in one["message"] for one in conditions)

    waiting.until(lab, f"the wait for {pod}", said)


def until_written(lab, node, *words):
    def last():
        return stand_in_drivers.written(lab, node)[-len(words) :]

    waiting.until(lab, f"{words} on {node}", lambda: last() == [*words])


def until_ready(lab, version):
    """Until all nodes run the driver of a version, and the policy says so."""
    stand_in_drivers.until_driven(lab, version, NODES)
    cluster.wait(lab, *POLICY, "--for=condition=DriversCurrent")
    cluster.wait(lab, *POLICY, "--for=jsonpath={.status.state}=ready")


def test_no_driver_comes_or_goes_under_a_pod_that_holds_a_share(lab, helm, tmp_path):
    """First load, another image, labels that vanish, the policy's end, and the chart's.

    All the while one node at most is closed or without its driver.
    """
    with recorder.recording(lab, NAMESPACE, tmp_path) as record:
        comes_and_goes(lab, helm)
        seen = record()
    turns = recorder.turns(seen)
    print(len(seen[1]), "events:", *("+".join(sorted(names)) or "-" for names in turns))
    assert max(map(len, turns)) == 1
    assert frozenset().union(*turns) == {*NODES}
    assert not recorder.exposed(seen)

    assert all(held_in_peace(stand_in_drivers.written(lab, node)) for node in NODES)
    for node in cluster.get(lab, "nodes")["items"]:
        assert not node["spec"].get("unschedulable")


def comes_and_goes(lab, helm):
    def written(node):
        return stand_in_drivers.written(lab, node)

    hold(lab, "first", FIRST)
    cluster.apply(lab, stand_in_drivers.policy("1"))
    until_written(lab, SECOND, LOAD)
    until_waiting(lab, "default/first")
    assert written(FIRST) == [HOLD]
    let_go(lab, "first")
    until_ready(lab, "1")
    assert written(FIRST) == [HOLD, LEAVE, LOAD]

    hold(lab, "second", FIRST)
    cluster.apply(lab, stand_in_drivers.policy("2"))
    until_written(lab, SECOND, LOAD, UNLOAD, LOAD)
    until_waiting(lab, "default/second")
    let_go(lab, "second")
    until_ready(lab, "2")

    before = [written(node) for node in NODES]
    stand_in_drivers.label(lab, *stand_in_drivers.without_system())
    gone = f"{stand_in_drivers.FEATURE}/pci-15b3.present"
    waiting.until(lab, "the missing label's name", lambda: gone in reason(lab))
    assert [written(node) for node in NODES] == before
    assert cluster.get(lab, "-n", NAMESPACE, "daemonsets", *DRIVERS)["items"]
    stand_in_drivers.label(lab, *stand_in_drivers.with_system())

    hold(lab, "third", SECOND)
    cluster.kubectl(lab, "delete", *POLICY, "--wait=false")
    until_written(lab, FIRST, LOAD, UNLOAD)
    code, printed = helm("uninstall", RELEASE)
    assert code
    assert f"drivers of a NicClusterPolicy run on nodes {SECOND}" in printed
    assert written(SECOND)[-1] == HOLD
    let_go(lab, "third")
    until_written(lab, SECOND, LEAVE, UNLOAD)
    waiting.until(
        lab,
        "no driver's DaemonSet",
        lambda: not cluster.get(lab, "-n", NAMESPACE, "daemonsets", *DRIVERS)["items"],
    )
    code, printed = helm("uninstall", RELEASE, "--wait")
    assert code == 0, printed


def reason(lab):
    return cluster.get(lab, *POLICY).get("status", {}).get("reason", "")
