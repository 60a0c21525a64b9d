"""Services and pods have names in pods on every node; a name that nobody has is answered too."""

import pytest

from kube_rdma_lab import cluster, dns, waiting
from kube_rdma_lab.build.images import VERBS

SERVICE = "names"
HEADLESS = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": SERVICE},
    "spec": {"clusterIP": "None", "selector": {"app": SERVICE}},
}


def pod(node):
    """A pod that does nothing."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"names-{node}", "labels": {"app": SERVICE}},
        "spec": {"nodeName": node, "containers": [{"name": "shell", "image": VERBS}]},
    }


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes: names need no card."""
    return native


@pytest.fixture(scope="module")
def pods(lab):
    """A pod on each node behind one Service without an address of its own; their addresses."""
    documents = [pod(node.name) for node in lab.topology.nodes]
    names = [document["metadata"]["name"] for document in documents]
    cluster.apply(lab, HEADLESS, *documents)
    cluster.ready(lab, *names)
    yield {name: cluster.get(lab, f"pod/{name}")["status"]["podIP"] for name in names}
    cluster.kubectl(lab, "delete", "service", SERVICE)
    cluster.kubectl(lab, "delete", "pod", *names, "--grace-period=0", "--force")


def addresses(lab, name, server):
    """What the resolver of a pod's own C library answers; Unavailable if there is no such name."""
    answer = cluster.kubectl(lab, "exec", name, "--", "getent", "ahostsv4", server)
    return {line.split()[0] for line in answer.splitlines()}


def test_services_have_names_on_every_node(lab, pods):
    """Short ones in the pod's own namespace, with the namespace in others, or whole."""
    for name in pods:
        for server in ("kubernetes", f"kubernetes.default.svc.{dns.DOMAIN}."):
            assert addresses(lab, name, server) == {"10.96.0.1"}
        assert addresses(lab, name, "kube-dns.kube-system") == {dns.SERVICE_IP}


def test_a_headless_service_has_the_addresses_of_its_pods(lab, pods):
    """As a training job finds its workers."""
    every = set(pods.values())
    assert len(every) == len(lab.topology.nodes)

    def seen():
        return all(addresses(lab, name, SERVICE) == every for name in pods)

    waiting.until(lab, "the addresses of all pods", seen)


@pytest.mark.parametrize("nobody", [f"nobody.default.svc.{dns.DOMAIN}", "example.org"])
def test_a_name_that_nobody_has_is_answered(lab, pods, nobody):
    """No silence, through which every program would wait."""
    for name in pods:
        script = f"busybox nslookup {nobody} || true"
        answer = cluster.kubectl(lab, "exec", name, "--", "sh", "-c", script)
        assert f"can't find {nobody}: NXDOMAIN" in answer


def test_kubelets_miss_no_dns(lab, pods):
    """The warning for every pod without one."""
    events = cluster.get(lab, "events", "-A", "--field-selector=reason=MissingClusterDNS")
    assert events["items"] == []
