"""Seed S3's policy on a real cluster: `kubectl create` of it, and the nodes offer their cards."""

import json

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc

NAMESPACE = "mlnx-network-operator"
POLICY = "nicclusterpolicy/example-nicclusterpolicy"
PLUGIN = "daemonset/rdma-shared-dp-ds"
RESOURCE = "rdma/hca_shared_devices_a"
CARD = "mlx5_0"  # of the constructed cards
DEFINITION = "nicclusterpolicies.mellanox.com"


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes: an operator writes objects, and constructed cards are offered."""
    examples, root = scc.examples(), scc.examples().parent
    cluster.kubectl(native, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")  # of other files
    cluster.delete_definition(native, DEFINITION)  # another file's may have another scope
    cluster.kubectl(native, "apply", "-f", f"{root}/config/operator")
    cluster.kubectl(native, "apply", "-f", f"{root}/config/crds")
    cluster.wait(native, "crd", "--all", "--for=condition=Established")
    cluster.kubectl(native, "apply", "-f", f"{examples}/s3-network/operator.yaml")
    cluster.wait(
        native, "-n", NAMESPACE, "deployment/kube-rdma-operator", "--for=condition=Available"
    )
    yield native
    cluster.kubectl(native, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")
    cluster.kubectl(native, "delete", "-f", f"{examples}/s3-network/operator.yaml", "--wait")
    cluster.kubectl(native, "delete", "-f", f"{root}/config/operator", "--wait")


def policy(lab, **changes):
    """The document's policy with the interface that the constructed card has."""
    interface = cluster.shell(
        lab, "node-1", "ls", f"/sys/class/infiniband/{CARD}/device/net"
    ).strip()
    entry = {"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 1000, "devices": [interface]}
    section = {
        "image": "kube-rdma",
        "repository": "localhost",
        "version": "dev",
        "config": json.dumps({"configList": [entry | changes]}),
    }
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "example-nicclusterpolicy", "namespace": NAMESPACE},
        "spec": {"devicePlugin": section},
    }


def reason(lab):
    return cluster.get(lab, "-n", NAMESPACE, POLICY).get("status", {}).get("reason", "")


@pytest.mark.core
def test_a_policy_becomes_shares_of_the_nodes_and_stays_so(lab):
    """From labels by hand, as the document has them, to the resource, and back to nothing."""
    cluster.apply(lab, policy(lab))
    waiting.until(lab, "the missing label's name", lambda: cluster.CARDS_LABEL in reason(lab))
    cluster.label_cards(lab)
    cluster.wait(lab, "-n", NAMESPACE, POLICY, "--for=jsonpath={.status.state}=ready")
    cluster.wait_for_resource(lab, RESOURCE, "1k")
    states = cluster.get(lab, "-n", NAMESPACE, POLICY)["status"]["appliedStates"]
    assert {each["name"]: each["state"] for each in states} == {
        "state-OFED": "ignore",
        "state-RDMA-device-plugin": "ready",
        "state-SRIOV-device-plugin": "ignore",
        "state-NV-Peer": "ignore",
    }

    changed = ("-n", NAMESPACE, "set", "image", PLUGIN, "k8s-rdma-shared-dp-ds=nobody/knows:1")
    cluster.kubectl(lab, *changed)

    def images():
        template = cluster.get(lab, "-n", NAMESPACE, PLUGIN)["spec"]["template"]
        return [one["image"] for one in template["spec"]["containers"]]

    waiting.until(lab, "the policy's image", lambda: images() == ["localhost/kube-rdma:dev"])

    cluster.apply(lab, policy(lab, rdmaHcaMax=0))
    waiting.until(lab, "the fault's field", lambda: "rdmaHcaMax" in reason(lab))
    cluster.apply(lab, policy(lab, rdmaHcaMax=500))
    cluster.wait_for_resource(lab, RESOURCE, "500")

    cluster.kubectl(lab, "-n", NAMESPACE, "delete", POLICY, "--wait")
    cluster.kubectl(lab, "-n", NAMESPACE, "wait", PLUGIN, "--for=delete", cluster.ENDLESS)


def leader(lab):
    """The pod that the Lease names, empty while it names none."""
    lease = cluster.get(lab, "-n", NAMESPACE, "lease/kube-rdma-controller")
    return lease["spec"].get("holderIdentity", "").rpartition("_")[0]


def test_another_operator_goes_on_when_the_first_is_killed(lab):
    """The kubelet sends SIGKILL at once, so nothing is given back."""
    operator = "deployment/kube-rdma-operator"
    cluster.kubectl(lab, "-n", NAMESPACE, "scale", operator, "--replicas=2")
    cluster.kubectl(lab, "-n", NAMESPACE, "rollout", "status", operator, "--timeout=0")
    first = leader(lab)
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "pod", first, "--grace-period=0", "--force")
    waiting.until(lab, "another holder of the Lease", lambda: leader(lab) not in ("", first))
    cluster.label_cards(lab)
    cluster.apply(lab, policy(lab))
    cluster.wait(lab, "-n", NAMESPACE, POLICY, "--for=jsonpath={.status.state}=ready")
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", POLICY, "--wait")
    cluster.kubectl(lab, "-n", NAMESPACE, "wait", PLUGIN, "--for=delete", cluster.ENDLESS)
