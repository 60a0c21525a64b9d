"""The seeds' own manifests and figures on native nodes: a node with four cards, S2's privileged
DaemonSet, S3's pods with a GPU.

The machines run the same with verbs (machines/test_vke_four_cards, test_demo), which takes minutes,
so only `make test-all` does. Here are the kubelet, containerd and constructed cards, in every run.
"""

import json
from ipaddress import ip_interface, ip_network

import pytest
import yaml
from click.testing import CliRunner

from kube_rdma.cli.resources import resources
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.ghost import install
from kube_rdma_lab.native.replay import Replay
from tests.kit import manifests
from tests.kit.pods import IMAGE, UNTIL_ASKED

NODES = ("node-1", "node-2")
NODE = "node-1"
VKE, MODE = "vke.volcengine.com/rdma", "vke.node.rdma.mode"
SURPLUS = ("mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7")  # of eight, so that S1's four are left
S3, S3_SPACE, S3_RESOURCE = "s3-network", "mlnx-network-operator", "rdma/hca_shared_devices_a"
S3_PODS = ("rdma-gpu-test-pod-1", "rdma-gpu-test-pod-2")
SUBNET = ip_network("192.168.111.0/24")
GPUS = 8
CARD = "mlx5_0"


@pytest.fixture(scope="module")
def lab(ethernet):
    return ethernet


@pytest.fixture(scope="module")
def proof():
    """No demo on this lab."""


# --- S2: the document's DaemonSet -----------------------------------------------------------------


@pytest.fixture
def document(lab):
    """Seed S2's DaemonSet as its document has it: privileged, and no mount of /sys."""
    folder = f"{scc.examples()}/s2-scc"
    scc.install(lab, "daemonset-document.yaml")
    scc.start_pods(lab)
    yield lab
    scc.remove_pods(lab)
    files = ("-f", f"{folder}/daemonset-document.yaml", "-f", f"{folder}/config.yaml")
    cluster.kubectl(lab, "delete", *files, "--cascade=foreground", "--wait")


def test_seed_s2_s_privileged_daemonset_serves_a_thousand_shares_of_all_cards(document):
    asked = ("pods", "-n", "kube-system", "-l", "name=rdma-sriov-dp-ds")
    containers = [
        container
        for pod in cluster.get(document, *asked)["items"]
        for container in pod["spec"]["containers"]
    ]
    assert [each["securityContext"] for each in containers] == [{"privileged": True}] * len(NODES)
    for node in cluster.get(document, "nodes")["items"]:
        assert node["status"]["capacity"][scc.RESOURCE] == "1k"
    rows = [scc.pod_row(document, name) for name in scc.PODS]
    assert {row.node for row in rows} == set(NODES)
    of_cards = {f"{kind}{number}" for kind in ("umad", "uverbs") for number in range(8)}
    assert [set(row.devices) for row in rows] == [of_cards | {"rdma_cm"}] * len(rows)


# --- S3: pods with a GPU --------------------------------------------------------------------------


def network(interface):
    """The document's network on this interface, without a GID: a constructed card lists none."""
    document = yaml.safe_load((scc.examples() / S3 / "rdma-net-ipam.yaml").read_text())
    config = json.loads(document["spec"]["config"])
    config["plugins"][0] |= {"type": "kube-rdma", "rdma": False, "master": interface, "mtu": 1500}
    document["spec"]["config"] = json.dumps(config)
    return document


@pytest.fixture
def gpu_network(lab):
    """Seed S3's agent and network on the constructed card, beside GPUs that a plugin offers."""
    interface = cluster.shell(lab, NODE, "ls", f"/sys/class/infiniband/{CARD}/device/net").strip()
    agent = (scc.examples() / S3 / "agent.yaml").read_text().replace("ens2f0", interface)
    text = f"{agent}\n---\n{json.dumps(network(interface))}"
    ghosts = install.manifest()
    scc.install_kinds(lab)
    cluster.label_cards(lab)
    cluster.kubectl(lab, "apply", "-f", "-", stdin=text)
    cluster.kubectl(lab, "apply", "-f", "-", stdin=ghosts)
    for resource, count in ((S3_RESOURCE, "1k"), ("nvidia.com/gpu", GPUS)):
        cluster.wait_for_resource(lab, resource, count)
    cluster.until_chained(lab, *NODES)
    yield lab
    cluster.kubectl(lab, "delete", "pod", *S3_PODS, "--ignore-not-found")
    cluster.kubectl(lab, "delete", "-f", "-", "--wait", stdin=ghosts)
    cluster.kubectl(lab, "delete", "-f", "-", "--wait", stdin=text)
    cluster.kubectl(lab, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")


def test_seed_s3_s_pods_get_a_gpu_a_share_and_their_second_nic(gpu_network):
    lab = gpu_network
    for number in (1, 2):
        pod = yaml.safe_load((scc.examples() / S3 / f"rdma-gpu-test-pod{number}.yml").read_text())
        (container,) = pod["spec"]["containers"]
        container |= {"image": IMAGE, "command": list(UNTIL_ASKED)}  # CUDA's perftest wants a GPU
        cluster.apply(lab, pod)
    cluster.ready(lab, *S3_PODS)
    seen = []
    for name in S3_PODS:
        inside = ("exec", name, "--")
        gpu = cluster.kubectl(lab, *inside, "printenv", "NVIDIA_VISIBLE_DEVICES").strip()
        listed = cluster.kubectl(lab, *inside, "ls", "/dev/infiniband").split()
        address = cluster.kubectl(lab, *inside, "ip", "-4", "-o", "addr", "show", "dev", "net1")
        assert gpu
        assert "uverbs0" in listed
        seen.append(ip_interface(address.split()[3]))
    assert len(set(seen)) == len(S3_PODS)
    assert {address.network for address in seen} == {SUBNET}


# --- S3: what an author is told to write, on cards of Ethernet ------------------------------------


@pytest.fixture
def ethernet_cards(lab):
    """Seed S3's agent with a share of each card for many pods, and ports that say Ethernet."""
    interface = cluster.shell(lab, NODE, "ls", f"/sys/class/infiniband/{CARD}/device/net").strip()
    pool = {"resource": S3_RESOURCE, "mode": "shared-multi"}
    pool["selectors"] = [{"interfaces": [interface]}]
    documents = list(yaml.safe_load_all((scc.examples() / S3 / "agent.yaml").read_text()))
    (conf,) = (one for one in documents if one["kind"] == "ConfigMap")
    conf["data"] = {"config.json": json.dumps(manifests.node_policy("cards", pool))}
    text = "\n---\n".join(map(json.dumps, (*documents, network(interface))))
    layers = list((lab.home / "nodes").glob(f"*/sys/class/infiniband/{CARD}/ports/1/link_layer"))
    recorded = {path: path.read_text() for path in layers}
    for path in layers:
        path.write_text("Ethernet\n")
    scc.install_kinds(lab)
    cluster.label_cards(lab)
    cluster.kubectl(lab, "apply", "-f", "-", stdin=text)
    cluster.wait_for_resource(lab, S3_RESOURCE, 16)
    cluster.until_chained(lab, *NODES)
    yield lab
    cluster.kubectl(lab, "delete", "-f", "-", "--wait", "--ignore-not-found", stdin=text)
    cluster.kubectl(lab, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")
    for path, layer in recorded.items():
        path.write_text(layer)


def test_the_pod_that_an_author_is_told_to_write_runs_as_it_stands(ethernet_cards):
    """With the network that its card needs; without one it is not told of."""
    lab = ethernet_cards

    def told():
        answer = CliRunner(env={"KUBECONFIG": str(lab.kubeconfig)}).invoke(
            resources, ["-o", "json"]
        )
        listed = json.loads(answer.stdout)["resources"]
        return next(one for one in listed if one["name"] == S3_RESOURCE)

    cluster.kubectl(lab, "apply", "-f", "-", stdin=told()["write"])
    try:
        cluster.ready(lab, "rdma")
        listed = cluster.kubectl(lab, "exec", "rdma", "--", "ls", "/dev/infiniband").split()
        assert "uverbs0" in listed
        notes = cluster.get(lab, "pod/rdma")["metadata"]["annotations"]
        status = json.loads(notes["kube-rdma.io/network-status"])
        assert [ip for one in status for ip in one["ips"] if ip_interface(ip).ip in SUBNET]
    finally:
        cluster.kubectl(lab, "delete", "pod", "rdma", "--grace-period=1")
    cluster.kubectl(lab, "delete", "network-attachment-definitions", "rdma-net-ipam")
    assert (told()["write"], len(told()["notes"])) == ("", 1)


# --- S1: four cards -------------------------------------------------------------------------------


@pytest.fixture
def four_cards(vke):
    """Node-1 as S1's instance: four cards, each for one pod.

    Last, for `vke` stays until the file's end, and a node has one agent of role `node`.
    """
    replay = Replay(vke, NODE)
    pulled = [replay.pull(card) for card in SURPLUS]
    cluster.kubectl(vke, "label", "node", NODE, f"{MODE}=exclusive", "--overwrite")
    try:
        yield vke
    finally:
        cluster.kubectl(vke, "label", "node", NODE, f"{MODE}-")
        for address in pulled:
            replay.plug(address)


def s1_pod(count):
    """The example's pod with so many cards, on the node that has four.

    Without its networks: a constructed card has no GID for their addresses, so the pod would wait.
    """
    pod = yaml.safe_load((scc.examples() / f"s1-vke/pod-{count}.yaml").read_text())
    pod["spec"]["nodeName"] = NODE
    del pod["metadata"]["annotations"]
    return pod


def test_a_node_of_seed_s1_shows_four_and_its_pods_take_one_two_and_four(four_cards):
    lab = four_cards
    cluster.wait_for_resource(lab, VKE, 4, node=NODE)
    status = cluster.get(lab, f"node/{NODE}")["status"]
    assert (status["capacity"][VKE], status["allocatable"][VKE]) == ("4", "4")
    for count in (1, 2, 4):
        pod = s1_pod(count)
        name = pod["metadata"]["name"]
        cluster.apply(lab, pod)
        cluster.ready(lab, name)
        listed = cluster.kubectl(lab, "exec", name, "--", "ls", "/dev/infiniband").split()
        cluster.kubectl(lab, "delete", "pod", name)
        assert len([device for device in listed if device.startswith("uverbs")]) == count
