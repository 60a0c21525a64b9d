"""What the kubelet makes of two plugins of one resource: of shares in use, and of who ends last.

Both plugins are real (tests/kit/shared_plugin.py), and so is the kubelet, whose checkpoint says who
holds which share. docs/decisions/0107 has the facts; the way for people is test_migrate.py's.
"""

import pytest

from kube_rdma_lab import cluster, waiting
from tests.kit import share_pods as pods
from tests.kit import shared_plugin as kit

NODES = ("node-1", "node-2")
SYSTEM = ("-n", kit.NAMESPACE)
BESIDE = "rdma-beside"
LISTED = {"vendor": f'exposing "{kit.SHARES}" devices', "ours": "registered"}  # in the logs


def admitted(lab, name, node, shares):
    """Whether the kubelet takes such a pod; it refuses one for good while it has no list."""
    cluster.apply(lab, pods.pod(name, node, shares))
    cluster.wait(lab, f"pod/{name}", "--for=jsonpath={.status.startTime}")
    if cluster.get(lab, f"pod/{name}")["status"].get("reason") != "UnexpectedAdmissionError":
        return True
    cluster.kubectl(lab, "delete", "pod", name)
    return False


def plugin_pod(lab, node, name=kit.NAME):
    """The plugin's pod on a node that is not ending, None while there is none."""
    words = ("pods", *SYSTEM, "-l", f"name={name}", f"--field-selector=spec.nodeName={node}")
    present = (item["metadata"] for item in cluster.get(lab, *words)["items"])
    return next((item["name"] for item in present if "deletionTimestamp" not in item), None)


def listed(lab, node, plugin, name=kit.NAME):
    """Wait until a plugin's present pod has told the kubelet of its shares."""

    def shows():
        present = plugin_pod(lab, node, name)
        return present and LISTED[plugin] in cluster.kubectl(lab, "logs", *SYSTEM, present)

    waiting.until(lab, f"the list of {plugin} on {node}", shows)


@pytest.fixture(scope="module")
def prepared(native):
    """Native nodes that can run the plugin of Mellanox."""
    kit.put_program(native, NODES)
    return native


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
        pods.end(prepared)
        for name in (kit.NAME, BESIDE):
            cluster.kubectl(prepared, "delete", "daemonset", name, *SYSTEM, *gone)
            words = (*SYSTEM, "-l", f"name={name}", *gone)
            cluster.kubectl(prepared, "delete", "pods", *words)
        cluster.kubectl(prepared, "delete", "configmap", "rdma-devices", *SYSTEM, *gone)
        cluster.kubectl(prepared, "label", "node", "--all", f"{BESIDE}-")


def test_pods_of_the_other_plugin_outlive_kubelet_and_container(lab):
    """Under kube-rdma both start again with the shares and devices that the other plugin gave."""
    node = NODES[0]
    uid = pods.start(lab, "old", node, 3)
    shares, before = kit.held(lab, node)[uid], pods.running(lab)[uid]
    cluster.apply(lab, kit.ours())
    cluster.rollout(lab, kit.NAME, kit.NAMESPACE)
    listed(lab, node, "ours")
    log = f"/var/log/pods/{kit.NAMESPACE}_{plugin_pod(lab, node)}_*/*/*.log"
    cluster.shell(lab, node, "sv", "-w", "60", "force-restart", "kubelet")
    cluster.until_on_node(lab, node, f"[ $(cat {log} | grep -c registered) -gt 1 ]")
    cluster.wait_for_resource(lab, kit.RESOURCE, kit.SHARES, node=node)
    assert waiting.until(lab, "the pod to be known again", lambda: pods.running(lab)[uid]) == before
    # In the background: with the container its shell would end too, by SIGKILL.
    later = "(sleep 1; pkill sleep) >/dev/null 2>&1 &"
    cluster.kubectl(lab, "exec", "old", "--", "sh", "-c", later)
    path = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    cluster.wait(lab, "pod/old", f"--for={path}")
    cluster.ready(lab, "old")
    phase, _, restarts, device_nodes = pods.running(lab)[uid]
    assert (phase, restarts, device_nodes) == (before[0], 1, before[3])
    assert kit.held(lab, node)[uid] == shares
    pods.nothing_failed(lab)


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
    assert pods.no_share_twice(lab, node) == {str(number) for number in range(kit.SHARES)}
