"""The cluster is a real one: who may do what, Services, logs and exec."""

import json
import sys

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.creating import LAST_APPLIED

pytestmark = pytest.mark.core

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "hello"},
    "spec": {"selector": {"app": "hello"}, "ports": [{"port": 80, "targetPort": 8080}]},
}
SERVER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "hello", "labels": {"app": "hello"}},
    "spec": {
        "nodeName": "node-1",
        "containers": [
            {
                "name": "hello",
                "image": "localhost/kube-rdma:dev",
                "command": ["python3", "-m", "http.server", "8080", "--directory", "/etc"],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            }
        ],
    },
}
# The status of an answer to a client that shows no certificate and believes any.
ASK = """
import ssl, sys, urllib.error, urllib.request
try:
    context = ssl._create_unverified_context()
    print(urllib.request.urlopen(sys.argv[1], context=context).status)
except urllib.error.HTTPError as answer:
    print(answer.code)
"""
# Each try is a connection of its own: what began before kube-proxy knew of the Service stays on the
# wrong way, for the kernel decides by a connection's first packet.
FETCH = """
import sys, time, urllib.error, urllib.request

while True:
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=5).status)
        break
    except (urllib.error.URLError, TimeoutError) as error:
        print(error, file=sys.stderr)
        time.sleep(0.2)
"""


# Of each kind of question that the lab's own reader answers (kube_rdma_lab/reading.py).
QUESTIONS = [
    ("nodes",),
    ("node/node-1",),
    ("ds", "-n", "kube-system"),
    ("pods", "-A", "-l", "app"),
    ("pods", "-A", "--field-selector=spec.nodeName=node-1"),
    ("clusterrole", "admin"),
    ("service", "kubernetes"),
]

UNSCHEDULED = {
    "schedulerName": "none",
    "automountServiceAccountToken": False,
    "containers": [{"name": "a", "image": "x"}],
}


@pytest.fixture(scope="module")
def lab(recorded):
    """Native nodes: who may do what, Services and logs are no matter of verbs."""
    return recorded


def as_kubelet(lab, *words):
    """Run kubectl on node-1 with the kubelet's own credentials."""
    kubectl = f"{lab.state.binaries}/kubectl"
    config = f"{lab.home}/nodes/node-1/files/kubernetes/kubelet.kubeconfig"
    return waiting.run(lab, [*lab.enter(), kubectl, f"--kubeconfig={config}", *words])


def test_a_kubelet_may_touch_its_own_node_and_no_other(lab):
    as_kubelet(lab, "label", "node", "node-1", "example.org/own=yes", "--overwrite")
    with pytest.raises(Unavailable, match="only its own Node object"):
        as_kubelet(lab, "label", "node", "node-2", "example.org/own=no")


def test_a_kubelet_reads_no_secrets_of_others(lab):
    with pytest.raises(Unavailable, match=r"can only read .*|no relationship found"):
        as_kubelet(lab, "get", "secrets", "-A")


def test_nobody_gets_in_without_a_certificate(lab):
    ask = (*lab.enter(), sys.executable, "-c", ASK)
    assert waiting.run(lab, [*ask, "https://10.89.0.1:6443/api/v1/nodes"]).strip() in ("401", "403")
    assert waiting.run(lab, [*ask, "https://10.89.0.11:10250/pods"]).strip() == "401"


def test_a_cluster_ip_answers_from_its_own_node_and_from_the_other(lab):
    cluster.apply(lab, SERVICE, SERVER)
    try:
        cluster.ready(lab, "hello")
        ip = cluster.get(lab, "service/hello")["spec"]["clusterIP"]
        for agent in cluster.get(lab, "pods", "-n", "kube-system")["items"]:
            # The agents are on the host network: this is the node's own way to a Service.
            words = ("-n", "kube-system", "exec", agent["metadata"]["name"], "--")
            answer = cluster.kubectl(lab, *words, "python3", "-c", FETCH, f"http://{ip}/")
            assert answer.strip() == "200", agent["spec"]["nodeName"]
        # From the pod itself: same node, through the bridge and back.
        answer = cluster.kubectl(
            lab, "exec", "hello", "--", "python3", "-c", FETCH, f"http://{ip}/"
        )
        assert answer.strip() == "200"
        assert '"GET / HTTP/1.1" 200' in cluster.kubectl(lab, "logs", "hello")
    finally:
        cluster.kubectl(lab, "delete", "pod/hello", "service/hello", "--grace-period=0", "--force")


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_objects_are_read_as_kubectl_prints_them(lab, words):
    """Their status and version may change in between, what they are does not."""
    printed = json.loads(cluster.kubectl(lab, "get", *words, "-o", "json"))
    assert facts(cluster.get(lab, *words)) == facts(printed)


def test_a_new_object_is_applied_as_kubectl_applies_it(lab):
    """Its annotations, its defaults, its manager; and it may be applied again, by either."""
    made = {}
    for name, applied in (("by-kubectl", by_kubectl), ("by-the-lab", cluster.apply)):
        metadata = {"name": name, "labels": {"a": "1", "b": "2"}}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": UNSCHEDULED}
        try:
            applied(lab, document)
            text = cluster.kubectl(lab, "get", f"pod/{name}", "-o", "json", "--show-managed-fields")
            del metadata["labels"]["b"]
            cluster.apply(lab, document)
            assert "b" not in cluster.get(lab, f"pod/{name}")["metadata"]["labels"]
        finally:
            cluster.kubectl(lab, "delete", "pod", name, "--ignore-not-found")
        made[name] = lasting(json.loads(text.replace(name, "x")))
    assert made["by-kubectl"] == made["by-the-lab"]


def by_kubectl(lab, document):
    cluster.kubectl(lab, "apply", "-f", "-", stdin=json.dumps(document))


def lasting(document):
    """An object without what is another with each one."""
    metadata = document["metadata"]
    managers = [(each["manager"], each["operation"]) for each in metadata.pop("managedFields")]
    annotation = json.loads(metadata["annotations"].pop(LAST_APPLIED))
    for own in ("uid", "resourceVersion", "creationTimestamp"):
        del metadata[own]
    return document, managers, annotation["spec"]


def facts(document):
    """What of an object or the objects of a list nobody changes here."""
    return [
        (each["apiVersion"], each["kind"], each["metadata"]["uid"], each.get("spec"), sorted(each))
        for each in document.get("items", [document])
    ]
