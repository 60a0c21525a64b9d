"""Pools beside each other, and pools of namespaces."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.ipam.rules.pools import overlaps, refuse_namespace
from kube_rdma.model import ipam
from tests.kit.refusals import refusal


def pool(name, *subnets, network="default", **more):
    return ipam.IPPool(
        name, tuple(ipam.IPRange(ip_network(each)) for each in subnets), network, **more
    )


def test_pools_of_a_network_that_share_addresses_are_named():
    (said,) = overlaps([pool("b", "10.0.0.128/25"), pool("a", "10.0.0.0/24")])
    assert said.startswith("IPPool a and IPPool b both give 10.0.0.129-10.0.0.254 of network")


ONE = ipam.Span(ip_address("10.0.0.1"), ip_address("10.0.0.1"))


@pytest.mark.parametrize(
    "other",
    [
        pool("b", "10.0.0.1/32", network="blue"),
        pool("b", "10.0.1.0/24", "fd00::/64"),
        pool("b", "10.0.0.0/29", excludes=(ONE,)),
    ],
    ids=["another network", "neighbours", "excluded"],
)
def test_pools_apart_are_not_named(other):
    assert overlaps([pool("a", "10.0.0.1/32"), other]) == ()


NAMESPACES = st.sampled_from(["a", "b", "team-a", ""])
OPEN_TO = st.lists(NAMESPACES.filter(bool), max_size=3, unique=True).map(tuple)


@given(st.lists(OPEN_TO, min_size=1, max_size=3), NAMESPACES)
def test_a_pool_with_namespaces_is_for_their_pods_alone(open_to, namespace):
    """One pool of a request that is closed refuses it, by name; unnamed callers get none of it."""
    pools = {f"p{n}": pool(f"p{n}", "10.0.0.0/24", namespaces=of) for n, of in enumerate(open_to)}
    nics = tuple(ipam.NicRequest(f"net{n}", name) for n, name in enumerate(pools))
    closed = [name for name, of in zip(pools, open_to, strict=True) if of and namespace not in of]
    request = ipam.AddressRequest("c", "uid", nics, namespace)
    if not closed:
        refuse_namespace(request, pools)
        return
    refused = refusal(refuse_namespace, request, pools)
    assert f"IPPool {closed[0]} is for pods of" in str(refused)
    assert f"namespace {namespace}" in str(refused) or not namespace


def test_a_pool_that_is_not_there_is_left_to_who_grants():
    refuse_namespace(ipam.AddressRequest("c", "uid", (ipam.NicRequest("net1", "gone"),), "a"), {})
