"""Pods that are evicted."""

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Pods
from tests.kit.api_server import QUICK


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
