"""Addresses from a real API server: two nodes share a pool that is just large enough."""

import json
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from uuid import uuid4

import pytest

from kube_rdma_lab import cluster

pytestmark = pytest.mark.core

CRDS = Path(__file__).resolve().parents[3] / "config" / "crds"
SUBNET = "10.99.0.0/27"  # thirty addresses
NETWORK = "lab-test"
POOL = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "IPPool",
    "metadata": {"name": NETWORK},
    "spec": {"network": NETWORK, "ranges": [{"subnet": SUBNET}], "blockSize": 8, "restSeconds": 0},
}


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes: only the API server is asked."""
    return native


@pytest.fixture
def pool(lab):
    """The kinds, which stay, and a pool, which goes with all that was made of it."""
    for path in sorted(CRDS.glob("ip*.yaml")):
        cluster.kubectl(lab, "apply", "-f", "-", stdin=path.read_text())
    names = [f"crd/{kind}.kube-rdma.io" for kind in ("ippools", "ipblocks")]
    cluster.wait(lab, "--for=condition=Established", *names)
    cluster.apply(lab, POOL)
    yield NETWORK
    cluster.kubectl(lab, "delete", "ippool", NETWORK)
    blocks = cluster.kubectl(lab, "get", "ipblocks", "-o", "name").split()
    if ours := [name for name in blocks if f"/{NETWORK}." in name]:
        cluster.kubectl(lab, "delete", *ours)
    cluster.kubectl(lab, "delete", "leases", "-n", "default", "-l", "kube-rdma.io/lease=ipam")


def client(lab, node, journals, *words):
    """A node in a process of its own, with the journal that it had before."""
    command = [
        *("nsenter", f"--target={lab.state.pid}", "--net", "--", sys.executable),
        *("-m", "kube_rdma_tools.address_load", node, *words),
        *("--pool", NETWORK, "--pods", "15", "--journals", str(journals)),
        *("--kubeconfig", f"{lab.home}/pki/admin.kubeconfig"),
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def given(process):
    """Let it begin; what its pods have."""
    process.stdin.write("\n")
    process.stdin.flush()
    document = next((line for line in process.stdout if line.startswith("{")), None)
    assert document, process.stderr.read()
    pods = json.loads(document)["pods"]
    return {pod["container"]: pod["addresses"] for pod in pods}


def finished(process):
    _, told = process.communicate()
    assert process.returncode == 0, told


def test_thirty_pods_share_thirty_addresses(lab, pool, tmp_path):
    """Each has one of its own, keeps it when its node's agent starts anew, and frees it."""
    first, second = f"ip-{uuid4()}", f"ip-{uuid4()}"  # each with a journal of its own
    one, two = (client(lab, node, tmp_path) for node in (first, second))
    found = given(one)
    found |= given(two)
    addresses = [text for texts in found.values() for text in texts]
    assert len(set(addresses)) == 30
    assert all(ip_address(each) in ip_network(SUBNET) for each in addresses)
    finished(one)
    finished(two)
    again = client(lab, first, tmp_path, "--release")
    same = given(again)
    assert same == {pod: texts for pod, texts in found.items() if pod in same}
    finished(again)
    assert len(same) == 15
