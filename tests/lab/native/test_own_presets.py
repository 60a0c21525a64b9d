"""Presets of kube-rdma's own names on recorded cards: what a node offers, and what a pod is told.

By the manifests of the examples, which are what the presets print. Interfaces of pods need cards
that exist; tests/unit/manifests/test_own_presets has the rules for them.
"""

import pytest
import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.kit.pods import sleeping_pod

NODE, NAMESPACE = "node-1", "kube-rdma"
CARDS = 8
# By folder: the resource, its shares on the node, and the cards of one share.
PRESETS = {
    "nics": ("rdma/nic", str(16 * CARDS), 1),
    "gpu-rails": ("rdma/nic", str(CARDS), 1),
    "rdma-ib": ("rdma/ib", "1k", CARDS),
}


@pytest.fixture(scope="module", params=PRESETS)
def preset(request, native):
    """The agents of a preset on native nodes; resource, and cards of a share."""
    example = scc.examples() / request.param / "agent.yaml"
    resource, shares, opened = PRESETS[request.param]
    scc.install_kinds(native)
    cluster.apply(native, *yaml.safe_load_all(example.read_text()))
    try:
        cluster.rollout(native, "kube-rdma-agent", NAMESPACE)
        cluster.wait_for_resource(native, resource, shares, node=NODE)
        yield resource, opened
    finally:
        cluster.kubectl(native, "delete", "-f", str(example), "--cascade=foreground")


@pytest.fixture
def pod(native, preset):
    """A pod with one share and without a network; runs scripts."""
    resource, _ = preset
    cluster.apply(native, sleeping_pod("own", limits={resource: 1}, nodeName=NODE))
    try:
        cluster.ready(native, "own")
        yield lambda script: cluster.kubectl(native, "exec", "own", "--", "sh", "-c", script)
    finally:
        cluster.kubectl(native, "delete", "pod", "own", "--grace-period=1")


def test_a_share_opens_its_cards_and_nccl_is_told_of_them(native, preset, pod):
    """Of rdma/ib all of the node; also in a pod that asks for no network."""
    resource, opened = preset
    files = [name for name in pod("ls /dev/infiniband").split() if name.startswith("uverbs")]
    assert len(files) == opened
    info = cluster.get(native, f"node/{NODE}")["status"]["nodeInfo"]
    reads_cdi = not info["containerRuntimeVersion"].startswith("containerd://1.")
    where = "/etc/nccl.conf" if reads_cdi else f"/usr/share/kube-rdma/{resource}/nccl.conf"
    (line,) = [line for line in pod(f"cat {where}").splitlines() if line.startswith("NCCL_IB_HCA")]
    assert len(line.partition("==")[2].split(",")) == opened
