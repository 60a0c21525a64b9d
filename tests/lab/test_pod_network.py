"""Seed S3's network on the lab: macvlan by annotation, addresses from IPAM, verbs from pod to pod.

The GID in perftest's output is looked at: with a neighbour's a test "works" too. Then what else
this agent does for networks: plugins of others, and a pod that started while nobody called us.
"""

import base64
import json
import re
import time

import pytest

from kube_rdma.model.errors import Unavailable
from kube_rdma.rules.conflist import without
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import Endpoint, measure

EXAMPLE = scc.examples() / "s3-network"
PODS = ("rdma-net-pod-1", "rdma-net-pod-2")
RESOURCE = "rdma/hca_shared_devices_a"
STATUS = "k8s.v1.cni.cncf.io/network-status"
OWN = "kube-rdma.io/network-status"
# Each pod names its own device and GID: left to itself, perftest takes the node's and "works" too.
SCRIPT = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -n 500 -F --report_gbits "$@"'
WRITE_TEST = ("sh", "-c", SCRIPT, "perftest")

AGENT = "kube-rdma agent --role=plugin --role=node --networks"
FOLDER = "/etc/cni/net.d"
# Of other tests than the seed's: the network's name is the pod's too.
LATE, LATE_ADDRESS = "late", "192.168.113.7"
NETWORKS = {
    LATE: {
        "cniVersion": "1.0.0",
        "type": "macvlan",
        "master": "ens2f0",
        "ipam": {"type": "static", "addresses": [{"address": f"{LATE_ADDRESS}/24"}]},
    },
    # Nothing of ours: two binaries of the node's CNI folder make it.
    "bridged": {
        "cniVersion": "1.0.0",
        "name": "bridged",
        "type": "bridge",
        "bridge": "bridged0",
        "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"},
    },
}


@pytest.fixture(scope="module")
def networks(lab, proof):
    """The lab with the agent of seed S3's example, its network and its two pods on two nodes."""
    scc.install_kinds(lab)
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/agent.yaml")
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/controller.yaml")
    rollout = ("rollout", "status", "daemonset/rdma-shared-dp-ds", "-n", "kube-rdma")
    scc.kubectl(lab, *rollout, "--timeout=120s", seconds=150)
    scc.wait_for_resource(lab, "1k", resource=RESOURCE)
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/rdma-net-ipam.yaml")
    try:
        start(lab, PODS[0])
        scc.kubectl(lab, "cordon", node_of(lab, PODS[0]))
        try:
            start(lab, PODS[1])
        finally:
            scc.kubectl(lab, "uncordon", node_of(lab, PODS[0]))
        yield lab
    finally:
        scc.kubectl(lab, "delete", "pod", *PODS, "--ignore-not-found", seconds=120)
        scc.kubectl(lab, "delete", "-f", f"{EXAMPLE}/agent.yaml", "--ignore-not-found", seconds=120)


def start(lab, pod):
    number = pod.rpartition("-")[2]
    scc.kubectl(lab, "apply", "-f", f"{EXAMPLE}/rdma-test-pod-{number}.yaml")
    scc.kubectl(lab, "wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=120s", seconds=130)


def node_of(lab, pod):
    return scc.get(lab, f"pod/{pod}")["spec"]["nodeName"]


def inside(lab, pod, *words):
    return scc.kubectl(lab, "exec", pod, "--", *words)


def annotation(lab, pod, name):
    return json.loads(scc.get(lab, f"pod/{pod}")["metadata"]["annotations"][name])


def address(lab, pod):
    """The pod's address on net1, as its own namespace shows it."""
    shown = inside(lab, pod, "ip", "-4", "-o", "addr", "show", "dev", "net1")
    return re.search(r"inet (192\.168\.111\.\d+)/24", shown)[1]


def test_net1_is_as_the_document_says(networks):
    found = set()
    for pod in PODS:
        shown = inside(networks, pod, "ip", "link", "show", "dev", "net1")
        assert "mtu 9000" in shown
        found.add(address(networks, pod))
    assert len(found) == 2


def test_the_status_tells_the_interface_and_its_rdma_device(networks):
    for pod in PODS:
        (mine,) = [e for e in annotation(networks, pod, STATUS) if e["interface"] == "net1"]
        assert mine["ips"] == [address(networks, pod)]
        (own,) = annotation(networks, pod, OWN)
        devices = inside(networks, pod, "ls", "/sys/class/infiniband").split()
        assert own["rdmaDevice"] in devices
        assert "gidIndex" in own


def test_the_container_has_the_device_of_its_own_interface_alone(networks):
    for pod in PODS:
        nodes = inside(networks, pod, "ls", "/dev/infiniband").split()
        assert len([node for node in nodes if node.startswith("uverbs")]) == 1
        assert "rdma_cm" in nodes


def test_the_pods_reach_each_other_by_ping_and_by_verbs(networks):
    first, second = PODS
    inside(networks, second, "ping", "-c", "3", address(networks, first))
    endpoints = []
    for pod in PODS:
        (own,) = annotation(networks, pod, OWN)
        endpoints.append((pod, own["rdmaDevice"], own["gidIndex"]))
    (server, server_device, server_gid), (client, client_device, client_gid) = endpoints
    outcome = measure(
        endpoint(networks, server, server_device, server_gid),
        endpoint(networks, client, client_device, client_gid),
        WRITE_TEST,
    )
    assert outcome.addresses == {address(networks, pod) for pod in PODS}


def endpoint(lab, pod, device, gid):
    """A pod as a place to run perftest in, on its own device and GID."""
    own = ("env", f"DEVICE={device}", f"GID={gid}")
    return Endpoint(
        pod, address(lab, pod), lambda *words: lab.kubectl("exec", pod, "--", *own, *words)
    )


def test_the_pool_says_how_full_it_is(networks):
    """The network's document brought the pool along; the controller keeps its status."""
    scc.kubectl(networks, "wait", "ippool", "--all", "--for=condition=Ready", "--timeout=60s")
    (pool,) = scc.get(networks, "ippools")["items"]
    (usage,) = pool["status"]["usage"]
    assert usage["held"] >= len(PODS)
    assert usage["nodes"] == len(PODS)


def test_a_deleted_pod_gives_everything_back(networks):
    node = node_of(networks, PODS[0])
    scc.kubectl(networks, "delete", "pod", PODS[0], seconds=60)
    links = labs.run(networks.ssh(node, "rdma", "link"))
    assert not re.search(r"rxe-", links)
    assert labs.run(networks.ssh(node, "ls", "/var/lib/kube-rdma/attachments")).split() == []


def put(lab, document):
    """Apply an object."""
    path = lab.home / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    scc.kubectl(lab, "apply", "-f", str(path))


def on(lab, node, script, seconds=120):
    return labs.run(lab.ssh(node, "sh", "-c", script), seconds=seconds)


def signal(lab, node, name):
    """Signal the agent. Without a shell, whose own words would be found too."""
    labs.run(lab.ssh(node, "pkill", name, "-f", AGENT))


def until(lab, node, condition, seconds=90):
    """Wait on the node until a command of its shell succeeds; Unavailable when it never does."""
    script = f"for i in $(seq {seconds * 2}); do {condition} && exit 0; sleep 0.5; done; exit 1"
    on(lab, node, script, seconds=seconds + 30)


def unchain(lab, node):
    """Take our entry out of the node's configuration, as a network plugin that restarts does."""
    name = on(lab, node, f"grep -l kube-rdma {FOLDER}/*.conflist").split()[0]
    text = without(on(lab, node, f"cat {name}"))
    assert "kube-rdma" not in text
    coded = base64.b64encode(text.encode()).decode()
    on(lab, node, f"echo {coded} | base64 -d > {name}.new && mv {name}.new {name}")


def definition(name):
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name},
        "spec": {"config": json.dumps(NETWORKS[name])},
    }


def plain_pod(name, node):
    """A pod with the network of its name and without a share."""
    container = {
        "name": "main",
        "image": "kube-rdma.io/lab/verbs:1",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
    }
    metadata = {"name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": name}}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def node(networks):
    """The node that had the first pod, with the networks of the tests that follow."""
    for name in NETWORKS:
        put(networks, definition(name))
    (free,) = {each.name for each in networks.topology.nodes} - {node_of(networks, PODS[1])}
    yield free
    for name in NETWORKS:
        scc.kubectl(networks, "delete", "pod", name, "--ignore-not-found", seconds=120)
        scc.kubectl(networks, "delete", "net-attach-def", name)


def test_a_network_of_other_plugins_is_made_by_them(networks, node):
    """bridge and host-local, in the host's tree; what they gave is theirs again afterwards."""
    put(networks, plain_pod("bridged", node))
    ready = ("wait", "pod/bridged", "--for=condition=Ready", "--timeout=90s")
    scc.kubectl(networks, *ready, seconds=100)
    shown = inside(networks, "bridged", "ip", "-4", "-o", "addr", "show", "dev", "net1")
    (given,) = re.findall(r"inet (10\.77\.0\.\d+)/24", shown)
    status = annotation(networks, "bridged", STATUS)
    assert [one["ips"] for one in status if one["interface"] == "net1"] == [[given]]
    scc.kubectl(networks, "delete", "pod", "bridged", seconds=60)
    assert given not in on(networks, node, "ls /var/lib/cni/networks/bridged")


def test_a_pod_that_started_without_us_gets_net1_late(networks, node):
    """It runs without its network until the agent is back, and keeps its container."""
    signal(networks, node, "-STOP")
    try:
        unchain(networks, node)
        put(networks, plain_pod(LATE, node))
        scc.kubectl(networks, "wait", f"pod/{LATE}", "--for=condition=Ready", "--timeout=90s")
        assert "net1" not in inside(networks, LATE, "ip", "-4", "-o", "addr", "show")
    finally:
        signal(networks, node, "-CONT")
    status = "jsonpath={.metadata.annotations.kube-rdma\\.io/network-status}"
    scc.kubectl(networks, "wait", f"pod/{LATE}", f"--for={status}", "--timeout=120s", seconds=150)
    assert LATE_ADDRESS in inside(networks, LATE, "ip", "-4", "-o", "addr", "show")
    (container,) = scc.get(networks, f"pod/{LATE}")["status"]["containerStatuses"]
    assert container["restartCount"] == 0


def test_the_pod_is_told(networks, node):
    """By an Event; the configuration is as it was before somebody rewrote it."""
    until(networks, node, f"grep -q kube-rdma {FOLDER}/*.conflist")
    query = (
        "events",
        "--field-selector",
        f"involvedObject.name={LATE},reason=NetworksAttachedLate",
    )
    deadline = time.monotonic() + 60
    while not scc.get(networks, *query)["items"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_its_end_takes_the_network_back(networks, node):
    """As if its ADD had been the runtime's."""
    scc.kubectl(networks, "delete", "pod", LATE, seconds=60)
    with pytest.raises(Unavailable):
        on(networks, node, "ls /var/lib/kube-rdma/attachments | grep -q attached-")
