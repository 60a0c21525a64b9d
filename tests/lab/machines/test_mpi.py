"""MPI over UCX between two pods, whose programs find card and GID without being told any variable.

The card's counters say which way its bytes went. In S1's modes: test_vke_network.
"""

import json
import re

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from tests.documents.on_lab import followed
from tests.kit import mpi

pytestmark = pytest.mark.slow  # test_vke_network has a ping-pong in every run
NEAR, FAR = "rdma-test-pod-2", "rdma-test-pod-1"
OWN = "kube-rdma.io/network-status"


@pytest.fixture(scope="module")
def pods(lab):
    """The two pods of seed S3, on two nodes; the first lets the second in."""
    with followed(lab, "examples/s3-network/README.md", part=slice(-1)):
        mpi.let_in(lab, NEAR, FAR)
        yield lab


def device(lab, pod):
    """The node and the pod's own RDMA device, as its annotation has it."""
    found = cluster.get(lab, f"pod/{pod}")
    (own,) = json.loads(found["metadata"]["annotations"][OWN])
    return found["spec"]["nodeName"], own["rdmaDevice"]


def test_mpi_takes_the_pod_s_own_card_by_itself(pods):
    """Its bytes are the card's: of each size both halves send so many."""
    before = [mpi.sent(pods, *device(pods, pod)) for pod in (NEAR, FAR)]
    sizes = mpi.ping_pong(pods, NEAR, FAR)
    assert max(sizes) >= mpi.LARGEST
    after = [mpi.sent(pods, *device(pods, pod)) for pod in (NEAR, FAR)]
    for first, last in zip(before, after, strict=True):
        assert last - first > mpi.ROUNDS * sum(sizes)


def test_a_sum_over_both_pods_goes_over_their_cards(pods):
    """Each half sends its part of every message, of the largest at least all of it."""
    before = [mpi.sent(pods, *device(pods, pod)) for pod in (NEAR, FAR)]
    sizes = mpi.allreduce(pods, NEAR, FAR)
    assert max(sizes) > mpi.LARGEST
    after = [mpi.sent(pods, *device(pods, pod)) for pod in (NEAR, FAR)]
    for first, last in zip(before, after, strict=True):
        assert last - first > max(sizes)


def test_a_card_that_is_not_the_pod_s_is_of_no_use(pods):
    """A variable of the user's wins over the file; the node's own card moves nothing for a pod."""
    with pytest.raises(Unavailable):
        mpi.ping_pong(pods, NEAR, FAR, "-x UCX_NET_DEVICES=rxe0:1 -x UCX_TLS=rc")


def test_ucx_shows_no_other_card(pods):
    """Of all devices in the pod's sysfs."""
    found = set(re.findall(r"Device: (rxe\S*):1", mpi.shell(pods, NEAR, "ucx_info -d")))
    assert found == {device(pods, NEAR)[1]}
    assert len(mpi.shell(pods, NEAR, "ls /sys/class/infiniband").split()) > 1
