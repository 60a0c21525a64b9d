"""`rdma/hca: 1` by a DeviceClass: a node goes from shares of the plugin to claims, and back.

The real scheduler and kubelet of Kubernetes 1.36, the pods of seed S2 as they are, and the commands
that `kube-rdma migrate node` prints. docs/decisions/0107 has what the kubelet makes of a name that
both know.
"""

import json

import pytest
import yaml

from kube_rdma.install.installation import assignment
from kube_rdma.model.kubernetes import quantity
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.documents.shell import Shell
from tests.kit import share_pods
from tests.kit.pods import IMAGE
from tests.kit.shared_plugin import held

NODE, OTHER = "node-1", "node-2"
NAMESPACE, AGENT = "kube-rdma", "kube-rdma-agent"
HCA, CLASS, LABEL = "rdma/hca", "rdma-hca", "kube-rdma.io/serve"
SHARES = 1000
CARDS = [f"uverbs{n}" for n in range(8)]
VALUES = (
    "claims.enabled=true",
    f"claims.classes=[{{name: {CLASS}, resource: {HCA}}}]",
    """agent.config='{"mode": "hca"}'""",
)
OLD, ENDING, SEED = "old", "old-ending", "rdma-test-pod"
GONE = ("--ignore-not-found", "--wait", "--grace-period=1")


@pytest.fixture(scope="module")
def lab(native):
    """Agents that can serve claims, the class, and one node that takes pods."""
    scc.install_kinds(native)
    made = objects([assignment(word) for word in VALUES], "default")
    cluster.apply(native, *made)
    try:
        cluster.rollout(native, AGENT, NAMESPACE)
        cluster.wait_for_resource(native, HCA, "1k")
        cluster.kubectl(native, "cordon", OTHER)
        yield native
    finally:
        cluster.kubectl(native, "uncordon", NODE, OTHER)
        cluster.kubectl(native, "delete", "pods", "-n", "default", "--all", *GONE)
        cluster.kubectl(native, "label", "node", "--all", f"{LABEL}-")
        items = [one for one in made if one["kind"] != "CustomResourceDefinition"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        words = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(native, "delete", "-f", "-", *words, stdin=text)
        cluster.kubectl(native, "delete", "resourceslices", "--all")


@pytest.fixture(scope="module")
def shell(lab, tmp_path_factory):
    """A shell of somebody whose kubectl and kube-rdma speak with the lab's cluster."""
    variables = {"KUBECONFIG": str(lab.kubeconfig), "HOME": str(tmp_path_factory.mktemp("home"))}
    with Shell(variables, lab.state.binaries) as opened:
        yield opened


@pytest.fixture(scope="module")
def plan(lab, shell):
    """What the command says while the plugin serves the node and two pods hold a share of it."""
    for name in (OLD, ENDING):
        share_pods.start(lab, name, NODE, 1, HCA)
    return json.loads(shell.check(f"kube-rdma migrate node {NODE} -o json"))


@pytest.fixture(scope="module")
def moved(lab, shell, plan):
    """The node after the way there; the pods of before still run."""
    before = share_pods.running(lab)
    follow(shell, plan["steps"])
    assert share_pods.running(lab) == before
    return lab


def follow(shell, steps):
    for step in steps:
        for command in step["commands"]:
            shell.check(command)


def seed(lab, name=SEED):
    """Start the pod of the seed, by another name perhaps; return it once it is Ready."""
    pod = yaml.safe_load((scc.examples() / "s2-scc" / "rdma-test-pod.yaml").read_text())
    pod["metadata"] |= {"name": name, "namespace": "default"}
    cluster.apply(lab, pod)
    cluster.ready(lab, name)
    return cluster.get(lab, f"pod/{name}")


def claim_of(pod):
    """The claim that the scheduler made for the pod's resources, None for one of the plugin."""
    status = pod["status"].get("extendedResourceClaimStatus")
    return status["resourceClaimName"] if status else None


def cards_in(lab, name):
    """The devices that the pod's container opens."""
    names = cluster.kubectl(lab, "exec", name, "--", "ls", "/dev/infiniband").split()
    return sorted(one for one in names if one.startswith("uverbs"))


def slots(lab):
    """What the slices of the node have, by device."""
    listed = cluster.get(lab, "resourceslices")["items"]
    mine = [one["spec"] for one in listed if one["spec"]["nodeName"] == NODE]
    devices = [device for spec in mine for device in spec.get("devices", ())]
    return {one["name"]: quantity(one["capacity"]["slots"]["value"]) for one in devices}


def restarted(lab, name):
    """End the container's processes, and wait until the kubelet has started it again."""
    before = cluster.get(lab, f"pod/{name}")["status"]["containerStatuses"][0]["restartCount"]
    later = "(sleep 1; kill -9 -1; pkill -9 sleep) >/dev/null 2>&1 &"
    cluster.kubectl(lab, "exec", name, "--", "sh", "-c", later)
    path = f"jsonpath={{.status.containerStatuses[0].restartCount}}={before + 1}"
    cluster.wait(lab, f"pod/{name}", f"--for={path}")
    cluster.ready(lab, name)


def test_the_plan_names_the_pods_that_hold_shares(plan):
    assert plan["offered"] == {HCA: "1k"}
    assert plan["classes"] == {HCA: CLASS}
    pods = [{"pod": f"default/{name}", "asked": {HCA: 1}, "byClaim": []} for name in (OLD, ENDING)]
    assert plan["pods"] == pods
    (note,) = plan["notes"]
    assert all(one["pod"] in note for one in pods)


def test_the_seeds_pod_is_served_by_a_claim_beside_a_pod_that_holds_a_share(moved):
    """The shares of older pods are no slots of the device."""
    assert slots(moved) == {CLASS: SHARES - 2}
    pod = seed(moved)
    claim = cluster.get(moved, f"resourceclaim/{claim_of(pod)}")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["device"]) == ("rdma.kube-rdma.io", CLASS)
    assert cards_in(moved, SEED) == CARDS == cards_in(moved, OLD)
    assert [len(ids) for ids in held(moved, NODE, HCA).values()] == [1, 1]


def test_a_check_takes_a_node_whose_pool_claims_serve(moved):
    """By the rights of the installation and of the namespace; without verbs there is no pair."""
    right = ("rolebinding", "checks", "--clusterrole=kube-rdma-bandwidth-check")
    account = f"--serviceaccount={NAMESPACE}:kube-rdma-controller"
    cluster.kubectl(moved, "create", *right, account)
    container = {"name": "c", "image": IMAGE, "resources": {"limits": {HCA: 1}}}
    check = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "BandwidthCheck",
        "metadata": {"name": "claimed", "namespace": "default"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    cluster.apply(moved, check)
    try:
        cluster.wait(moved, "bandwidthcheck/claimed", "--for=condition=Complete")
        result = cluster.get(moved, "bandwidthcheck/claimed")["status"]["result"]
        assert f"{OTHER}: it is cordoned" in result
        assert "offers no" not in result
        started = cluster.get(moved, "events", "--field-selector=reason=Started")["items"]
        names = {one["involvedObject"]["name"] for one in started}
        assert any(one.startswith("kube-rdma-verify-") and one.endswith(NODE) for one in names)
    finally:
        cluster.kubectl(moved, "delete", "bandwidthcheck/claimed", right[0] + "/checks", "--wait")
    waiting.until(moved, "the end of the copy's claim", lambda: not claims_of_copies(moved))


def claims_of_copies(lab):
    listed = cluster.get(lab, "resourceclaims")["items"]
    return [one for one in listed if one["metadata"]["name"].startswith("kube-rdma-verify")]


def test_no_slot_that_a_pod_holds_is_offered_while_the_kubelet_starts(moved):
    """It deletes the slices and tells of no pods; the slots are looked at all the while."""
    cluster.shell(moved, NODE, "sv", "-w", "60", "force-restart", "kubelet")
    offered = set()
    pod = yaml.safe_load((scc.examples() / "s2-scc" / "rdma-test-pod.yaml").read_text())
    pod["metadata"] |= {"name": "beside-a-start", "namespace": "default"}
    cluster.apply(moved, pod)

    def started():
        offered.update(slots(moved).values())
        status = cluster.get(moved, "pod/beside-a-start")["status"]
        ready = [one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"]
        return ready == ["True"]

    waiting.until(moved, "a pod beside a kubelet that starts", started)
    assert offered == {SHARES - 2}
    cluster.kubectl(moved, "delete", "pod", "beside-a-start", *GONE)


def test_both_pods_outlive_their_containers_and_the_kubelet(moved):
    """The agent stays registered with the name, or the kubelet would start no such container.

    An older pod that ends meanwhile gives its slot to the device.
    """
    cluster.kubectl(moved, "delete", "pod", ENDING, "--wait=false")
    uid = cluster.get(moved, f"pod/{OLD}")["metadata"]["uid"]
    for name in (OLD, SEED):
        restarted(moved, name)
        assert cards_in(moved, name) == CARDS
    before = held(moved, NODE, HCA)[uid]
    cluster.shell(moved, NODE, "sv", "-w", "60", "force-restart", "kubelet")
    waiting.until(moved, "the slices of the node", lambda: slots(moved))
    assert claim_of(seed(moved, "after-kubelet"))
    assert cards_in(moved, "after-kubelet") == CARDS
    assert held(moved, NODE, HCA)[uid] == before
    waiting.until(moved, "the slot", lambda: slots(moved) == {CLASS: SHARES - 1})
    share_pods.nothing_failed(moved)


def test_the_way_back_gives_no_share_that_a_claim_holds(moved, shell, plan):
    """Two claims run on; the plugin serves new pods, and has all shares again when they end."""
    follow(shell, plan["wayBack"])
    assert slots(moved) == {}
    cluster.wait_for_resource(moved, HCA, SHARES - 2, node=NODE)
    assert claim_of(seed(moved, "by-plugin")) is None
    for name in (OLD, SEED, "after-kubelet", "by-plugin"):
        assert cards_in(moved, name) == CARDS
    cluster.kubectl(moved, "delete", "pod", SEED, "after-kubelet", *GONE)
    cluster.wait_for_resource(moved, HCA, "1k", node=NODE)
    share_pods.no_share_twice(moved, NODE, HCA)
    share_pods.nothing_failed(moved)
