"""A card beside the GPU that came by a claim: real scheduler, constructed cards and GPUs.

The GPUs' driver is the lab's own (kube_rdma_lab/ghost/claim_driver.py), with NVIDIA's attributes.
It stands for DRANET too, whose cards the doctor sees.
"""

import json
from contextlib import contextmanager

import pytest

from kube_rdma.cli.output import ExitCode
from kube_rdma.pools.rules.nearness import nearness
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.ghost import install
from tests.documents.shell import Shell
from tests.kit.pods import sleeping_pod

from .test_vke import NODE, agent_log, label, wait_for

RESOURCE, DRIVER, CARDS = "vke.volcengine.com/rdma", "gpu.nvidia.com", "dra.net"


@pytest.fixture(scope="module")
def lab(recorded):
    return recorded


@pytest.fixture(scope="module")
def proof():
    """No demo on this lab."""


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
    address = f'device.attributes["resource.kubernetes.io"].pciBusID == "{gpu.position.pci}"'
    with claiming(lab, DRIVER, address, {RESOURCE: "1"}) as name:
        yield name


@contextmanager
def claiming(lab, driver, selector, limits=None):
    """A pod with the one device of a driver that an expression selects."""
    exactly = {"deviceClassName": driver, "selectors": [{"cel": {"expression": selector}}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
    }
    pod = sleeping_pod(
        "train",
        limits=limits,
        nodeSelector={"kubernetes.io/hostname": NODE},
        terminationGracePeriodSeconds=1,
        resourceClaims=[{"name": "one", "resourceClaimName": "one"}],
    )
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "one"}]
    cluster.apply(lab, claim, pod)
    try:
        cluster.ready(lab, "train")
        yield "train"
    finally:
        cluster.kubectl(lab, "delete", "pod/train", "resourceclaim/one", "--ignore-not-found")


@pytest.mark.parametrize("number", [7, 2, 5])
def test_the_card_is_one_of_those_nearest_to_the_very_gpu(claims, survey, number):
    """By the tree itself; with no claim seen it would be the first free card each time."""
    gpu = survey.gpus[number]
    ways = {
        char.path.rpartition("/")[2]: nearness(device.position, gpu.position).distance
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
            lambda: f"to GPU {gpu.position.pci}" in agent_log(claims),
        )


@pytest.fixture
def dranet(claims):
    """Every RDMA device of the node as a device of DRANET's driver, which attaches nothing here."""
    cluster.kubectl(claims, "apply", "-f", "-", stdin=install.manifest(install.CARD_CLAIMS))
    cluster.rollout(claims, "card-claims", install.NAMESPACE)

    def published():
        slices = cluster.get(claims, "resourceslices")["items"]
        return any(one["spec"]["driver"] == CARDS for one in slices)

    waiting.until(claims, "the slice of the cards", published)
    yield claims
    for name in ("daemonset/card-claims", "configmap/card-claims"):
        cluster.kubectl(claims, "delete", "-n", install.NAMESPACE, name)
    for name in ("deviceclass/dra.net", "clusterrole/lab-card-claims"):
        cluster.kubectl(claims, "delete", name)
    cluster.kubectl(claims, "delete", "clusterrolebinding/lab-card-claims")


def test_the_doctor_lists_a_card_that_another_driver_gave(dranet, survey):
    """Through the node's agent, by the kubelet's word and the driver's own slice."""
    card = survey.devices[3]
    selector = f'device.attributes["{CARDS}"].rdmaDevice == "{card.name}"'
    with (
        claiming(dranet, CARDS, selector) as name,
        Shell({"KUBECONFIG": str(dranet.kubeconfig)}) as shell,
    ):
        code, printed = shell.run(f"kube-rdma doctor pod/{name} -n default -o json")
    assert code in (ExitCode.OK, ExitCode.PROBLEM, ExitCode.UNKNOWN), printed
    (listed,) = json.loads(printed)["claimed"]
    assert (listed["driver"], listed["container"], listed["pool"]) == (CARDS, "main", NODE)
    assert (listed["card"], listed["rdmaDevice"]) == (card.pci, card.name)
