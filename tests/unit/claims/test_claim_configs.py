"""The configuration with which a claim was allocated, of class and claim, of any driver."""

from __future__ import annotations

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_CLAIM
from kube_rdma.claims.cluster import allocated
from kube_rdma.model.claims.claim import ClaimName, ConfigOrigin, OpaqueConfig
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_testing.cluster.server import FakeServer


async def configs(*entries):
    server = FakeServer([RESOURCE_CLAIM])
    server.put(
        RESOURCE_CLAIM,
        {
            "metadata": {"name": "c", "namespace": "team"},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": [], "config": list(entries)}}},
        },
    )
    claim = await allocated(Cluster(server.line()), ClaimName("team", "c", ""))
    return claim.configs


def opaque(driver, parameters):
    return {"opaque": {"driver": driver, "parameters": parameters}}


async def test_configurations_come_in_their_order_with_who_wrote_them():
    made = await configs(
        {"source": "FromClass", "requests": ["nic"], **opaque(DRIVER, {"mtu": 9000})},
        {"source": "FromClaim", **opaque("gpu.nvidia.com", {"sharing": "mps"})},
    )
    assert made == (
        OpaqueConfig(ConfigOrigin.CLASS, DRIVER, b'{"mtu":9000}', ("nic",)),
        OpaqueConfig(ConfigOrigin.CLAIM, "gpu.nvidia.com", b'{"sharing":"mps"}'),
    )


async def test_a_configuration_of_a_kind_that_is_not_known_is_left_out():
    """A later Kubernetes may have others than opaque."""
    assert await configs({"source": "FromClaim", "structured": {}}) == ()
