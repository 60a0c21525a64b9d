"""A wait ends at once when what it waits for can never come, and says why."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster


def pod(name, **container):
    """A pod of one container on any node."""
    spec = {"containers": [{"name": "main", "image": "kube-rdma.io/lab/verbs:1", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def start(native):
    """Start pods; they are removed at the end."""
    names = []

    def run(document):
        names.append(document["metadata"]["name"])
        cluster.apply(native, document)

    yield run
    cluster.kubectl(native, "delete", "pod", *names, "--grace-period=0", "--force")


def test_an_image_that_no_node_has_ends_a_wait(native, start):
    start(pod("no-image", image="kube-rdma.io/lab/nowhere:1", imagePullPolicy="Never"))
    with pytest.raises(Unavailable, match="pod no-image: container main has no image"):
        cluster.ready(native, "no-image")


def test_a_container_that_crashes_by_its_own_fault_ends_a_wait(native, start):
    never = {"exec": {"command": ["false"]}}  # without a probe it were ready for a moment
    start(pod("crashes", command=["sh", "-c", "exit 3"], readinessProbe=never))
    with pytest.raises(Unavailable, match="crashes again and again, last with exit code 3"):
        cluster.ready(native, "crashes")


def test_a_pod_that_takes_its_time_is_waited_for(native, start):
    """Its probe fails for a while, and that ends nothing."""
    probe = {"exec": {"command": ["sh", "-c", "[ -e /tmp/late ]"]}, "periodSeconds": 1}
    script = "sleep 3; touch /tmp/late; exec sleep 1000000"
    start(pod("late", command=["sh", "-c", script], readinessProbe=probe))
    cluster.ready(native, "late")
