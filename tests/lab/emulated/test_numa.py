"""NUMA on the lab: the kubelet's topology manager aligns ghosts of GPUs, or refuses."""

import json

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.ghost.install import start_ghosts, wait_for_ghosts

NODE = "node-2"
RDMA = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
CONFIG = "/lab/kubernetes/kubelet.json"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
REGISTERED = "cat /var/log/pods/*/*plugin/*.log | grep -c 'event=registered'"
SHOW = """\
for gpu in $(echo $NVIDIA_VISIBLE_DEVICES | tr , ' '); do
  echo "$gpu $(cat /sys/bus/pci/devices/$gpu/numa_node)"
done
exec sleep 1000000
"""


def pod(name, gpus, **further):
    """Return a pod on NODE that tells which ghosts it got and on which NUMA nodes they are."""
    container = {
        "name": "c",
        "image": "localhost/lab/verbs:1",
        "command": ["sh", "-c", SHOW],
        "resources": {"limits": {"nvidia.com/gpu": gpus} | further},
    }
    selector = {"kubernetes.io/hostname": NODE}
    spec = {"restartPolicy": "Never", "nodeSelector": selector, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def restart_with(lab, policy):
    """Restart the kubelet with another topologyManagerPolicy; wait for both plugins to return."""
    before = int(cluster.shell(lab, NODE, REGISTERED))
    change = f's/"topologyManagerPolicy": "[^"]*"/"topologyManagerPolicy": "{policy}"/'
    cluster.shell(lab, NODE, "sed", "-i", change, CONFIG)
    cluster.shell(lab, NODE, "sv", "-w", "60", "force-restart", "kubelet")
    cluster.until_on_node(lab, NODE, f"[ $({REGISTERED}) -ge {before + 2} ]")


@pytest.fixture(scope="module")
def strict(lab, proof):
    """The lab with a kubelet on NODE that gives all of a pod's devices from one NUMA node."""
    start_ghosts(lab)
    wait_for_ghosts(lab)
    restart_with(lab, "single-numa-node")
    yield lab
    restart_with(lab, "none")
    cluster.wait_for_resource(lab, scc.RESOURCE, "1k")


@pytest.fixture
def start(strict, tmp_path):
    """Start a pod with so many ghosts and wait for a phase; all are removed at the end."""
    names = []

    def run(gpus, phase, name=None, **further):
        name = name or f"gpus-{gpus}"
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(pod(name, gpus, **further)))
        cluster.kubectl(strict, "apply", "-f", str(path))
        names.append(name)
        wait = f"--for=jsonpath={{.status.phase}}={phase}"
        cluster.wait(strict, f"pod/{name}", wait)
        return name

    yield run
    cluster.kubectl(
        strict, "delete", "pod", *names, "--ignore-not-found", "--grace-period=0", "--force"
    )


def ghosts(lab, name):
    """Return a pod's ghosts with their NUMA nodes, as it saw them itself."""
    cluster.kubectl(lab, "exec", name, "--", "true")  # its first lines are written by then
    return dict(line.split() for line in cluster.kubectl(lab, "logs", name).splitlines())


def checkpoint(lab, name, resource="nvidia.com/gpu"):
    """Return the same as the kubelet wrote it down: the NUMA node it chose for each device."""
    uid = cluster.get(lab, f"pod/{name}")["metadata"]["uid"]
    data = json.loads(cluster.shell(lab, NODE, "cat", CHECKPOINT))["Data"]
    entries = (each for each in data["PodDeviceEntries"] if each["PodUID"] == uid)
    (entry,) = (each for each in entries if each["ResourceName"] == resource)
    return {gpu: node for node, gpus in entry["DeviceIDs"].items() for gpu in gpus}


def test_pods_get_their_gpus_from_one_numa_node(strict, start):
    one = start(1, "Running")
    four = start(4, "Running")
    seen = {name: ghosts(strict, name) for name in (one, four)}
    assert [len(each) for each in seen.values()] == [1, 4]
    assert {name: checkpoint(strict, name) for name in seen} == seen
    (taken,) = seen[one].values()
    # Three are left beside the first: only the other socket has four.
    assert set(seen[four].values()) == {"0", "1"} - {taken}


def test_a_pod_that_no_numa_node_can_serve_is_refused_at_admission(strict, start):
    status = cluster.get(strict, f"pod/{start(5, 'Failed')}")["status"]
    assert status["reason"] == "TopologyAffinityError"


def test_a_gpu_and_a_card_come_from_one_numa_node(strict, vke, start):
    """Each socket has one card, so the second pod's GPU has to move to the other socket."""
    assert sorted(nodes_of_pairs(strict, start)) == ["0", "1"]


@pytest.mark.slow
def test_best_effort_finds_the_same_pairs(strict, vke, start):
    """The policy that the VKE document asks for: aligned wherever that is possible."""
    restart_with(strict, "best-effort")
    try:
        assert sorted(nodes_of_pairs(strict, start)) == ["0", "1"]
    finally:
        restart_with(strict, "single-numa-node")


def nodes_of_pairs(lab, start):
    """The NUMA nodes of two pods with a GPU and a card each, in both of which the pair agrees."""
    cluster.kubectl(lab, "label", "node", NODE, f"{LABEL}=shared", "--overwrite")
    try:
        wait_for_cards(lab, 2)
        nodes = []
        for name in ("near-1", "near-2"):
            start(1, "Running", name, **{RDMA: 1})
            (gpu,) = checkpoint(lab, name).values()
            (card,) = checkpoint(lab, name, RDMA).values()
            assert gpu == card
            nodes.append(card)
        return nodes
    finally:
        names = ("near-1", "near-2", "--ignore-not-found", "--grace-period=0", "--force")
        cluster.kubectl(lab, "delete", "pod", *names)
        cluster.kubectl(lab, "label", "node", NODE, f"{LABEL}-")


def wait_for_cards(lab, count):
    """Wait until NODE's allocatable shows so many cards."""
    cluster.wait_for_resource(lab, RDMA, count, node=NODE)
