"""CIDRPools of nv-ipam, and the IPPools that mean the same."""

from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Refused
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.ipam import NodeSlice, PerNode, Route, Span

# The examples of nvidia-k8s-ipam's README, section CIDRPool, by what they say.
PAIRS = {"cidr": "192.168.100.0/24", "gatewayIndex": 0, "perNodeNetworkPrefix": 31}
WIDE = {"cidr": "192.168.0.0/16", "gatewayIndex": 1, "perNodeNetworkPrefix": 24}


def load(**spec):
    head = {"apiVersion": "nv-ipam.nvidia.com/v1alpha1", "kind": "CIDRPool"}
    body = {"metadata": {"name": "pool1", "namespace": "kube-system"}, "spec": spec}
    return ip_pool.translate_cidr_pool(of_value(head | body, "pools.yaml"))


@pytest.mark.parametrize(
    ("spec", "per_node"),
    [
        (PAIRS, PerNode(31, 0)),
        (WIDE, PerNode(24, 1)),
        (WIDE | {"gatewayIndex": 0}, PerNode(24)),
        ({"cidr": "fd52:2eb5:44::/48", "perNodeNetworkPrefix": 120}, PerNode(120)),
    ],
)
def test_a_prefix_for_each_node(spec, per_node):
    """Its length, and the place of the router; index 0 is a router in a pair alone."""
    made = load(**spec)
    (one,) = made.pool.ranges
    assert (one.subnet, one.per_node) == (ip_network(spec["cidr"]), per_node)
    assert bool(made.notes) == ("gatewayIndex" in spec and per_node.gateway is None)


def test_static_allocations_exclusions_and_routes():
    """Nodes keep theirs, a prefix without a node is nobody's, and routes lead to each router."""
    made = load(
        **WIDE,
        staticAllocations=[
            {"nodeName": "node-33", "prefix": "192.168.33.0/24", "gateway": "192.168.33.10"},
            {"prefix": "192.168.1.0/24"},
        ],
        exclusions=[{"startIP": "192.168.0.10", "endIP": "192.168.0.20"}],
        perNodeExclusions=[{"startIndex": 2, "endIndex": 9}],
        routes=[{"dst": "5.5.0.0/16"}],
        defaultGateway=True,
    )
    pool = made.pool
    (one,) = pool.ranges
    chosen = NodeSlice("node-33", ip_network("192.168.33.0/24"), ip_address("192.168.33.10"))
    assert one.per_node.nodes == (chosen,)
    assert pool.excludes[0] == Span(ip_address("192.168.0.10"), ip_address("192.168.0.20"))
    assert pool.excludes[1] == Span(ip_address("192.168.1.0"), ip_address("192.168.1.255"))
    assert pool.excludes[2] == Span(ip_address("192.168.0.2"), ip_address("192.168.0.9"))
    assert len(pool.excludes) == 2 + 256
    assert pool.routes == (Route(ip_network("0.0.0.0/0")), Route(ip_network("5.5.0.0/16")))
    assert ip_pool.decode(ip_pool.encode(pool)).ranges[0].per_node == one.per_node


def test_what_an_ip_pool_cannot_say_is_told():
    """A selector of nodes is a note; exclusions of thousands of prefixes are refused."""
    selector = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    (note,) = load(**PAIRS, nodeSelector=selector).notes
    assert note.startswith("nodeSelector is not translated")
    places = [{"startIndex": 0, "endIndex": 0}]
    wide = {"cidr": "10.0.0.0/8", "perNodeNetworkPrefix": 24, "perNodeExclusions": places}
    with pytest.raises(Refused, match=r"spec\.perNodeExclusions: .* of 65536 prefixes"):
        load(**wide)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"perNodeNetworkPrefix": 16}, "no slices of length 16"),
        ({"perNodeNetworkPrefix": "31"}, "spec.perNodeNetworkPrefix"),
        ({"cidr": "192.168.100.1/24"}, "has bits set behind its length"),
        ({"perNodePrefix": 31}, "there is no such field"),
    ],
)
def test_a_wrong_cidr_pool_is_refused(more, says):
    with pytest.raises(Refused, match=says):
        load(**(PAIRS | more))
