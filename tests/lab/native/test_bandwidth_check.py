"""BandwidthChecks at a real API server: what it refuses, and what the controller may not do there.

Native nodes have no verbs, so nothing is measured here; examples/s3-network has figures.
"""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network"
SPACE = "mlnx-network-operator"
PODS = ("checked-1", "checked-2")
SELECTOR = {"test": "checked"}
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
RIGHT = "checks"


@pytest.fixture(scope="module")
def lab(native):
    """The controller of seed S3, and two pods without a card."""
    scc.install_kinds(native)
    cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    cluster.kubectl(native, "apply", "-f", f"{EXAMPLE}/controller.yaml")
    words = ("-n", SPACE, "deployment/kube-rdma-controller", "--for=condition=Available")
    cluster.wait(native, *words)
    cluster.apply(native, *(labelled(name) for name in PODS))
    cluster.ready(native, *PODS)
    yield native
    gone = ("--ignore-not-found", "--wait")
    cluster.kubectl(native, "delete", "bandwidthchecks", "--all", *gone)
    cluster.kubectl(native, "delete", "pods", "-l", "test=checked", *gone)
    cluster.kubectl(native, "delete", "role,rolebinding", RIGHT, *gone)
    cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/controller.yaml", *gone)
    cluster.kubectl(native, "delete", "namespace", SPACE, *gone)


def labelled(name):
    document = sleeping_pod(name)
    document["metadata"]["labels"] = SELECTOR
    return document


def check(name, **spec):
    meta = {"name": name, "namespace": "default"}
    kinds = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "BandwidthCheck"}
    return {**kinds, "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "say which pods run already"),
        ({"selector": {}}, "say which pods run already"),
        ({"selector": SELECTOR, "template": TEMPLATE}, "say which pods run already"),
        ({"selector": SELECTOR, "nodes": ["node-1"]}, "nodes are for copies"),
        ({"selector": SELECTOR, "size": 8, "allSizes": True}, "size and allSizes exclude"),
        ({"selector": SELECTOR, "latency": True, "minBandwidth": "8G"}, "minBandwidth is for"),
        ({"selector": SELECTOR, "latency": True, "minGbps": 8}, "minBandwidth is for"),
        ({"selector": SELECTOR, "maxLatency": "8us"}, "minBandwidth is for"),
        ({"selector": SELECTOR, "maxMicroseconds": 8}, "minBandwidth is for"),
        ({"selector": SELECTOR, "minBandwidth": "8G", "minGbps": 8}, "minGbps is the old form"),
        ({"selector": SELECTOR, "minBandwidth": "8"}, "minBandwidth"),
        ({"selector": SELECTOR, "everySeconds": 1}, "everySeconds"),
        ({"template": {"spec": {"containers": []}}}, "containers"),
        ({"selector": SELECTOR, "colour": "red"}, "colour"),
    ],
)
def test_what_no_controller_could_do_is_refused_at_once(lab, spec, words):
    with pytest.raises(Unavailable, match=words):
        create(lab, check("refused", **spec))


def create(lab, document):
    words = ("create", "--validate=strict", "-f", "-")
    cluster.kubectl(lab, *words, stdin=json.dumps(document))


def result(lab):
    status = cluster.get(lab, "bandwidthcheck", "trial")["status"]
    (well,) = [each for each in status["conditions"] if each["type"] == "Well"]
    assert (well["status"], status["state"]) == ("False", "NotMeasured")
    assert well["message"] == status["result"]
    return status["result"]
