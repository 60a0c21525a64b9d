"""Beside a meta-plugin: pods of before stay as they were, and our types work when it calls them.

What calls is meta_plugin/, which keeps to what Multus publishes of its contract. It is installed as
`multus`, for by that name the agent knows who reads the annotations.
"""

import json
import subprocess
from pathlib import Path

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.demo import scc
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network" / "agent.yaml"
NAMESPACE = "mlnx-network-operator"
RESOURCE = "rdma/hca_shared_devices_a"
STATUS = "k8s.v1.cni.cncf.io/network-status"
OWN = "kube-rdma.io/network-status"
FOLDER = "/etc/cni/net.d"
CLUSTER, META = f"{FOLDER}/10-lab.conflist", f"{FOLDER}/00-multus.conf"
KUBECONFIG = "/etc/cni/meta_plugin.kubeconfig"
NODE = "node-1"
POOL = {"type": "kube-rdma-ipam", "pool": "beside"}
NETWORKS = {
    "plain": {
        "type": "macvlan",
        "master": "ens2f0",
        "mtu": 1450,
        "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"},
    },
    "ours": {"type": "kube-rdma", "mtu": 4200, "ipam": POOL},
    "mixed": {"type": "macvlan", "master": "ens2f0", "ipam": POOL},
}
PODS = {"before": "plain", "after": "plain", "holds": "plain", "both": "ours,mixed"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def beside(lab):
    """The lab with the meta-plugin on node-1, a pod by it, and then the agent of seed S3."""
    scc.install_kinds(lab)
    for name, config in NETWORKS.items():
        apply(lab, *network(name, config))
    ranges = {"ranges": [{"subnet": "10.66.0.0/24"}]}
    apply(lab, "kube-rdma.io/v1alpha1", "IPPool", "beside", ranges)
    try:
        install(lab)
        start(lab, "before")
        cluster.label_cards(lab)
        cluster.kubectl(lab, "apply", "-f", str(EXAMPLE))
        cluster.rollout(lab, "rdma-shared-dp-ds", NAMESPACE)
        cluster.wait_for_resource(lab, RESOURCE, "1k")
        yield lab
    finally:
        cluster.kubectl(lab, "delete", "pod", *PODS, "--ignore-not-found")
        on_node(lab, "rm", "-f", META, KUBECONFIG, "/opt/cni/bin/multus", "/opt/cni/bin/macvlan")
        cluster.kubectl(lab, "delete", "-f", str(EXAMPLE), "--ignore-not-found")


def install(lab):
    """Binaries first, the configuration that names them last."""
    with open_store() as store:
        built = go.build_module(store, "meta_plugin", Path(__file__).parent)
        put(lab, "/opt/cni/bin/multus", (built / "meta_plugin").read_bytes())
        put(lab, "/opt/cni/bin/macvlan", (built / "macvlan").read_bytes())
    put(lab, KUBECONFIG, (lab.home / "pki/admin.kubeconfig").read_bytes())
    conf = {
        "cniVersion": "1.0.0",
        "name": "multus-cni-network",
        "type": "multus",
        "clusterNetwork": CLUSTER,
        "kubeconfig": KUBECONFIG,
        "binDir": "/opt/cni/bin",
    }
    put(lab, META, json.dumps(conf).encode())


def put(lab, path, content):
    """Write a file of the node, in one step."""
    script = f"cat > {path}.new && chmod 700 {path}.new && mv {path}.new {path}"
    subprocess.run(lab.on_node(NODE, "sh", "-c", script), input=content, check=True)


def network(name, config):
    spec = {"config": json.dumps({"cniVersion": "1.0.0", **config})}
    return "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name, spec


def apply(lab, version, kind, name, spec):
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.apply(lab, document)


def start(lab, name, shares=0):
    """A pod of PODS on node-1, Ready."""
    limits = {RESOURCE: str(shares)} if shares else {}
    asked = {"k8s.v1.cni.cncf.io/networks": PODS[name]}
    cluster.apply(lab, sleeping_pod(name, limits=limits, annotations=asked, nodeName=NODE))
    cluster.ready(lab, name)


def on_node(lab, *words):
    return cluster.shell(lab, NODE, *words)


def inside(lab, pod, *words):
    return cluster.kubectl(lab, "exec", pod, "--", *words)


def annotations(lab, pod):
    return cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"]


def picture(lab, pod):
    """What a user sees of the pod's networks, without what is another for each pod."""
    links = json.loads(inside(lab, pod, "ip", "-j", "-d", "addr"))
    shown = [
        (
            one["ifname"],
            one["mtu"],
            one.get("linkinfo", {}).get("info_kind"),
            one.get("ifalias"),
            [address["prefixlen"] for address in one["addr_info"]],
        )
        for one in links
    ]
    told = json.loads(annotations(lab, pod)[STATUS])
    names = [(one["name"], one["interface"], len(one["ips"]), sorted(one)) for one in told]
    return shown, names, OWN in annotations(lab, pod)


def test_the_agent_is_not_in_the_chain(beside):
    """The cluster's list is as its owner wrote it, and the agent says how it is called."""
    assert "kube-rdma" not in on_node(beside, "cat", CLUSTER)
    names = cluster.kubectl(
        beside, "get", "pod", "-n", NAMESPACE, f"--field-selector=spec.nodeName={NODE}", "-o=name"
    )
    said = cluster.kubectl(beside, "logs", "-n", NAMESPACE, names.split()[0])
    assert "wiring=delegate default=00-multus.conf" in said


def test_a_pod_after_us_is_as_one_before_us(beside):
    """Same interfaces, same status, nothing of ours; also where it holds a share."""
    start(beside, "after")
    start(beside, "holds", shares=1)
    expected = picture(beside, "before")
    assert expected == picture(beside, "after") == picture(beside, "holds")
    assert "uverbs" in inside(beside, "holds", "ls", "/dev/infiniband")


def test_our_types_serve_who_calls_them(beside):
    """An interface with RDMA by type kube-rdma, and addresses for the reference macvlan."""
    start(beside, "both", shares=1)
    told = {one["interface"]: one for one in json.loads(annotations(beside, "both")[STATUS])}
    assert [one["name"] for one in told.values()] == ["lab", "default/ours", "default/mixed"]
    shown = {one["ifname"]: one for one in json.loads(inside(beside, "both", "ip", "-j", "addr"))}
    for name in ("net1", "net2"):
        (address,) = [e["local"] for e in shown[name]["addr_info"] if e["family"] == "inet"]
        assert address.startswith("10.66.0.")
        assert told[name]["ips"] == [address]
        assert told[name]["mac"] == shown[name]["address"]
    (own,) = json.loads(annotations(beside, "both")[OWN])
    assert (own["name"], own["interface"], own["mtu"]) == ("default/ours", "net1", 4200)
    assert own["rdmaDevice"] in inside(beside, "both", "ls", "/sys/class/infiniband").split()
    nodes = inside(beside, "both", "ls", "/dev/infiniband").split()
    assert len([node for node in nodes if node.startswith("uverbs")]) == 1


def test_a_pod_that_ends_leaves_nothing(beside):
    """DEL comes for each interface by itself."""
    cluster.kubectl(beside, "delete", "pod", "both", "--ignore-not-found")
    assert on_node(beside, "ls", "/var/lib/kube-rdma/delegated").split() == []
    assert "rxe-" not in on_node(beside, "rdma", "link")


def test_when_the_meta_plugin_goes_we_are_chained(beside):
    """Without a restart, and out again when it comes back."""
    on_node(beside, "rm", META)
    cluster.until_on_node(beside, NODE, f"grep -q kube-rdma {CLUSTER}")
    install(beside)
    cluster.until_on_node(beside, NODE, f"! grep -q kube-rdma {CLUSTER}")
