"""A Job of pods on their nodes' own networks, in mode hca, measures the cards of its nodes."""

import pytest

from kube_rdma.model import preflight as model
from kube_rdma_lab import cluster, waiting
from tests.kit import manifests
from tests.kit.gangs import LOSS, result
from tests.kit.pods import sleeping_pod
from tests.kit.two_rails import installed

JOB, NODES = "hosts", [f"node-{number}" for number in range(1, 5)]


@pytest.fixture(scope="module")
def hosts(leaves):
    """Agents of mode hca, and a controller that plans."""
    values = ("controller.preflight=true",)
    with installed(leaves, *values, preset="rdma-ib", resource="rdma/ib", shares="1k"):
        yield leaves


@pytest.fixture
def job(hosts):
    """A Job with a pod on each node; nothing of it is left afterwards."""
    labels = {"job": JOB}
    other_nodes = {
        "labelSelector": {"matchLabels": labels},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [other_nodes]}}
    asks = {model.REQUEST: "ring", model.TOLERANCE: "90%"}  # one machine has all processors
    pod = sleeping_pod("", limits={"rdma/ib": 1}, annotations=asks, hostNetwork=True)
    spec = {**pod["spec"], "affinity": apart, "restartPolicy": "Never"}
    template = {"metadata": {"annotations": asks, "labels": labels}, "spec": spec}
    counts = {"parallelism": len(NODES), "completions": len(NODES), "backoffLimit": 0}
    cluster.apply(
        hosts, manifests.manifest("batch/v1", "Job", JOB, {**counts, "template": template})
    )
    yield
    cluster.kubectl(hosts, "delete", f"job/{JOB}", "--cascade=foreground", "--wait")
    cluster.kubectl(hosts, "delete", "bandwidthchecks", "--all")


@pytest.fixture
def lossy(hosts):
    """A node that loses a fifth of what its cards get."""
    cluster.shell(hosts, NODES[1], f"iptables -I INPUT {LOSS}")
    yield NODES[1]
    cluster.shell(hosts, NODES[1], f"iptables -D INPUT {LOSS}")


def test_all_cards_of_good_nodes_are_measured_and_the_gang_starts(hosts, job):
    status = waiting.until(hosts, "the verdict", lambda: result(hosts))
    assert (status["state"], status["pairsMeasured"]) == ("Well", 2 * len(NODES))
    cluster.wait(hosts, "pods", f"-l=job={JOB}", "--for=condition=Ready")


@pytest.mark.slow
def test_the_cards_of_a_node_that_loses_packets_are_named(hosts, lossy, job):
    status = waiting.until(hosts, "the verdict", lambda: result(hosts))
    assert status["state"] == "NotWell"
    assert {one["node"] for one in status["suspects"]} == {lossy}
    cluster.wait(hosts, f"job/{JOB}", "--for=condition=Failed")
