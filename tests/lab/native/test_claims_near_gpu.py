"""A card and a GPU of one claim, chosen by the real scheduler; and cards by DRANET's names.

The agents publish the constructed cards with the value `claims.dranetAttributes`, the lab's ghost
driver the constructed GPUs with NVIDIA's attributes. What is near is read from the tree itself.
"""

import json

import pytest
import yaml

from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.ghost import install
from tests.documents.shell import Shell
from tests.kit.claiming import NODE, agents, applied, claim_status, device_nodes, pod, template
from tests.kit.pods import IMAGE, UNTIL_ASKED

GPUS = "gpu.nvidia.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"

# Agents of its own: over 30 s.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(native, survey):
    """Agents that publish cards with DRANET's names too, and the ghosts' claim driver."""
    ghosts = install.manifest(install.CLAIMS)
    with agents(native, "claims.dranetAttributes=true"):
        cluster.kubectl(native, "apply", "-f", "-", stdin=ghosts)
        try:
            cluster.rollout(native, "gpu-claims", install.NAMESPACE)
            waiting.until(native, "all GPUs", lambda: gpus(native) == len(survey.gpus))
            yield native
        finally:
            words = ("--ignore-not-found", "--cascade=foreground")
            cluster.kubectl(native, "delete", "-f", "-", *words, stdin=ghosts)


def gpus(lab):
    """How many GPUs the slices of the node have."""
    listed = (one["spec"] for one in cluster.get(lab, "resourceslices")["items"])
    mine = (one for one in listed if (one["driver"], one.get("nodeName")) == (GPUS, NODE))
    return sum(len(one["devices"]) for one in mine)


def devices_of(lab, name):
    """The devices that a pod's claim was given: the attributes of each, by its driver."""
    given = claim_status(lab, name)["allocation"]["devices"]["results"]
    published = {
        (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"]): device["attributes"]
        for one in cluster.get(lab, "resourceslices")["items"]
        for device in one["spec"]["devices"]
    }
    keys = [(one["driver"], one["pool"], one["device"]) for one in given]
    return {driver: published[driver, pool, device] for driver, pool, device in keys}


def is_at_the_gpus_root(lab, survey, name):
    """Whether the pod opens a card at the root of its GPU, by the tree."""
    address = devices_of(lab, name)[GPUS]["resource.kubernetes.io/pciBusID"]["string"]
    (gpu,) = (one for one in survey.gpus if str(one.position.pci) == address)
    (mine,) = (one for one in device_nodes(lab, name) if one.startswith("uverbs"))
    (card,) = (
        one
        for one in survey.devices
        if any(char.path.endswith(f"/{mine}") for char in one.char_devices)
    )
    return card.position.root == gpu.position.root


def selecting(name, cls, *expressions):
    """A request of one device of a class that expressions select."""
    selectors = [{"cel": {"expression": one}} for one in expressions]
    return {"name": name, "exactly": {"deviceClassName": cls, "selectors": selectors}}


@pytest.mark.parametrize("number", [7, 2])
def test_two_requests_that_match_at_the_root_are_a_card_beside_the_very_gpu(lab, survey, number):
    """The first free card of the node is at the root of one of these at most."""
    gpu = survey.gpus[number]
    address = f'device.attributes["resource.kubernetes.io"].pciBusID == "{gpu.position.pci}"'
    wish = template("near")
    wish["spec"]["spec"]["devices"] = {
        "requests": [selecting("nic", "rdma-shared"), selecting("gpu", GPUS, address)],
        "constraints": [{"requests": ["nic", "gpu"], "matchAttribute": PCIE_ROOT}],
    }
    with applied(lab, wish, pod("near", resourceClaimTemplateName="near")):
        cluster.ready(lab, "near")
        assert is_at_the_gpus_root(lab, survey, "near")


def test_the_template_of_kube_rdma_claim_gives_each_gpu_a_card_at_its_root(lab, survey):
    """As many pods as the node has GPUs, by the words of docs/claims.md."""
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}) as shell:
        text = shell.check("kube-rdma claim --gpus 1 --near --within root --shared --name each")
    wish, one = yaml.safe_load_all(text)
    names = [f"each-{number}" for number in range(len(survey.gpus))]
    pods = []
    for name in names:
        made = json.loads(json.dumps(one))
        made["metadata"] |= {"name": name, "namespace": "default"}
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
        made["spec"]["terminationGracePeriodSeconds"] = 1
        made["spec"]["containers"][0] |= {"image": IMAGE, "command": list(UNTIL_ASKED)}
        pods.append(made)
    with applied(lab, wish, *pods):
        cluster.ready(lab, *names)
        assert all(is_at_the_gpus_root(lab, survey, name) for name in names)


def test_a_selector_that_was_written_for_dranet_finds_the_very_card(lab, survey):
    """Its RDMA device and PCI address, by attributes of dra.net; the driver is kube-rdma's."""
    card = survey.devices[5]
    found = (
        f'device.attributes["dra.net"].rdmaDevice == "{card.name}"',
        f'device.attributes["dra.net"].pciAddress == "{card.pci}"',
        'device.attributes["dra.net"].rdma && !device.attributes["dra.net"].isSriovVf',
    )
    wish = template("by-name")
    wish["spec"]["spec"]["devices"]["requests"] = [selecting("nic", "rdma-shared", *found)]
    with applied(lab, wish, pod("by-name", resourceClaimTemplateName="by-name")):
        cluster.ready(lab, "by-name")
        assert set(devices_of(lab, "by-name")) == {DRIVER}
        (mine,) = (one for one in device_nodes(lab, "by-name") if one.startswith("uverbs"))
        assert any(char.path.endswith(f"/{mine}") for char in card.char_devices)
