"""Prefill and decode of an inference server: the manifest of the pods' page moves data by RDMA.

No machine of the lab has GPUs or eight rails. So image and program are others, the network is that
of seed S3, and a pod holds one share: what else examples/gpu-rails/inference.yaml says stays. As
NIXL does over UCX, the decode pod reads the memory of the prefill pod, found by its Service.
"""

import json
import re

import pytest
import yaml

from kube_rdma_lab import cluster, waiting
from tests.documents.on_lab import followed
from tests.house.tree import ROOT
from tests.kit.pods import IMAGE, UNTIL_ASKED

pytestmark = pytest.mark.slow  # pods of two emulated machines, and UCX between them

MANIFEST = ROOT / "examples/gpu-rails/inference.yaml"
RESOURCE, NETWORK = "rdma/hca_shared_devices_a", "rdma-net-ipam"
NETWORKS, OWN = "k8s.v1.cni.cncf.io/networks", "kube-rdma.io/network-status"
NODES = {"prefill": "node-1", "decode": "node-2"}
PORT, BYTES, ROUNDS = 13337, 1 << 20, 100
# As UCX names a lane that it uses: `rma(rc_verbs/rxe0:1)`.
TRANSPORT = re.compile(r"\b((?:rc|dc|ud)_\w+)/([^:\s)]+):\d+")


def swapped(document):
    """A document of the manifest, with what the lab does not have."""
    if document["kind"] != "Deployment":
        return document
    template = document["spec"]["template"]
    template["metadata"]["annotations"][NETWORKS] = NETWORK
    template["spec"] |= {
        "nodeName": NODES[document["metadata"]["name"]],
        "terminationGracePeriodSeconds": 1,
    }
    (container,) = template["spec"]["containers"]
    container |= {
        "image": IMAGE,
        "command": list(UNTIL_ASKED),
        "args": [],
        "resources": {"limits": {RESOURCE: 1}},
    }
    return document


@pytest.fixture(scope="module")
def served(lab):
    """The pods of both roles, by role."""
    documents = [*map(swapped, yaml.safe_load_all(MANIFEST.read_text()))]
    with followed(lab, "examples/s3-network/README.md", part=slice(-1)):
        cluster.apply(lab, *documents)
        try:
            pods = {}
            for role in NODES:
                cluster.wait(lab, f"deployment/{role}", "--for=condition=Available")
                chosen = ("pods", "-l", f"app=inference,role={role}")
                (pods[role],) = cluster.get(lab, *chosen)["items"]
            yield lab, pods
        finally:
            names = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in documents]
            cluster.kubectl(lab, "delete", *names, "--cascade=foreground", "--wait")


def read_memory(lab, pods, variables=""):
    """What ucx_perftest of the decode pod logs while it reads memory of the prefill pod."""
    names = {role: pod["metadata"]["name"] for role, pod in pods.items()}
    listen = f"{variables} ucx_perftest -p {PORT} >/dev/null 2>&1 &"
    cluster.kubectl(lab, "exec", names["prefill"], "--", "sh", "-c", listen)
    address = pods["prefill"]["status"]["podIP"]
    read = (
        f"until {variables} UCX_LOG_LEVEL=info ucx_perftest {address} -p {PORT} "
        f"-t ucp_get -s {BYTES} -n {ROUNDS} 2>&1; do sleep 1; done"
    )
    return waiting.run(lab, lab.kubectl("exec", names["decode"], "--", "sh", "-c", read))


def test_decode_reads_the_memory_of_prefill_by_its_own_device(served):
    """No variable is set: transport and device are what UCX chooses by /etc/ucx/ucx.conf."""
    lab, pods = served
    (own,) = json.loads(pods["decode"]["metadata"]["annotations"][OWN])
    used = TRANSPORT.findall(read_memory(lab, pods))
    assert used, "UCX names no transport of RDMA"
    assert {device for _, device in used} == {own["rdmaDevice"]}


def test_without_rdma_no_transport_of_it_is_named(served):
    """So the test above can fail."""
    lab, pods = served
    shown = read_memory(lab, pods, "UCX_TLS=tcp UCX_NET_DEVICES=all")
    assert not TRANSPORT.findall(shown), shown
