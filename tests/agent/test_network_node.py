"""What the real neighbours of pod networks answer, over a fake API server."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from kube_rdma.adapters.cluster.fake import FakeServer
from kube_rdma.adapters.cluster.ip import IP_POOL
from kube_rdma.adapters.cluster.kinds import Wanted
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.model.errors import Unavailable
from kube_rdma.model.ip import IPPool, IPRange, Route
from kube_rdma.programs.agent.network_node import Asked, NetworkNode

POOL = IPPool("rail-0", (IPRange(ip_network("10.9.0.0/24")),))


async def test_a_pool_is_as_the_api_server_has_it_now():
    """A change counts for the next pod."""
    cluster = Cluster(FakeServer((IP_POOL,)).line())
    node = NetworkNode(Asked(cluster, None, dict, None, None))
    with pytest.raises(Unavailable, match="IPPool rail-0 was just deleted"):
        await node.pool("rail-0")
    made = await cluster.create(IP_POOL, Wanted("rail-0", spec=POOL))
    assert not (await node.pool("rail-0")).probe
    routes = (Route(ip_network("10.0.0.0/8"), ip_network("10.9.0.0/24")[1]),)
    await cluster.replace(IP_POOL, replace(made, spec=replace(POOL, probe=True, routes=routes)))
    found = await node.pool("rail-0")
    assert (found.name, found.probe, found.routes) == ("rail-0", True, routes)
