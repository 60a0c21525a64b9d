"""Agents that an operator deploys serve claims: slices, a pod with a claim, and what it tells.

Preset nvidia-operator with `claims.enabled`, as an administrator installs it. Agents, accounts,
rights and the policies of admission are those of that installation; nothing is added to them.
"""

import json

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.pools.documents.config import SERVE_LABEL as SERVE
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

SPACE, NODE, CARD = "mlnx-network-operator", "node-1", "mlx5_0"
POLICY, AGENT = "claiming", "rdma-shared-dp-ds"
CLASS, NETWORK, POOL = "of-a-policy", "operated", "operated"
CLAIMS = "resource.k8s.io/v1"
ADDRESS = "10.78.0.9"

# A controller, agents of its own, and a policy that goes with all that it deployed: over 30 s.
pytestmark = pytest.mark.slow


def policy(lab):
    """A policy whose plugin is kube-rdma with networks, for one card of a node."""
    link = cluster.shell(lab, NODE, "ls", f"/sys/class/infiniband/{CARD}/device/net").strip()
    entry = {"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 1000, "devices": [link]}
    image = {"image": "kube-rdma", "repository": "localhost", "version": "dev"}
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": POLICY, "namespace": SPACE},
        "spec": {
            "devicePlugin": {**image, "config": json.dumps({"configList": [entry]})},
            "secondaryNetwork": {"cniPlugins": image},
        },
    }


def cards_and_network():
    """A class of the driver's devices, a pool of addresses, and a network for any resource."""
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "kube-rdma", "rdma": False, "ipam": ipam}
    yield {
        "apiVersion": CLAIMS,
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }
    yield manifests.ip_pool(POOL, ranges=[{"subnet": "10.78.0.0/24"}], restSeconds=0)
    yield manifests.network(NETWORK, config, "default")


@pytest.fixture(scope="module")
def lab(ethernet):
    """The operator's installation, and nodes whose pools claims serve."""
    native = ethernet
    scc.install_kinds(native)
    made = list(objects([assignment("claims.enabled=true")], "nvidia-operator"))
    (operator,) = (one["metadata"]["name"] for one in made if one["kind"] == "Deployment")
    more = list(cards_and_network())
    cluster.label_cards(native)
    cluster.kubectl(native, "label", "node", "--all", "--overwrite", f"{SERVE}=claims")
    cluster.apply(native, *made)
    try:
        available = (f"deployment/{operator}", "--for=condition=Available")
        cluster.wait(native, "-n", SPACE, *available)
        cluster.wait(native, "crd/ippools.kube-rdma.io", "--for=condition=Established")
        cluster.apply(native, *more, policy(native))
        ready = (f"nicclusterpolicy/{POLICY}", "--for=jsonpath={.status.state}=ready")
        cluster.wait(native, "-n", SPACE, *ready)
        yield native
    finally:
        gone = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(native, "-n", SPACE, "delete", "nicclusterpolicy", "--all", "--wait")
        cluster.kubectl(native, "-n", SPACE, "delete", f"daemonset/{AGENT}", *gone)
        items = [*more, *(one for one in made if one["kind"] != "CustomResourceDefinition")]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        cluster.kubectl(native, "delete", "-f", "-", *gone, stdin=text)
        cluster.kubectl(native, "delete", "resourceslices", "--all")
        labels = (f"{SERVE}-", f"{cluster.CARDS_LABEL}-")
        cluster.kubectl(native, "label", "node", "--all", *labels)


def devices(lab):
    """What the slices of the node offer of the driver's."""
    listed = (one["spec"] for one in cluster.get(lab, "resourceslices")["items"])
    mine = [one for one in listed if (one["driver"], one.get("nodeName")) == (DRIVER, NODE)]
    return [device for part in mine for device in part["devices"]]


def claim_and_pod():
    """A claim for the card with a network and an address, and its pod."""
    parameters = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "ClaimParameters",
        "network": NETWORK,
        "addresses": [ADDRESS],
    }
    request = {"name": "nic", "exactly": {"deviceClassName": CLASS}}
    opaque = {"opaque": {"driver": DRIVER, "parameters": parameters}}
    claim = {
        "apiVersion": CLAIMS,
        "kind": "ResourceClaim",
        "metadata": {"name": "operated", "namespace": "default"},
        "spec": {"devices": {"requests": [request], "config": [opaque]}},
    }
    pod = sleeping_pod(
        "operated",
        nodeSelector={"kubernetes.io/hostname": NODE},
        terminationGracePeriodSeconds=1,
        resourceClaims=[{"name": "nic", "resourceClaimName": "operated"}],
    )
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    return claim, pod


def conditions(lab):
    """What the claim says of its device; nothing before somebody has written it."""
    status = cluster.get(lab, "resourceclaim/operated").get("status", {})
    written = status.get("devices") or [{"conditions": []}]
    return {one["type"]: one["status"] for one in written[0]["conditions"]}


def test_a_pod_has_its_card_and_network_by_a_claim_from_a_policy_s_agent(lab):
    offered = waiting.until(lab, "the slices of the node", lambda: devices(lab))
    names = {one["attributes"]["rdmaDevice"]["string"] for one in offered}
    assert names == {CARD}
    node = cluster.get(lab, f"node/{NODE}")["status"]["allocatable"]
    assert node.get("rdma/hca_shared_devices_a", "0") == "0"  # the plugin gives nothing
    claim, pod = claim_and_pod()
    cluster.apply(lab, claim, pod)
    try:
        cluster.ready(lab, "operated")
        assert "rdma_cm" in cluster.kubectl(lab, "exec", "operated", "--", "ls", "/dev/infiniband")
        shown = cluster.kubectl(lab, "exec", "operated", "--", "ip", "-o", "address", "show")
        assert f"inet {ADDRESS}/24" in shown
        both = {"Ready": "True", "NetworkReady": "True"}
        waiting.until(lab, "the status of the claim", lambda: conditions(lab) == both)
    finally:
        cluster.kubectl(lab, "delete", "pod/operated", "resourceclaim/operated", "--wait")
    logs = cluster.kubectl(lab, "-n", SPACE, "logs", f"daemonset/{AGENT}", "--all-pods")
    assert "forbids" not in logs
