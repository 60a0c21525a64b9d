"""A network of type sriov on the lab's igb card: set up for the pod, and set back when it ends.

The card's functions come with an administrative MAC each, as operators set them, and igb takes no
other from a function then.
"""

import json
import re

import pytest
import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # the kernel's part runs in the bare VM every time
NODE = "node-2"
CARD = "ens4f0"
RESOURCE = "intel.com/vf"
AGENT = scc.examples() / "s3-network" / "agent.yaml"
CONFIG = {"resourceList": [{"resourceName": "vf", "selectors": {"pfNames": [f"{CARD}#0-3"]}}]}
MAC = "02:00:00:00:66:01"
IPAM = {"type": "static", "addresses": [{"address": "192.168.66.7/24"}]}
SETTINGS = {"vlan": 66, "vlanQoS": 3, "spoofchk": "off", "trust": "on"}
NETWORK = {"cniVersion": "1.0.0", "type": "sriov", "ipam": IPAM, **SETTINGS}


def agent():
    """The agent of seed S3 with a pool of virtual functions."""
    documents = list(yaml.safe_load_all(AGENT.read_text()))
    (conf,) = (one for one in documents if one["kind"] == "ConfigMap")
    conf["data"] = {"config.json": json.dumps(CONFIG)}
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def definition(name, config):
    return manifests.network(name, config, resource=RESOURCE)


def pod(name, **ask):
    """A pod with a function and the network on it; `ask` for more than its name."""
    return sleeping_pod(
        name,
        limits={RESOURCE: 1},
        annotations={"k8s.v1.cni.cncf.io/networks": json.dumps([{"name": "tagged", **ask}])},
        restartPolicy="Never",
        nodeName=NODE,
    )


@pytest.fixture(scope="module")
def networks(lab, proof, tmp_path_factory):
    """The lab with the agent and a network of its card's functions."""
    folder = tmp_path_factory.mktemp("sriov")
    (folder / "agent.json").write_text(json.dumps(agent()))
    (folder / "network.json").write_text(json.dumps(definition("tagged", NETWORK)))
    scc.install_kinds(lab)
    cluster.label_cards(lab)
    try:
        for name in ("agent", "network"):
            cluster.kubectl(lab, "apply", "-f", f"{folder}/{name}.json")
        cluster.wait_for_resource(lab, RESOURCE, 4, node=NODE)
        yield lab
    finally:
        for name in ("network", "agent"):
            words = ("delete", "-f", f"{folder}/{name}.json", "--ignore-not-found")
            cluster.kubectl(lab, *words)


def functions(lab):
    """What the card tells of its virtual functions, and their interfaces on the node by MAC."""
    told = on_node(lab, "ip", "link", "show", CARD)
    lines = [line.strip() for line in told.splitlines() if line.strip().startswith("vf ")]
    shown = on_node(lab, "ip", "-o", "link", "show")
    links = re.findall(r"^\d+: (\S+): .*link/ether (\S+)", shown, re.MULTILINE)
    return lines, {name: mac for name, mac in links if name.startswith(CARD)}


def on_node(lab, *words):
    return cluster.shell(lab, NODE, *words)


@pytest.mark.parametrize("mac", [None, MAC], ids=["its own MAC", "a MAC of the pod's"])
def test_a_function_is_set_up_for_a_pod_and_set_back(networks, tmp_path, mac):
    """Twice with each, for the second pod gets what the first one left."""
    before = functions(networks)
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod("has-vf", **({"mac": mac} if mac else {}))))
    for _ in range(2):
        cluster.kubectl(networks, "apply", "-f", str(path))
        try:
            cluster.ready(networks, "has-vf")
            inside = cluster.kubectl(networks, "exec", "has-vf", "--", "ip", "addr", "show", "net1")
            assert "192.168.66.7/24" in inside
            assert mac is None or mac in inside
            (line,) = [line for line in functions(networks)[0] if "vlan 66, qos 3" in line]
            for words in ("spoof checking off", "trust on", mac or ""):
                assert words in line
        finally:
            words = ("delete", "pod", "has-vf", "--ignore-not-found", "--wait=true")
            cluster.kubectl(networks, *words)
        assert functions(networks) == before
