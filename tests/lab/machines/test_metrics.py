"""A pod's traffic in the agent's metrics, under its name within one scrape; bytes are the kernel's.

Seed S3's pods, each with a Soft-RoCE device of its own. What Prometheus makes of it:
tests/lab/native/test_prometheus.py.
"""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube_rdma.metrics.rules import families
from kube_rdma_lab import cluster
from kube_rdma_lab.demo.perftest import in_pod, measure
from tests.documents.on_lab import followed
from tests.kit import mpi

pytestmark = pytest.mark.slow
AGENT, NAMESPACE, PORT = "rdma-shared-dp-ds", "mlnx-network-operator", 9879
NODES = ("node-1", "node-2")
SCRAPE = f"busybox wget -qO- http://127.0.0.1:{PORT}/metrics"
SERVER, CLIENT = "rdma-test-pod-1", "rdma-test-pod-2"
OWN = "kube-rdma.io/network-status"
WRITES, SIZE = 200, 65536
SCRIPT = 'exec ib_write_bw -d "$DEVICE" -x "$GID" -F --report_gbits -q 1 "$@"'
WRITE_TEST = ("sh", "-c", SCRIPT, "perftest", "-n", str(WRITES), "-s", str(SIZE))


@pytest.fixture(scope="module")
def measured(lab):
    """Seed S3's two pods; the agents answer on each node, and are new below the pods for it."""
    options = (f"--metrics-address=127.0.0.1:{PORT}", "--metrics-pods")
    path = "/spec/template/spec/containers/0/args/-"
    added = [{"op": "add", "path": path, "value": option} for option in options]
    with followed(lab, "examples/s3-network/README.md", part=slice(-1)):
        words = ("patch", "daemonset", AGENT, "-n", NAMESPACE, "--type=json", "-p")
        cluster.kubectl(lab, *words, json.dumps(added))
        cluster.rollout(lab, AGENT, NAMESPACE)
        for node in NODES:
            cluster.until_on_node(lab, node, f"{SCRAPE} >/dev/null")
        yield lab


def own(lab, pod):
    """The pod's node, and what its annotation says of net1."""
    found = cluster.get(lab, f"pod/{pod}")
    (status,) = json.loads(found["metadata"]["annotations"][OWN])
    return found["spec"]["nodeName"], status


def scraped(lab, node):
    """Samples by family of one scrape."""
    text = cluster.shell(lab, node, SCRAPE)
    return {one.name: one.samples for one in text_string_to_metric_families(text)}


def sent(lab, pod):
    """Bytes that the pod's device has sent, by the metrics and by the kernel itself."""
    node, status = own(lab, pod)
    samples = scraped(lab, node)[families.POD_HW_COUNTER.name]
    (told,) = (
        one.value
        for one in samples
        if (one.labels["pod"], one.labels["counter"]) == (pod, "sent_bytes")
    )
    return told, mpi.sent(lab, node, status["rdmaDevice"])


def endpoint(lab, pod):
    """A pod as a place to run perftest in, on its own device and GID."""
    _, status = own(lab, pod)
    words = ("env", f"DEVICE={status['rdmaDevice']}", f"GID={status['gidIndex']}")
    (address,) = status["ips"]
    return in_pod(lab, pod, address.partition("/")[0], *words)


def test_a_pod_s_bytes_are_there_at_the_next_scrape(measured):
    before, _ = sent(measured, CLIENT)
    server, client = (endpoint(measured, pod) for pod in (SERVER, CLIENT))
    assert measure(measured, server, client, WRITE_TEST).iterations == WRITES
    after, of_kernel = sent(measured, CLIENT)
    assert after == of_kernel
    assert after - before > WRITES * SIZE


def test_no_pod_has_the_bytes_of_another(measured):
    """Each holds a share of the same card, and has its own device alone."""
    for pod in (SERVER, CLIENT):
        node, status = own(measured, pod)
        samples = scraped(measured, node)[families.POD_DEVICE.name]
        devices = {one.labels["device"] for one in samples if one.labels["pod"] == pod}
        access = {one.labels["access"] for one in samples if one.labels["device"] in devices}
        assert (devices, access) == ({status["rdmaDevice"]}, {"own"})
