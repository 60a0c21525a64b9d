"""Seed S3's network on the lab: macvlan by annotation, addresses from IPAM, verbs from pod to pod.

The GID in perftest's output is looked at: with a neighbour's a test "works" too. Then what else
this agent does for networks: plugins of others, and a pod that started while nobody called us.
"""

import json
import re
from itertools import permutations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.verify.rules.copies import LABEL
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import in_pod, measure
from tests.documents.on_lab import followed
from tests.documents.shell import Shell
from tests.kit import manifests
from tests.kit.nccl_xml import read
from tests.kit.pods import IMAGE, sleeping_pod

PODS = ("rdma-test-pod-1", "rdma-test-pod-2")
STATUS = "k8s.v1.cni.cncf.io/network-status"
OWN = "kube-rdma.io/network-status"
# Each pod names its own device and GID: left to itself, perftest takes the node's and "works" too.
SCRIPT = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -F --report_gbits -q 1 "$@"'
WRITE_TEST = ("sh", "-c", SCRIPT, "perftest", "-n", "500")
# By RDMA_CM the address of net1 says which device and GID are meant, as in the seed's transcript.
CM_TEST = ("ib_write_bw", "-R", "-F", "--report_gbits", "-q", "1", "-n", "500", "-u", "18")

TOPOLOGY = "/etc/kube-rdma/nccl-topology.xml"
# The card's PCI function; the driver may have a device of its own below that.
CARD = "readlink -f /sys/class/net/ens2f0/device | grep -oE '[0-9a-f:]{10}\\.[0-7]' | tail -n 1"
# Of other tests than the seed's: the network's name is the pod's too.
LIMITED = {"locking": "rdma/hca_shared_devices_a", "plain": None}
NETWORKS = {
    # Nothing of ours: two binaries of the node's CNI folder make it.
    "bridged": {
        "cniVersion": "1.0.0",
        "name": "bridged",
        "type": "bridge",
        "bridge": "bridged0",
        "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"},
    }
}


@pytest.fixture(scope="module")
def page(lab):
    """The example's page, followed as far as its pods; each call goes on by a block."""
    # Without the same by a policy, which test_documents follows.
    with followed(lab, "examples/s3-network/README.md", part=slice(-1), later=2) as measured:
        yield measured


@pytest.fixture(scope="module")
def networks(lab, page):
    """The lab as the example's page makes it: its network, and its two pods on two nodes."""
    return lab


def remove(lab, *pods):
    """Delete pods; the seed's own do not listen when they are asked to end."""
    cluster.kubectl(lab, "delete", "pod", *pods, "--ignore-not-found", "--grace-period=1")


def node_of(lab, pod):
    return cluster.get(lab, f"pod/{pod}")["spec"]["nodeName"]


def inside(lab, pod, *words):
    return cluster.kubectl(lab, "exec", pod, "--", *words)


def annotation(lab, pod, name):
    return json.loads(cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"][name])


def address(lab, pod):
    """The pod's address on net1, as its own namespace shows it."""
    shown = inside(lab, pod, "ip", "-4", "-o", "addr", "show", "dev", "net1")
    return re.search(r"inet (192\.168\.111\.\d+)/24", shown)[1]


@pytest.mark.core
def test_net1_is_as_the_document_says(networks):
    found = set()
    for pod in PODS:
        assert "mtu 9000" in inside(networks, pod, "ip", "link", "show", "dev", "net1")
        found.add(address(networks, pod))
    assert len(found) == 2


@pytest.mark.core
def test_the_status_tells_the_interface_and_its_rdma_device(networks):
    for pod in PODS:
        (mine,) = [e for e in annotation(networks, pod, STATUS) if e["interface"] == "net1"]
        assert mine["ips"] == [address(networks, pod)]
        (own,) = annotation(networks, pod, OWN)
        devices = inside(networks, pod, "ls", "/sys/class/infiniband").split()
        assert own["rdmaDevice"] in devices
        assert "gidIndex" in own


@pytest.mark.core
def test_the_container_has_the_device_of_its_own_interface_alone(networks):
    for pod in PODS:
        nodes = inside(networks, pod, "ls", "/dev/infiniband").split()
        assert len([node for node in nodes if node.startswith("uverbs")]) == 1
        assert "rdma_cm" in nodes


def settings(lab, pod):
    """What NCCL and UCX are to be told of a pod's device, by file."""
    (own,) = annotation(lab, pod, OWN)
    device, gid = f"{own['rdmaDevice']}:1", own["gidIndex"]
    return {
        "/etc/nccl.conf": [f"NCCL_IB_HCA=={device}", f"NCCL_IB_GID_INDEX={gid}"],
        "/etc/ucx/ucx.conf": [
            f"UCX_NET_DEVICES={device}",
            f"UCX_IB_GID_INDEX={gid}",
            "UCX_UD_VERBS_ETH_DGID_CHECK=n",
        ],
    }


def lines(lab, pod, file):
    return [line for line in inside(lab, pod, "cat", file).splitlines() if not line.startswith("#")]


@pytest.mark.core
def test_programs_are_told_of_the_pod_s_own_device(networks):
    """NCCL and UCX find it in their files, whatever the image is."""
    for pod in PODS:
        for file, wanted in settings(networks, pod).items():
            assert lines(networks, pod, file) == wanted
        script = '. nccl_env.sh && echo "$NCCL_IB_HCA $NCCL_IB_GID_INDEX"'
        (own,) = annotation(networks, pod, OWN)
        found = inside(networks, pod, "sh", "-c", script).split()
        assert found == [f"={own['rdmaDevice']}:1", str(own["gidIndex"])]


@pytest.mark.core
def test_the_pods_reach_each_other_by_ping_and_by_verbs(networks):
    inside(networks, PODS[1], "ping", "-c", "3", address(networks, PODS[0]))
    writes(networks, WRITE_TEST)


def writes(lab, words):
    """Write from pod to pod; perftest names the addresses of both."""
    outcome = measure(lab, *(endpoint(lab, pod) for pod in PODS), words)
    assert outcome.addresses == {address(lab, pod) for pod in PODS}


def test_the_page_measures_between_its_pods(page):
    """By `kube-rdma verify`."""
    page()


@pytest.mark.slow  # it starts pods on both nodes
def test_the_page_measures_between_the_nodes(page):
    """By an object; the pods are measured before."""
    page()


@pytest.mark.slow  # it starts pods on both nodes, as those beside it do
def test_nodes_are_measured_by_pods_made_from_their_reports(networks, tmp_path):
    """Without a manifest, host to host: of two nodes a ring has one pair on each rail."""
    words = ("--pairs", "ring", "--image", IMAGE, "--iterations", "100", "--tolerance", "100")
    with Shell({"KUBECONFIG": str(networks.kubeconfig)}, networks.state.binaries) as shell:
        shell.check(f"kube-rdma verify nodes {' '.join(words)} -o json > {tmp_path}/proof.json")
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert {(p["client"], p["server"]) for p in proof["pairs"]} == {("node-1", "node-2")}
    assert len({pair["rail"] for pair in proof["pairs"]}) == len(proof["pairs"]) >= 1
    assert (proof["pairing"], proof["leftOut"]) == ("ring", [])
    left = cluster.get(networks, "pods", "-l", LABEL)["items"]
    assert all("deletionTimestamp" in pod["metadata"] for pod in left)


@pytest.mark.slow  # the page's BandwidthCheck makes the same copies
def test_a_copy_of_the_pod_proves_each_node(networks, tmp_path):
    """What `kube-rdma verify nodes` finds, and that it leaves nothing; both nodes, both ways."""
    manifest = scc.examples() / "s3-network" / "rdma-test-pod1.yml"
    words = ("-f", str(manifest), "--both-ways", "--iterations", "100", "--tolerance", "100")
    with Shell({"KUBECONFIG": str(networks.kubeconfig)}, networks.state.binaries) as shell:
        shell.check(f"kube-rdma verify nodes {' '.join(words)} -o json > {tmp_path}/proof.json")
    proof = json.loads((tmp_path / "proof.json").read_text())
    nodes = {"node-1", "node-2"}
    assert {(pair["client"], pair["server"]) for pair in proof["pairs"]} == set(permutations(nodes))
    assert all(pair["rows"][0]["iterations"] == 100 for pair in proof["pairs"])
    assert not proof["leftOut"]
    left = cluster.get(networks, "pods", "-l", LABEL)["items"]
    assert all("deletionTimestamp" in pod["metadata"] for pod in left)


@pytest.mark.slow  # for it asks until it gives up
@pytest.mark.xfail(
    raises=Unavailable,
    strict=True,
    reason="RDMA_CM takes the card's own Soft-RoCE device (tests/vm/guest/test_rdma_cm.py)",
)
def test_the_pods_connect_by_rdma_cm_over_net1(networks):
    """As the seed's first transcript has it; over the cluster's network the same words fail."""
    server, client = (endpoint(networks, pod) for pod in PODS)
    outcome = measure(networks, server, client, CM_TEST)
    assert outcome.iterations == 500
    assert outcome.addresses == {address(networks, pod) for pod in PODS}


def endpoint(lab, pod):
    """A pod as a place to run perftest in, on its own device and GID."""
    (own,) = annotation(lab, pod, OWN)
    words = ("env", f"DEVICE={own['rdmaDevice']}", f"GID={own['gidIndex']}")
    return in_pod(lab, pod, address(lab, pod), *words)


def test_the_pool_says_how_full_it_is(networks):
    """The network's document brought the pool along; the controller keeps its status."""
    cluster.wait(networks, "ippool", "--all", "--for=condition=Ready")
    (pool,) = cluster.get(networks, "ippools")["items"]
    (usage,) = pool["status"]["usage"]
    assert usage["held"] >= len(PODS)
    assert usage["nodes"] == len(PODS)


@pytest.mark.core
def test_a_deleted_pod_gives_everything_back(networks):
    node = node_of(networks, PODS[0])
    remove(networks, PODS[0])
    assert not re.search(r"rxe-", cluster.shell(networks, node, "rdma", "link"))
    assert cluster.shell(networks, node, "ls", "/var/lib/kube-rdma/attachments").split() == []


def put(lab, document):
    """Apply an object."""
    path = lab.home / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    cluster.kubectl(lab, "apply", "-f", str(path))


def definition(name):
    return manifests.network(name, NETWORKS[name])


def plain_pod(name, node):
    """A pod with the network of its name and without a share."""
    asked = {"k8s.v1.cni.cncf.io/networks": name}
    return sleeping_pod(name, annotations=asked, nodeName=node, restartPolicy="Never")


@pytest.fixture(scope="module")
def node(networks):
    """The node that had the first pod, with the networks of the tests that follow."""
    for name in NETWORKS:
        put(networks, definition(name))
    (free,) = {each.name for each in networks.topology.nodes} - {node_of(networks, PODS[1])}
    yield free
    for name in NETWORKS:
        cluster.kubectl(networks, "delete", "pod", name, "--ignore-not-found")
        cluster.kubectl(networks, "delete", "net-attach-def", name)


def test_a_network_of_other_plugins_is_made_by_them(networks, node):
    """bridge and host-local, in the host's tree; what they gave is theirs again afterwards."""
    put(networks, plain_pod("bridged", node))
    cluster.ready(networks, "bridged")
    shown = inside(networks, "bridged", "ip", "-4", "-o", "addr", "show", "dev", "net1")
    (given,) = re.findall(r"inet (10\.77\.0\.\d+)/24", shown)
    status = annotation(networks, "bridged", STATUS)
    assert [one["ips"] for one in status if one["interface"] == "net1"] == [[given]]
    cluster.kubectl(networks, "delete", "pod", "bridged")
    assert given not in cluster.shell(networks, node, "ls /var/lib/cni/networks/bridged")


def configured_pod(name, node, **annotations):
    """A pod with a file of its own for NCCL, which may write nothing."""
    made = limited_pod(name, node, LIMITED["locking"])
    made["metadata"]["annotations"] |= annotations
    (container,) = made["spec"]["containers"]
    container["securityContext"]["readOnlyRootFilesystem"] = True
    container["volumeMounts"] = [
        {"name": "own", "mountPath": "/etc/nccl.conf", "subPath": "nccl.conf"}
    ]
    made["spec"]["volumes"] = [{"name": "own", "configMap": {"name": "own"}}]
    return made


def test_a_pod_s_own_settings_count(networks, node):
    """NCCL takes the first value that it finds; who asks for none gets none, or for more, more."""
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}}
    put(networks, mine | {"data": {"nccl.conf": "NCCL_IB_HCA=^mlx5_3\nNCCL_DEBUG=INFO"}})
    put(networks, configured_pod("merged", node, **{"kube-rdma.io/settings": "topology"}))
    put(networks, configured_pod("untold", node, **{"kube-rdma.io/settings": "none"}))
    cluster.ready(networks, "merged", "untold")
    try:
        own = ["NCCL_IB_HCA=^mlx5_3", "NCCL_DEBUG=INFO"]
        wanted = settings(networks, "merged")
        wanted["/etc/nccl.conf"].append(f"NCCL_TOPO_FILE={TOPOLOGY}")
        assert lines(networks, "merged", "/etc/nccl.conf") == own + wanted["/etc/nccl.conf"]
        (net,) = read(inside(networks, "merged", "cat", TOPOLOGY)).all("net")
        (given,) = annotation(networks, "merged", OWN)
        assert net.attributes["name"] == given["rdmaDevice"]
        assert net.way()[-1] == cluster.shell(networks, node, CARD).strip()
        assert lines(networks, "merged", "/etc/ucx/ucx.conf") == wanted["/etc/ucx/ucx.conf"]
        assert lines(networks, "untold", "/etc/nccl.conf") == own
        assert "ucx" not in inside(networks, "untold", "ls", "/etc").split()
    finally:
        cluster.kubectl(networks, "delete", "pod", "merged", "untold")
    assert not cluster.shell(networks, node, "ls /run/kube-rdma/settings 2>/dev/null || true")


def limited_pod(name, node, resource):
    """A pod of a common user without rights, which notes what its first process may lock."""
    shares = {resource: 1} if resource else {}
    asked = {"k8s.v1.cni.cncf.io/networks": "rdma-net-ipam"} if resource else {}
    made = sleeping_pod(name, limits=shares, annotations=asked, nodeName=node)
    (container,) = made["spec"]["containers"]
    shell, option, script = container["command"]
    container["command"] = [shell, option, f"ulimit -l > /dev/shm/limit; {script}"]
    container["securityContext"] = {"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}
    return made


def test_who_holds_a_share_may_lock_memory(networks, node):
    """Its first process, what `kubectl exec` starts, and verbs with 16 MiB; no other pod may."""
    for name, resource in LIMITED.items():
        put(networks, limited_pod(name, node, resource))
    cluster.ready(networks, *LIMITED)
    try:
        for name, resource in LIMITED.items():
            shown = inside(networks, name, "sh", "-c", "cat /dev/shm/limit; ulimit -l").split()
            assert (shown == ["unlimited"] * 2) == bool(resource), shown
        place = endpoint(networks, "locking")
        words = ("sh", "-c", SCRIPT, "perftest", "-s", str(16 << 20), "-n", "5", "-u", "18")
        assert measure(networks, place, place, words).iterations == 5
    finally:
        cluster.kubectl(networks, "delete", "pod", *LIMITED)
