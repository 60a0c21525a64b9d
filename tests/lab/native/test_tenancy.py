"""Who may use which pool and resource, on a real API server and kubelet: docs/tenancy.md as it is.

A pod of another namespace is refused by a sentence that its user sees, and runs once it is let in.
"""

import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit import manifests

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "s3-network"
NAMESPACE = "mlnx-network-operator"
PAGE = [
    document
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/tenancy.md").read_text(), re.DOTALL)
    for document in yaml.safe_load_all(block)
]
TENANTS = ("team-a", "team-b")
POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
NETWORK = manifests.network(
    "tenants",
    {
        "cniVersion": "1.0.0",
        "type": "macvlan",
        "master": "eth0",
        "ipam": {"type": "kube-rdma-ipam", "pool": "team-a"},
    },
    "default",
)


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with the agent of seed S3, and two tenants."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    agent = str(EXAMPLE / "agent.yaml")
    cluster.kubectl(native, "apply", "-f", agent)
    cluster.rollout(native, "rdma-shared-dp-ds", NAMESPACE)
    cluster.until_chained(native)
    cluster.apply(native, NETWORK)
    for name in TENANTS:
        cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield native
    cluster.kubectl(native, "delete", "namespace", *TENANTS)
    cluster.kubectl(native, "delete", "network-attachment-definitions", "tenants")
    cluster.kubectl(native, "delete", "-f", agent, "--cascade=foreground")


@contextmanager
def page(lab, name, *kinds):
    """What the page has of these kinds under a name, while it is needed."""
    chosen = [one for one in PAGE if one["kind"] in kinds and one["metadata"]["name"] == name]
    assert len(chosen) == len(kinds)
    for document in chosen:
        cluster.apply(lab, document)
    try:
        yield
    finally:
        for document in chosen:
            cluster.kubectl(lab, "delete", "-f", "-", stdin=json.dumps(document))


def pod(name, namespace, *, shares=0, **annotations):
    container = {
        "name": "c",
        "image": "localhost/lab/verbs:1",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
    }
    if shares:
        container["resources"] = {"limits": {"rdma/hca": str(shares)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"nodeName": "node-1", "containers": [container]},
    }


def claim(namespace, *, of="rdma", kind="ResourceClaim", slots=0, either=False):
    """A claim, or a template, of one device of a class."""
    asked = {"deviceClassName": of}
    if slots:
        asked["capacity"] = {"requests": {"slots": str(slots)}}
    how = {"firstAvailable": [{"name": "big", **asked}]} if either else {"exactly": asked}
    spec = {"devices": {"requests": [{"name": "nic", **how}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "asks", "namespace": namespace},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }


def answer(lab, document):
    """Why the API server does not take an object; nothing where it does."""
    try:
        cluster.kubectl(lab, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
    except Unavailable as error:
        return str(error)
    return ""


@pytest.mark.core
def test_a_pool_of_a_namespace_refuses_pods_of_others_until_they_are_let_in(lab):
    """The Event of the pod that waits has the sentence; the pod goes on by itself afterwards."""
    asking = {"k8s.v1.cni.cncf.io/networks": "default/tenants"}
    with page(lab, "team-a", "IPPool"):
        for tenant in TENANTS:
            cluster.apply(lab, pod("asks", tenant, **asking))
        cluster.wait(lab, "-n", "team-a", "pod/asks", "--for=condition=Ready")

        def refused():
            listed = cluster.get(lab, "events", "-n", "team-b")["items"]
            return [event for event in listed if event["reason"] == "FailedCreatePodSandBox"]

        until(lab, "the refused pod's Event", lambda: any(map(sentence, refused())))
        change = json.dumps({"spec": {"namespaces": list(TENANTS)}})
        cluster.kubectl(lab, "patch", "ippool", "team-a", "--type=merge", "-p", change)
        cluster.wait(lab, "-n", "team-b", "pod/asks", "--for=condition=Ready")
        for tenant in TENANTS:
            cluster.kubectl(lab, "delete", "pod", "asks", "-n", tenant, "--grace-period=1")


def test_a_pod_cannot_put_a_network_on_an_interface_that_it_names(lab):
    """Not over the network's own master, whatever interface of the node it means."""
    entry = [{"name": "tenants", "namespace": "default", "deviceID": "lo"}]
    asking = {"k8s.v1.cni.cncf.io/networks": json.dumps(entry)}
    cluster.apply(lab, pod("names", "team-a", **asking))
    wanted = "deviceID: the network is on eth0, and a pod cannot put it on lo"

    def refused():
        events = cluster.get(lab, "events", "-n", "team-a")["items"]
        return any(wanted in event["message"] for event in events)

    until(lab, "the refused pod's Event", refused)
    cluster.kubectl(lab, "delete", "pod", "names", "-n", "team-a", "--grace-period=1")


def sentence(event):
    wanted = "IPPool team-a is for pods of team-a, and this pod is of namespace team-b"
    return wanted in event["message"]


def test_a_resource_of_a_namespace_is_refused_to_others_when_the_pod_is_made(lab):
    """By the policy, for init containers too; pods that ask for nothing pass."""
    with page(lab, "rdma-tenants", *POLICY):
        asking = pod("asks", "team-b", shares=1)
        by_class = pod("asks", "team-b")
        implied = {"deviceclass.resource.kubernetes.io/rdma-shared": "1"}
        by_class["spec"]["containers"][0]["resources"] = {"limits": implied}
        early = pod("asks", "team-b")
        early["spec"]["initContainers"] = asking["spec"]["containers"]
        early["spec"]["initContainers"][0]["name"] = "early"

        def refusal(document):
            told = answer(lab, document)
            return "rdma/hca is for pods of team-a, and this pod is of team-b" in told

        until(lab, "the policy's refusal", lambda: refusal(asking))
        assert refusal(early)
        assert refusal(by_class)
        assert not refusal(pod("plain", "team-b"))
        assert not refusal(pod("asks", "team-a", shares=1))


def test_a_quota_counts_shares_of_a_namespace(lab):
    """Two shares are admitted, three are refused, by the quota's name."""
    with page(lab, "rdma", "ResourceQuota"):

        def created(shares):
            document = json.dumps(pod("asks", "team-a", shares=shares))
            cluster.kubectl(lab, "create", "--dry-run=server", "-f", "-", stdin=document)

        def counted():
            status = cluster.get(lab, "quota/rdma", "-n", "team-a").get("status", {})
            return "requests.rdma/hca" in status.get("used", {})

        until(lab, "the quota's first count", counted)
        created(2)
        with pytest.raises(Unavailable, match="exceeded quota: rdma, requested"):
            created(3)


def test_classes_of_a_namespace_are_refused_to_claims_of_others(lab):
    """Claims and templates, whichever way they ask; other classes pass, and few slots."""
    with page(lab, "rdma-claims", *POLICY):
        denied = "classes rdma* are for claims of team-a, and this claim is of team-b"
        until(lab, "the policy's refusal", lambda: answer(lab, claim("team-b")))
        assert denied in answer(lab, claim("team-b"))
        for kind in ("ResourceClaim", "ResourceClaimTemplate"):
            for either in (False, True):
                asked = {"kind": kind, "either": either}
                assert denied in answer(lab, claim("team-b", of="rdma-shared", **asked))
                assert not answer(lab, claim("team-b", of="gpu", **asked))
                assert not answer(lab, claim("team-a", **asked))
                assert not answer(lab, claim("team-a", slots=2, **asked))
                assert "may have 2 slots" in answer(lab, claim("team-a", slots=3, **asked))


def test_a_quota_counts_devices_of_claims_and_not_their_slots(lab):
    """None of one class, one of the other, with as many slots as the claim asks for."""
    with page(lab, "rdma-claims", "ResourceQuota"):

        def counted():
            status = cluster.get(lab, "quota/rdma-claims", "-n", "team-b").get("status", {})
            return "rdma.deviceclass.resource.k8s.io/devices" in status.get("used", {})

        until(lab, "the quota's first count", counted)

        def refused():  # the API server forgets a policy moments after it was deleted
            return "exceeded quota: rdma-claims" in answer(lab, claim("team-b"))

        until(lab, "the quota's refusal", refused)
        assert not answer(lab, claim("team-b", of="rdma-shared", slots=9))
        both = claim("team-b", of="rdma-shared")
        both["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
        assert "exceeded quota: rdma-claims" in answer(lab, both)
