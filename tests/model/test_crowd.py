"""A pool of exactly as many addresses as its pods need, wanted by all nodes at the same time."""

from ipaddress import ip_address, ip_network

import pytest

from kube_rdma.model.ipam import IPPool, IPRange

from .crowd import Crowd

FIRST = ip_address("10.0.0.1")


@pytest.mark.parametrize(
    ("nodes", "pods", "last"), [(25, 10, "10.0.0.250"), (100, 10, "10.0.3.235")]
)
def test_a_pool_of_just_enough_addresses(nodes: int, pods: int, last: str) -> None:
    """All pods are served without a refusal, and few writes are lost to others or given back."""
    span = IPRange(ip_network("10.0.0.0/16"), FIRST, ip_address(last))
    crowd = Crowd(nodes, IPPool("p", (span,)))
    crowd.serve(pods, until=600.0)
    given = [address for member in crowd.members for address in member.given]
    assert len(given) == len(set(given)) == nodes * pods
    assert crowd.refusals == 0
    assert crowd.writes / len(given) <= 1.5
    assert crowd.now < 10.0


def test_who_loses_races_waits_and_is_not_refused() -> None:
    """A slow API server makes queues at the blocks; a pool with enough for all refuses nobody."""
    span = IPRange(ip_network("10.0.0.0/16"), FIRST, ip_address("10.0.3.235"))
    crowd = Crowd(100, IPPool("p", (span,)), service=0.01, way=0.1)
    crowd.serve(8, until=600.0)
    given = [address for member in crowd.members for address in member.given]
    assert len(given) == len(set(given)) == 800
    assert crowd.refusals == 0
