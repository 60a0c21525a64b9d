"""An agent is upgraded under running pods and rolled back again: nothing of theirs is lost.

Each agent starts a pod with a macvlan link, a virtual function with a VLAN, addresses from pools
and a late-bound card; the other agent finds it, restarts its container and takes it all back. The
older agent is the whole image of the last commit before capabilities became packages.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab import lab as labs
from kube_rdma_lab.build.product import REFERENCE
from kube_rdma_lab.demo import scc
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.waiting import until
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
NAME = "upgrade"
NODE = "node-2"

COMMIT = "0a856081934ce2500e1d227fe8fb3a24093bdba4"
OLDER = "localhost/kube-rdma:older"  # the nodes have both images

DAEMONSET = "rdma-shared-dp-ds"
SHARED, FUNCTIONS = "rdma/hca_shared_devices_a", "intel.com/vf"
SHARES = 16  # of the one card
CARD = "ens4f0"
COUNT = 3  # of virtual functions; the lab makes four at boot
STATE = "/var/lib/kube-rdma"
POLICY = manifests.node_policy(
    "upgrade",
    {"resource": SHARED, "mode": "shared-multi", "selectors": [{"interfaces": ["ens2f0"]}]},
    {
        "resource": FUNCTIONS,
        "mode": "sriov",
        "attach": "auto",
        "selectors": [{"physicalFunctions": [f"{CARD}#0-7"]}],
    },
    virtualFunctions=[{"selectors": [{"interfaces": [CARD]}], "count": COUNT, "force": True}],
)
NETWORKS = {
    "plain": (SHARED, {"type": "macvlan", "master": "ens2f0"}, "192.168.111.0/24"),
    "tagged": (FUNCTIONS, {"type": "sriov", "vlan": 66, "trust": "on"}, "192.168.66.0/24"),
}


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """The tree of the older commit and its image, an archive."""
    folder = tmp_path_factory.mktemp("older")
    words = ("git", "-C", ROOT, "archive", COMMIT)
    packed = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(("tar", "-x", "-C", tree), check=True, input=packed)
    image = folder / "older.tar"
    subprocess.run(
        (sys.executable, "-m", "kube_rdma_lab.build", "image", "--reference", OLDER, image),
        check=True,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
    )
    return tree, image


@pytest.fixture(scope="module")
def upgraded(machine, older):
    """A lab that knows both images, with the older agent as its own example installs it.

    Gives the lab and the objects of each image: with an image its manifest changes, too.
    """
    tree, image = older
    labs.down(NAME)
    with Printer() as report:
        lab = labs.up(NAME, "two-nodes", None, report, images=[image])
    try:
        scc.install_kinds(lab)
        manifests_of = {OLDER: agent(tree, OLDER), REFERENCE: agent(ROOT, REFERENCE)}
        cluster.apply(lab, *(definition(name) for name in NETWORKS))
        roll(lab, manifests_of[OLDER])
        yield lab, manifests_of
    finally:
        labs.down(NAME)


def agent(tree, image):
    """The agent of a tree's examples/s3-network with two pools and virtual functions to make."""
    documents = list(yaml.safe_load_all((tree / "examples/s3-network/agent.yaml").read_text()))
    by_kind = {document["kind"]: document for document in documents}
    by_kind["ConfigMap"]["data"] = {"config.json": json.dumps(POLICY)}
    spec = by_kind["DaemonSet"]["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    (container,) = spec["containers"]
    container["image"] = image
    container["volumeMounts"].append({"name": "sys", "mountPath": "/sys"})
    # Nodes with AppArmor needed it then, too: containerd's profile denies a lock in /sys.
    container["securityContext"]["appArmorProfile"] = {"type": "Unconfined"}
    spec["volumes"].append({"name": "sys", "hostPath": {"path": "/sys"}})
    return documents


def definition(name):
    resource, settings, addresses = NETWORKS[name]
    ipam = {"type": "whereabouts", "range": addresses}
    return manifests.network(
        name, {"cniVersion": "1.0.0", "ipam": ipam, **settings}, resource=resource
    )


def start(lab, name):
    """A pod with both networks, Ready."""
    pod = sleeping_pod(
        name,
        limits={SHARED: 1, FUNCTIONS: 1},
        annotations={"k8s.v1.cni.cncf.io/networks": ",".join(NETWORKS)},
        nodeName=NODE,
        terminationGracePeriodSeconds=1,
    )
    cluster.apply(lab, pod)
    cluster.ready(lab, name)


def end(lab, records, *pods):
    """Delete pods; wait until no records but these are left, of promises a while later."""
    cluster.kubectl(lab, "delete", "pod", *pods)
    until(lab, f"the end of what {pods} had", lambda: recorded(lab) == records)


def serving(lab, namespace):
    """Wait until the agent of now has offered the node's cards."""
    cluster.rollout(lab, DAEMONSET, namespace)
    cluster.wait_for_resource(lab, SHARED, SHARES, node=NODE)
    cluster.wait_for_resource(lab, FUNCTIONS, COUNT, node=NODE)


def roll(lab, documents):
    """Apply the objects of an agent, and wait until it offers the node's cards."""
    # As people do, so that a field that a manifest no longer has goes.
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    cluster.kubectl(lab, "apply", "-f", "-", stdin=text)
    serving(lab, documents[-1]["metadata"]["namespace"])


def facts(lab, pod):
    """What a pod has: the addresses of each interface, its device nodes, its annotations."""
    shown = json.loads(cluster.kubectl(lab, "exec", pod, "--", "ip", "-j", "address"))
    links = {
        link["ifname"]: (link["address"], link["mtu"], sorted(addresses(link)))
        for link in shown
        if link["ifname"] != "lo"
    }
    nodes = cluster.kubectl(lab, "exec", pod, "--", "ls", "/dev/infiniband").split()
    return links, sorted(nodes), cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"]


def addresses(link):
    return [one["local"] for one in link["addr_info"] if one["scope"] == "global"]


def recorded(lab):
    """The records on the node's disk that say what pods have."""
    folders = "attachments delegated addresses bindings functions"
    script = f"cd {STATE} && find {folders} -type f | sort"
    return cluster.shell(lab, NODE, script).split()


def node(lab):
    """The node's own links, and what its card says of its functions."""
    shown = json.loads(cluster.shell(lab, NODE, "ip", "-j", "address"))
    names = {link["ifname"]: (link["address"], sorted(addresses(link))) for link in shown}
    cards = {name: names[name] for name in names if name.startswith("ens")}
    card = cluster.shell(lab, NODE, "ip", "link", "show", CARD)
    return cards, re.findall(r"vf \d+ .*", card)


def restart(lab, pod):
    """End the container's first process; its successor holds what it held."""
    cluster.kubectl(lab, "exec", pod, "--", "sh", "-c", "(sleep 1; kill 1) >/dev/null 2>&1 &")
    again = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    cluster.wait(lab, f"pod/{pod}", f"--for={again}")
    cluster.ready(lab, pod)


def test_an_upgrade_and_a_roll_back_keep_what_pods_have(upgraded):
    lab, manifests_of = upgraded
    untouched, empty = node(lab), recorded(lab)
    start(lab, "of-the-older")
    first, records = facts(lab, "of-the-older"), recorded(lab)
    assert {"net1", "net2"} <= set(first[0])
    assert len(records) > len(empty)

    roll(lab, manifests_of[REFERENCE])
    assert facts(lab, "of-the-older") == first
    assert recorded(lab) == records
    restart(lab, "of-the-older")
    assert facts(lab, "of-the-older") == first
    start(lab, "of-the-newer")
    second, records = facts(lab, "of-the-newer"), recorded(lab)
    assert not set(addresses_of(first)) & set(addresses_of(second))
    start(lab, "short-lived")
    end(lab, records, "short-lived")

    roll(lab, manifests_of[OLDER])
    assert facts(lab, "of-the-older") == first
    assert facts(lab, "of-the-newer") == second
    assert recorded(lab) == records
    restart(lab, "of-the-newer")
    assert facts(lab, "of-the-newer") == second

    roll(lab, manifests_of[REFERENCE])
    end(lab, empty, "of-the-older", "of-the-newer")
    assert node(lab) == untouched


def addresses_of(pod):
    """The addresses that a pod has from the pools of this test."""
    links, _, _ = pod
    return [address for name in ("net1", "net2") for address in links[name][2]]
