"""A card beside the GPU that came by a claim: real scheduler and kubelet, recorded cards and GPUs.

The GPUs' driver is the lab's own (kube_rdma_lab/ghost/claim_driver.py), with NVIDIA's attributes.
"""

from contextlib import contextmanager

import pytest

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.rules.pools.topology import nearness
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.ghost import install
from kube_rdma_lab.native import trees
from tests.kit.pods import sleeping_pod

from .test_vke import NODE, agent_log, label, wait_for

RESOURCE, DRIVER = "vke.volcengine.com/rdma", "gpu.nvidia.com"


@pytest.fixture(scope="module")
def lab(recorded):
    return recorded


@pytest.fixture(scope="module")
def proof():
    """No demo on this lab."""


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    """What the nodes show."""
    folder = tmp_path_factory.mktemp("tree") / "sys"
    trees.write("dgx-like", folder)
    return read_survey(folder)


@pytest.fixture(scope="module")
def claims(vke, survey):
    """Every GPU of the node as a device of the claim driver, and one card a share."""
    manifest = install.manifest(install.CLAIMS)
    cluster.kubectl(vke, "apply", "-f", "-", stdin=manifest)
    cluster.rollout(vke, "gpu-claims", install.NAMESPACE)
    waiting.until(vke, "the slice of the node", lambda: len(offered(vke)) == len(survey.gpus))
    label(vke, "exclusive")
    wait_for(vke, 8)
    yield vke
    label(vke, "")
    cluster.kubectl(vke, "delete", "-f", "-", "--wait", stdin=manifest)
    cluster.kubectl(vke, "delete", "resourceslices", "--all")


def offered(lab):
    """The devices of the slices of the node."""
    slices = cluster.get(lab, "resourceslices")["items"]
    mine = (each["spec"] for each in slices if each["spec"].get("nodeName") == NODE)
    return [device for spec in mine for device in spec["devices"]]


@contextmanager
def pod_with(lab, gpu):
    """A pod with one card and, by a claim, one very GPU."""
    address = f'device.attributes["resource.kubernetes.io"].pciBusID == "{gpu.seat.pci}"'
    exactly = {"deviceClassName": DRIVER, "selectors": [{"cel": {"expression": address}}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    wanted = [{"name": "gpu", "resourceClaimName": "gpu"}]
    pod = sleeping_pod(
        "train",
        limits={RESOURCE: "1"},
        nodeSelector={"kubernetes.io/hostname": NODE},
        terminationGracePeriodSeconds=1,
        resourceClaims=wanted,
    )
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    cluster.apply(lab, claim, pod)
    try:
        cluster.ready(lab, "train")
        yield "train"
    finally:
        cluster.kubectl(lab, "delete", "pod/train", "resourceclaim/gpu", "--ignore-not-found")


@pytest.mark.parametrize("number", [7, 2, 5])
def test_the_card_is_one_of_those_nearest_to_the_very_gpu(claims, survey, number):
    """By the tree itself; with no claim seen it would be the first free card each time."""
    gpu = survey.gpus[number]
    ways = {
        char.path.rpartition("/")[2]: nearness(device.seat, gpu.seat).distance
        for device in survey.devices
        for char in device.char_devices
        if "uverbs" in char.path
    }
    assert len(set(ways.values())) > 1
    with pod_with(claims, gpu) as name:
        nodes = cluster.kubectl(claims, "exec", name, "--", "ls", "/dev/infiniband").split()
        (mine,) = (node for node in nodes if node.startswith("uverbs"))
        assert ways[mine] == min(ways.values())


def test_the_distance_is_logged(claims, survey):
    gpu = survey.gpus[3]
    with pod_with(claims, gpu):
        waiting.until(
            claims,
            "the distance in the agent's log",
            lambda: f"to GPU {gpu.seat.pci}" in agent_log(claims),
        )
