"""Faults that only a real kernel has, made one by one: the doctor has the right cause at the top.

Modules that go, interfaces of RoCE and GID tables; tests/lab/native has all the others. The node is
shared with other files, so each fault puts back what it took.
"""

import json
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.kit import doctor
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network"
NAMESPACE, DAEMON_SET = "mlnx-network-operator", "rdma-shared-dp-ds"
RESOURCE, NETWORK, NODE = "rdma/hca_shared_devices_a", "rdma-net-ipam", "node-1"
NETWORKS, OWN = "k8s.v1.cni.cncf.io/networks", "kube-rdma.io/network-status"
LINKS = (("rxe0", "ens2f0"), ("rxe1", "ens3f0"))
MODULES = "rdma_ucm ib_umad ib_uverbs"


@pytest.fixture(scope="module")
def faulty(lab):
    """The lab with seed S3's agent and network, and a doctor on node-1."""
    scc.install_kinds(lab)
    cluster.label_cards(lab)
    files = [f"-f={EXAMPLE}/{name}.yaml" for name in ("agent", "controller", NETWORK_FILE)]
    cluster.kubectl(lab, "apply", *files)
    cluster.rollout(lab, DAEMON_SET, NAMESPACE)
    cluster.wait_for_resource(lab, RESOURCE, "1k", node=NODE)
    doctor.call(lab, NODE)
    yield lab
    doctor.dismiss(lab)
    cluster.kubectl(lab, "delete", "--cascade=foreground", "--ignore-not-found", *files)


NETWORK_FILE = "rdma-net-ipam"


def on_node(lab, *words):
    return cluster.shell(lab, NODE, *words)


@contextmanager
def undone(lab, script, undo):
    """A script of the node's shell, and the one that takes it back."""
    try:
        on_node(lab, script)
        yield "node"
    finally:
        on_node(lab, undo)
        cluster.wait_for_resource(lab, RESOURCE, "1k", node=NODE)


def driver_unloaded(lab):
    """The module of all RDMA devices of this node, and so the devices."""
    links = "; ".join(f"rdma link add {name} type rxe netdev {netdev}" for name, netdev in LINKS)
    return undone(lab, "modprobe -r rdma_rxe", f"modprobe rdma_rxe; {links}")


def modules_unloaded(lab):
    """The modules that let programs reach a device; the devices stay."""
    return undone(lab, f"modprobe -r {MODULES}", f"modprobe -a {MODULES}")


def set_down(lab):
    """The interface of the pool's card; that of another card is nobody's fault."""
    return undone(lab, "ip link set ens2f0 down", "ip link set ens2f0 up")


def pod(lab, name, **more):
    """A Ready pod with a share and an interface on the card."""
    document = sleeping_pod(
        name, limits={RESOURCE: 1}, annotations={NETWORKS: NETWORK}, nodeName=NODE
    )
    document["spec"]["containers"][0].update(more)
    cluster.apply(lab, document)
    cluster.ready(lab, name)


@contextmanager
def stale_index(lab):
    """A pod with a constant: the GID index of a machine whose table has an entry more."""
    try:
        pod(lab, "of-before")
        (own,) = json.loads(cluster.get(lab, "pod/of-before")["metadata"]["annotations"][OWN])
        word = {"name": "NCCL_IB_GID_INDEX", "value": str(own["gidIndex"] + 1)}
        pod(lab, "of-now", env=[word])
        yield "pod/default/of-now"
    finally:
        names = ("of-before", "of-now")
        cluster.kubectl(lab, "delete", "pod", *names, "--ignore-not-found", "--grace-period=1")


class KernelFault(NamedTuple):
    """What is made, the code that has to stand first, and a word that is in what it is about."""

    make: object
    code: str
    about: str = ""


FAULTS = {
    "driver unloaded": KernelFault(driver_unloaded, "KR103"),
    "uverbs unloaded": KernelFault(modules_unloaded, "KR104", "rxe0"),
    "interface down": KernelFault(set_down, "KR120", "rxe0"),
    "stale GID index": KernelFault(stale_index, "KR420", "main"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_right_cause_stands_first(faulty, name):
    make, code, about = FAULTS[name]
    with make(faulty) as target:
        every = doctor.findings(faulty, target)
    first = every[0]
    print([(each["code"], each["about"], each["evidence"], each["follows"]) for each in every])
    assert (first["code"], first["follows"]) == (code, None)
    assert about in first["about"]
    waiting.until(faulty, "a doctor without that", lambda: code not in doctor.codes(faulty))


def by_agent(lab, target):
    """What the doctor finds in the container of the node's agent, as one asked from elsewhere."""
    (agent,) = [
        one["metadata"]["name"]
        for one in cluster.get(lab, "-n", NAMESPACE, "pods")["items"]
        if one["metadata"]["name"].startswith(DAEMON_SET) and one["spec"]["nodeName"] == NODE
    ]
    script = f"kube-rdma doctor {target} --json || [ $? = 1 ]"
    words = ("exec", "-n", NAMESPACE, agent, "--", "sh", "-c", script)
    return json.loads(cluster.kubectl(lab, *words))["findings"]


@pytest.mark.slow
def test_a_stale_gid_index_is_found_through_the_agent(faulty):
    """It may not read the variables of another's process; the runtime tells them."""
    with stale_index(faulty) as target:
        first, *_ = by_agent(faulty, target)
    assert (first["code"], first["about"]) == ("KR420", "main")
