"""Every way in which a pod's networks cannot be attached, by name.

Each is the wishes, the shares, the node and the leases; attach_refusals.txt holds what we say.
"""

from ipaddress import ip_address, ip_network

from kube_rdma.model.attachment import (
    AskedAddress,
    HostNetwork,
    NetworkKind,
    NetworkRoute,
    StaticAddress,
)
from kube_rdma.model.pool import Mode
from kube_rdma.model.survey import NamespaceMode

from .pod_networks import card, given, network, node, share, wish

ONE, TWO, SOFT = card(1), card(2), card(1, soft=True)
WIDE = card(1, link_type="infiniband")
EXCLUSIVE = NamespaceMode.EXCLUSIVE
MACVLAN, IPVLAN, IPOIB, DEVICE = (
    NetworkKind.MACVLAN,
    NetworkKind.IPVLAN,
    NetworkKind.IPOIB,
    NetworkKind.DEVICE,
)


def pod(*wishes, shares=None, on=None, leases=()):
    """A case; without more it holds a share of the first card on a node that has two."""
    return wishes, [share(ONE)] if shares is None else shares, on or node(ONE, TWO), leases


def of_kind(kind, **facts):
    """A wish for a network of this kind."""
    return wish(of=network("net", kind, **facts))


def static(text):
    """A network with an address of its own."""
    return network(static=(StaticAddress(ip_address(text), 24),))


TEN = ip_address("10.0.0.1")

CASES = {
    "port mappings": pod(wish(capabilities=(("portMappings", b"[]"),))),
    "bandwidth and GUID": pod(
        wish(capabilities=(("bandwidth", b"{}"),), guid="02:00:00:00:00:00:00:01")
    ),
    "MAC on ipvlan": pod(wish(of=network(kind=IPVLAN), mac="02:00:00:00:00:01")),
    "ipvlan in mode l3": pod(of_kind(IPVLAN, mode="l3")),
    "address without a length": pod(wish(addresses=(AskedAddress(TEN),))),
    "neither master nor resource": pod(of_kind(MACVLAN, resource=None)),
    "no share": pod(wish(), shares=[]),
    "no share of anything": pod(of_kind(NetworkKind.CARD, resource=None), shares=[]),
    "share of another resource": pod(wish(of=network(resource="rdma/b"))),
    "more networks than shares": pod(wish(0), wish(1), wish(2), shares=[share(ONE), share(TWO)]),
    "more networks than cards of a pool": pod(
        wish(0), wish(1), wish(2), shares=[share(ONE, TWO, mode=Mode.HCA)]
    ),
    "more networks than shares, no resource": pod(
        wish(0, network(resource=None)), wish(1, network(resource=None))
    ),
    "master is not the card that was given": pod(
        of_kind(MACVLAN, master="ens2f0"), shares=[share(ONE)]
    ),
    "device is not the card that was given": pod(wish(device_id="0000:99:00.0")),
    "card is in another pod": pod(wish(), on=node(TWO)),
    "no such master": pod(of_kind(MACVLAN, master="ens9f9", resource=None)),
    "no such device": pod(of_kind(DEVICE, device="0000:99:00.0", resource=None)),
    "node without interfaces": pod(
        of_kind(MACVLAN, master="ens2f0", resource=None),
        on=HostNetwork((), NamespaceMode.SHARED),
    ),
    "master is down": pod(wish(), on=node(ONE, up=False)),
    "MTU above the master's": pod(of_kind(NetworkKind.CARD, mtu=9000), on=node(ONE, mtu=1500)),
    "macvlan on InfiniBand": pod(of_kind(MACVLAN), shares=[share(WIDE)], on=node(WIDE)),
    "ipvlan on InfiniBand": pod(of_kind(IPVLAN), shares=[share(WIDE)], on=node(WIDE)),
    "ipoib on Ethernet": pod(of_kind(IPOIB)),
    "link with the node's default route": pod(
        of_kind(DEVICE, device="ens1f0", resource=None), on=node(ONE, default_route=True)
    ),
    "link of a shared card": pod(of_kind(DEVICE)),
    "link taken twice": pod(
        wish(0, network("a", DEVICE, device="ens2f0", resource=None)),
        wish(1, network("b", MACVLAN, master="ens2f0", resource=None)),
    ),
    "soft card in RDMA namespace mode exclusive": pod(
        wish(), shares=[share(SOFT, mode=Mode.EXCLUSIVE)], on=node(SOFT, mode=EXCLUSIVE)
    ),
    "shared card in RDMA namespace mode exclusive": pod(wish(), on=node(ONE, mode=EXCLUSIVE)),
    "address taken twice": pod(
        wish(0, static("10.0.0.7")),
        wish(1, static("10.0.0.7")),
        shares=[share(ONE), share(TWO)],
    ),
    "address of the pool is a static one": pod(
        wish(0, static("10.0.0.7")), leases=[given(1, "10.0.0.7/24")]
    ),
    "two default routes": pod(
        wish(0, default_routes=(TEN,)),
        wish(1, default_routes=(TEN,)),
        shares=[share(ONE), share(TWO)],
        leases=[given(1, "10.0.0.7/24"), given(2, "10.0.0.8/24")],
    ),
    "default route out of reach": pod(
        wish(default_routes=(TEN,)), leases=[given(1, "10.0.1.7/24")]
    ),
    "route out of reach": pod(
        wish(of=network(routes=(NetworkRoute(ip_network("10.8.0.0/16"), TEN),))),
        leases=[given(1, "10.0.1.7/24")],
    ),
    "default route without an address": pod(wish(default_routes=(TEN,))),
}
