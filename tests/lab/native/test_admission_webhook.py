"""The webhook in the controller, asked by a real API server, as `kube-rdma render` installs it.

No agent runs: pods are judged without being kept. The certificate is the test's own.
"""

import base64
import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma.programs.install.installation import assignment, objects
from kube_rdma.rules.install.webhook import NAME, SERVICE
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.pki import Authority
from kube_rdma_lab.waiting import until
from tests.kit.admission import VKE, asking, blocks, container, pod

NAMESPACE = "kube-rdma-vke"
TEAM, CONFINED = "webhook", "webhook-confined"
CONTROLLER = "kube-rdma-controller"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
TWO = blocks("rdma", "rdma")
VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}
POLICY = {
    "apiVersion": "kube-rdma.io/v1alpha1",
    "kind": "NodePolicy",
    "metadata": {"name": "webhook"},
    "spec": {
        "nodeSelector": {"pool": "webhook"},
        "pools": [{"resource": VKE, "mode": "exclusive"}],
    },
}
PARTS = ("namespace", "rights", "admission", "workloads")


def installed(authority):
    """What render prints for a controller with the webhook, and for no agent."""
    bundle = base64.b64encode(authority.certificate).decode()
    values = (
        *("agent.enabled=false", "controller.replicas=1", "admission.install=false"),
        *("admission.webhook.secret=admission", f"admission.webhook.caBundle={bundle}"),
        # A policy of the API server would refuse before the webhook is asked.
        *("admission.pods.check=false", "admission.pods.mgpuResources=example.org/part"),
    )
    layers = [assignment(one) for one in values]
    return [made for part in PARTS for made in objects(layers, "vke", part)]


def secret(authority):
    pair = authority.issue(HOST, hosts=(HOST,))
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "admission", "namespace": NAMESPACE},
        "data": {name: base64.b64encode(text).decode() for name, text in data.items()},
    }


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with a controller that serves the webhook, and a namespace."""
    scc.install_kinds(native)
    authority = Authority("webhook")
    made = installed(authority)
    namespaces = [one for one in made if one["kind"] == "Namespace"]
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    for name, labels in ((TEAM, {}), (CONFINED, level)):
        metadata = {"name": name, "labels": labels}
        namespaces.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.apply(native, *namespaces)
    try:
        cluster.apply(native, secret(authority), *made)
        waited = "deployment/kube-rdma-controller"
        cluster.kubectl(native, "rollout", "status", "-n", NAMESPACE, waited, "--timeout=10m")
        yield native
    finally:
        for one in made:
            if "namespace" not in one["metadata"] and one["kind"] != "Namespace":
                words = (one["kind"], one["metadata"]["name"], "--ignore-not-found")
                cluster.kubectl(native, "delete", *words)
        cluster.kubectl(native, "delete", "nodepolicy", "webhook", "--ignore-not-found")
        cluster.kubectl(native, "delete", "namespace", TEAM, CONFINED, NAMESPACE)


@pytest.fixture(scope="module")
def create(lab, tmp_path_factory):
    """Let the API server judge a pod without keeping it; what it makes of it, or a sentence."""
    path = tmp_path_factory.mktemp("pods") / "pod.json"

    def ask(manifest, namespace=TEAM):
        manifest = json.loads(json.dumps(manifest))
        manifest |= {"apiVersion": "v1", "kind": "Pod"}
        manifest["metadata"]["namespace"] = namespace
        for one in manifest["spec"]["containers"]:
            one["image"] = "example.org/none:1"
        path.write_text(json.dumps(manifest))
        words = ("create", "--dry-run=server", "-o", "json", "-f", str(path))
        try:
            return json.loads(cluster.kubectl(lab, *words)), ""
        except Unavailable as error:
            return {}, str(error)

    until(lab, "the webhook asked", lambda: not ask(REFUSED)[0])
    return ask


REFUSED = pod(asking(VKE, 4), annotations=TWO)


def added(made):
    security = made["spec"]["containers"][0].get("securityContext", {})
    return security.get("capabilities", {}).get("add", [])


def test_a_refusal_says_field_and_remedy(create):
    _, text = create(REFUSED)
    assert f'admission webhook "{NAME}" denied the request: metadata.annotations.' in text
    assert "the pod has 2 blocks" in text
    assert "its containers ask for 4. Write 4 blocks" in text


def test_what_counts_as_mgpu_is_the_installation_s(create):
    slices = asking("example.org/part", 1, name="slices")
    assert "cannot be used together" in create(pod(asking(), slices, annotations=TWO))[1]
    other = asking("vke.volcengine.com/mgpu-core", 1, name="slices")
    assert create(pod(asking(), other, annotations=TWO))[0]


def test_what_is_missing_is_added(create):
    assert added(create(pod(asking(), annotations=TWO))[0]) == ["IPC_LOCK"]
    assert added(create(pod(container()))[0]) == []


def test_a_level_of_pod_security_is_not_broken_by_completion(create):
    """The capability would have the pod refused; what else it asks for is added."""
    asked = {"kube-rdma.io/complete": "ipc-lock, shm=1Gi"}
    made, _ = create(pod(asking("rdma/a", 1), annotations=asked), CONFINED)
    assert added(made) == []
    assert "kube-rdma-shm" in {one["name"] for one in made["spec"]["volumes"]}


def test_a_policy_of_the_cluster_counts(lab, create):
    """It fixes the mode of the nodes that the pod selects; CEL alone could not know."""
    manifest = pod(asking(), annotations=TWO, nodeSelector={"pool": "webhook"}, volumes=[VEPFS])
    assert create(manifest)[0]
    cluster.apply(lab, POLICY)
    until(lab, "the policy seen", lambda: "vePFS" in create(manifest)[1])


def test_kube_system_and_the_installation_are_not_asked_about(create):
    for namespace in ("kube-system", NAMESPACE):
        assert create(REFUSED, namespace)[0]


def test_a_cluster_whose_webhook_is_away_goes_on(lab, create):
    """The last test of the file: nobody answers any more."""
    cluster.kubectl(lab, "scale", "-n", NAMESPACE, f"deployment/{CONTROLLER}", "--replicas=0")
    words = ("-n", NAMESPACE, "-l", f"name={CONTROLLER}")
    cluster.kubectl(lab, "wait", "pod", "--for=delete", *words, "--timeout=10m")
    assert create(REFUSED)[0]
    assert added(create(pod(asking(), annotations=TWO))[0]) == []
