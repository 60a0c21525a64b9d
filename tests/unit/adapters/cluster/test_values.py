"""Quantities, codecs, evictions, and what an object may be made of."""

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client import wire
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE, NodeObjectSpec, node_state, whole
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET, POD
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.verify.cluster import BANDWIDTH_CHECK, seen_check
from tests.kit.api_server import QUICK, TRIAL, Spec


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1k", 1000),
        ("3920m", 3),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("2e3", 2000),
        ("1E", 10**18),
        ("12345678901", 12345678901),
        (".5k", 500),
        ("100n", 0),
    ],
)
def test_quantities(text, value):
    assert whole(text) == value


@pytest.mark.parametrize("text", ["", "k", "1kk", "1 k", "1K", "one", ".", "-"])
def test_what_is_no_quantity(text):
    with pytest.raises(ValueError, match="not a quantity"):
        whole(text)


@pytest.mark.parametrize("text", ["1e99999999999", "1e-37", "9" * 65, "0." + "0" * 64])
def test_a_number_that_nobody_can_hold_is_no_quantity(text):
    """Kubernetes keeps none of more than 19 digits; to write this one out would fill the memory."""
    with pytest.raises(ValueError, match="not a quantity"):
        whole(text)


def test_a_node_with_an_amount_that_is_no_quantity_is_read():
    status = b'{"allocatable": {"rdma/hca": "2k", "rdma/nic": "many"}}'
    stored = wire.stored(NODE, b'{"metadata": {"name": "n"}, "spec": {}, "status": %s}' % status)
    assert node_state(stored).allocatable == (("rdma/hca", 2000), ("rdma/nic", 0))


def test_a_claim_with_an_amount_that_is_no_quantity_is_refused():
    result = b'{"driver": "a", "consumedCapacity": {"slots": "many"}}'
    status = b'{"allocation": {"devices": {"results": [%s]}}}' % result
    claim = b'{"metadata": {"name": "c"}, "status": %s}' % status
    with pytest.raises(wire.Unreadable, match="not a quantity: 'many'"):
        wire.stored(RESOURCE_CLAIM, claim)


def test_a_kind_that_is_only_read_is_not_written():
    """A Node decoded in part must not be written back in part."""
    with pytest.raises(TypeError, match="only reads"):
        wire.document(NODE, Wanted("node-1", spec=NodeObjectSpec()))


def test_an_object_that_is_nested_too_deeply_is_named_and_its_neighbours_are_read():
    """Whoever may create one object of a kind must not blind the controller to all others."""
    deep = b"[" * 1100 + b"]" * 1100
    good = wire.document(TRIAL, Wanted("good", spec=Spec()))
    bad = b'{"metadata": {"name": "bad", "namespace": "b"}, "spec": {"template": %s}}' % deep
    listed = b'{"metadata": {"resourceVersion": "7"}, "items": [%s, %s]}' % (bad, good)
    page = wire.page(listed)
    first, second = page.items
    assert page.version == "7"
    assert wire.stored(TRIAL, second).name == "good"
    assert wire.identity(bad).key == wire.identity(first).key == ("b", "bad")
    change, item = wire.line(b'{"type": "MODIFIED", "object": %s}' % bad)
    assert change == "MODIFIED"
    for document in (bad, first, item):
        assert "nested deeper" in seen_check(wire.stored(BANDWIDTH_CHECK, document)).refusal
        with pytest.raises(wire.Unreadable, match=r"DaemonSet b/bad: .* nested deeper"):
            wire.stored(DAEMON_SET, document)


async def test_an_eviction_that_a_budget_holds_is_answered_at_once(server, line):
    """Its 429 says when to come again too, and others wait for their turn meanwhile."""

    async def sleep(seconds):
        raise AssertionError(f"it waits for {seconds} s")

    pods = Pods(Cluster(line, replace(QUICK, sleep=sleep)))
    server.put(POD, {"metadata": {"name": "a", "namespace": "default"}})
    server.protected.add(("default", "a"))
    pod = await pods.read("default", "a")
    with pytest.raises(Unavailable, match="disruption budget"):
        await pods.evict(pod)
