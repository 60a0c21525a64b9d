"""A node goes from the shared RDMA device plugin of Mellanox to kube-rdma and back, pods running.

Both plugins are real (tests/kit/shared_plugin.py), and so is the kubelet, whose checkpoint says who
holds which share. docs/migrate.md has the same steps for people, docs/decisions/0049 the facts.
"""

import pytest

from kube_rdma_lab import cluster, waiting
from tests.documents.pages import COMMANDS, blocks, pages
from tests.documents.shell import Shell
from tests.kit import shared_plugin as kit

NODES = ("node-1", "node-2")
SYSTEM = ("-n", kit.NAMESPACE)
BESIDE = "rdma-beside"
LISTED = {"vendor": f'exposing "{kit.SHARES}" devices', "ours": "registered"}  # in the logs

PAGE = "docs/migrate.md"
# The page's commands: whose it is, a look at the configuration, to kube-rdma, on each node, back.
_, LOOK, TO_OURS, ON_A_NODE, BACK = (
    block.text for block in blocks(PAGE, pages()[PAGE]) if block.language == COMMANDS
)
OVER = {"ours": TO_OURS, "vendor": BACK}


def pod(name, node, shares):
    """A pod that the scheduler places, on this node alone; its container is started again."""
    container = {
        "name": "c",
        "image": "kube-rdma.io/lab/verbs:1",
        "command": ["sh", "-c", "ls /dev/infiniband; sleep 1000000 & wait"],
        "resources": {"limits": {kit.RESOURCE: str(shares)}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    labels = {"test": "takeover"}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def start(lab, name, node, shares):
    """Start a pod and return its UID once it is Ready."""
    cluster.apply(lab, pod(name, node, shares))
    cluster.ready(lab, name)
    return cluster.get(lab, f"pod/{name}")["metadata"]["uid"]


def admitted(lab, name, node, shares):
    """Whether the kubelet takes such a pod; it refuses one for good while it has no list."""
    cluster.apply(lab, pod(name, node, shares))
    cluster.wait(lab, f"pod/{name}", "--for=jsonpath={.status.startTime}")
    if cluster.get(lab, f"pod/{name}")["status"].get("reason") != "UnexpectedAdmissionError":
        return True
    cluster.kubectl(lab, "delete", "pod", name)
    return False


def running(lab):
    """By UID what must not change of the test's pods: phase, container, restarts, device nodes."""
    states = {}
    for item in cluster.get(lab, "pods", "-l", "test=takeover")["items"]:
        status = item["status"]["containerStatuses"][0]
        doors = cluster.kubectl(
            lab, "exec", item["metadata"]["name"], "--", "ls", "/dev/infiniband"
        )
        facts = (item["status"]["phase"], status["containerID"], status["restartCount"], doors)
        states[item["metadata"]["uid"]] = facts
    return states


def plugin_pod(lab, node, name=kit.NAME):
    """The plugin's pod on a node that is not ending, None while there is none."""
    words = ("pods", *SYSTEM, "-l", f"name={name}", f"--field-selector=spec.nodeName={node}")
    pods = (item["metadata"] for item in cluster.get(lab, *words)["items"])
    return next((item["name"] for item in pods if "deletionTimestamp" not in item), None)


def listed(lab, node, plugin, name=kit.NAME):
    """Wait until a plugin's present pod has told the kubelet of its shares."""

    def shows():
        present = plugin_pod(lab, node, name)
        return present and LISTED[plugin] in cluster.kubectl(lab, "logs", *SYSTEM, present)

    waiting.until(lab, f"the list of {plugin} on {node}", shows)


def exchange(shell, node):
    """What docs/migrate.md says to do on a node: no new pods, the other plugin, new pods."""
    shell.check(ON_A_NODE.replace("NODE=node-1", f"NODE={node}"))


def no_share_twice(lab, node):
    """Assert it, and return all shares of a node that pods hold."""
    shares = [share for ids in kit.held(lab, node).values() for share in ids]
    assert len(shares) == len(set(shares))
    return set(shares)


def nothing_failed(lab):
    """No pod was refused by a kubelet."""
    pods = cluster.get(lab, "pods", "-l", "test=takeover")["items"]
    assert [(p["status"]["phase"], p["status"].get("reason")) for p in pods] == [
        ("Running", None)
    ] * len(pods)
    uids = {p["metadata"]["uid"] for p in pods}  # the lab has events of other tests too
    events = cluster.get(lab, "events.events.k8s.io")["items"]
    reasons = {event["reason"] for event in events if event["regarding"].get("uid") in uids}
    assert "Started" in reasons
    assert "UnexpectedAdmissionError" not in reasons


@pytest.fixture(scope="module")
def prepared(native):
    """Native nodes that can run the plugin of Mellanox."""
    kit.put_program(native, NODES)
    return native


@pytest.fixture
def shell(native):
    """A shell of somebody whose kubectl speaks with the lab's cluster."""
    with Shell({"KUBECONFIG": str(native.kubeconfig)}, native.state.binaries) as opened:
        yield opened


@pytest.fixture
def lab(prepared):
    """The plugin of Mellanox serves both nodes; nothing is left at the end."""
    cluster.apply(prepared, kit.CONFIG, kit.vendors())
    try:
        for node in NODES:
            listed(prepared, node, "vendor")
            cluster.wait_for_resource(prepared, kit.RESOURCE, kit.SHARES, node=node)
        yield prepared
    finally:
        gone = ("--ignore-not-found", "--wait")
        cluster.kubectl(prepared, "delete", "pods", "-l", "test=takeover", *gone)
        cluster.kubectl(prepared, "uncordon", *NODES)
        for name in (kit.NAME, BESIDE):
            cluster.kubectl(prepared, "delete", "daemonset", name, *SYSTEM, *gone)
            words = (*SYSTEM, "-l", f"name={name}", *gone)
            cluster.kubectl(prepared, "delete", "pods", *words)
        cluster.kubectl(prepared, "delete", "configmap", "rdma-devices", *SYSTEM, *gone)
        cluster.kubectl(prepared, "label", "node", "--all", f"{BESIDE}-")


def test_there_and_back_node_by_node(lab, shell):
    """Pods keep containers, devices and shares; a full node has each share exactly once."""
    for node in NODES:
        start(lab, f"old-{node}", node, 3)
    assert kit.RESOURCE in shell.check(LOOK)
    for plugin in ("ours", "vendor"):
        shell.check(OVER[plugin])
        before = running(lab)
        for node in NODES:
            shares = kit.held(lab, node)
            exchange(shell, node)
            listed(lab, node, plugin)
            assert kit.held(lab, node) == shares
            start(lab, f"new-{plugin}-{node}", node, 2)
            no_share_twice(lab, node)
        after = running(lab)
        assert {uid: after[uid] for uid in before} == before
        nothing_failed(lab)
    for node in NODES:
        start(lab, f"rest-{node}", node, kit.SHARES - 3 - 2 - 2)
        assert no_share_twice(lab, node) == {str(number) for number in range(kit.SHARES)}
    nothing_failed(lab)


def test_pods_of_the_other_plugin_outlive_kubelet_and_container(lab, shell):
    """Under kube-rdma both start again with the shares and devices that the other plugin gave."""
    node = NODES[0]
    uid = start(lab, "old", node, 3)
    shares, before = kit.held(lab, node)[uid], running(lab)[uid]
    shell.check(TO_OURS)
    exchange(shell, node)
    log = f"/var/log/pods/{kit.NAMESPACE}_{plugin_pod(lab, node)}_*/*/*.log"
    cluster.shell(lab, node, "sv", "-w", "60", "force-restart", "kubelet")
    cluster.until_on_node(lab, node, f"[ $(cat {log} | grep -c registered) -gt 1 ]")
    cluster.wait_for_resource(lab, kit.RESOURCE, kit.SHARES, node=node)
    assert waiting.until(lab, "the pod to be known again", lambda: running(lab)[uid]) == before
    # In the background: with the container its shell would end too, by SIGKILL.
    later = "(sleep 1; pkill sleep) >/dev/null 2>&1 &"
    cluster.kubectl(lab, "exec", "old", "--", "sh", "-c", later)
    path = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    cluster.wait(lab, "pod/old", f"--for={path}")
    cluster.ready(lab, "old")
    phase, _, restarts, doors = running(lab)[uid]
    assert (phase, restarts, doors) == (before[0], 1, before[3])
    assert kit.held(lab, node)[uid] == shares
    nothing_failed(lab)


def test_the_other_plugin_ends_after_kube_rdma_began(lab):
    """The kubelet then hangs up on kube-rdma, whose list comes back without anybody's help."""
    node = NODES[0]
    cluster.apply(lab, kit.beside(kit.ours(), BESIDE))
    cluster.kubectl(lab, "label", "node", node, f"{BESIDE}=yes")
    listed(lab, node, "ours", BESIDE)
    log = f"/var/log/pods/{kit.NAMESPACE}_{plugin_pod(lab, node, BESIDE)}_*/*/*.log"
    count = f"cat {log} | grep -c registered"
    before = int(cluster.shell(lab, node, count))
    cluster.kubectl(lab, "delete", "daemonset", kit.NAME, *SYSTEM)
    cluster.until_on_node(lab, node, f"[ $({count}) -gt {before} ]")
    waiting.until(lab, "a pod with all shares", lambda: admitted(lab, "later", node, kit.SHARES))
    cluster.ready(lab, "later")
    assert no_share_twice(lab, node) == {str(number) for number in range(kit.SHARES)}
