"""Every way in which a pod's networks cannot be attached, by name.

Each is the wishes, the shares, the node and the leases; attach_refusals.txt holds what we say.
"""

from ipaddress import ip_address, ip_network

from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import with_pods
from kube_rdma.model.attach import attachment
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import FunctionSettings, Mode
from kube_rdma.model.survey import NamespaceMode
from tests.kit.pod_networks import SANDBOX, card, given, network, node, planned, share, wish

ONE, TWO, SOFT = card(1), card(2), card(1, soft=True)
WIDE = card(1, link_type="infiniband")
VIRTUAL = card(1, virtual=True)
WIDE_VIRTUAL = card(1, link_type="infiniband", virtual=True)
GUID = "02:00:00:00:00:00:00:01"
EXCLUSIVE = NamespaceMode.EXCLUSIVE
MACVLAN, IPVLAN, IPOIB, DEVICE = (
    attachment.NetworkKind.MACVLAN,
    attachment.NetworkKind.IPVLAN,
    attachment.NetworkKind.IPOIB,
    attachment.NetworkKind.DEVICE,
)


def pod(*wishes, shares=None, on=None, leases=()):
    """A case; without more it holds a share of the first card on a node that has two."""
    return wishes, [share(ONE)] if shares is None else shares, on or node(ONE, TWO), leases


def of_kind(kind, **facts):
    """A wish for a network of this kind."""
    return wish(of=network("net", kind, **facts))


def of_function(each, *, on=None, **facts):
    """A pod with a share of this card that wants its virtual function set up."""
    asked = of_kind(DEVICE, function=FunctionSettings(vlan=100), **facts)
    return pod(asked, shares=[share(each, mode=Mode.SRIOV)], on=on or node(each))


def of_infiniband(each=None, *, of=None, **asked):
    """A pod with a share of this card, or of a virtual function, for ib-sriov."""
    each = each or WIDE_VIRTUAL
    facts = {"function": FunctionSettings(), "infiniband": True, **(of or {})}
    wanted = wish(of=network("net", DEVICE, **facts), **asked)
    return pod(wanted, shares=[share(each, mode=Mode.SRIOV)], on=node(each))


def dumb(each):
    """The card as nobody has given it a GUID."""
    devices = tuple(replace(one, node_guid="0000:0000:0000:0000") for one in each.devices)
    return replace(each, devices=devices)


def alone(each):
    """A node that has the virtual function and not its physical one."""
    found = node(each)
    return replace(found, links=tuple(replace(link, virtual=None) for link in found.links))


def driven(each, driver):
    """The card with another driver."""
    return replace(each, function=replace(each.function, driver=driver))


def physical(each):
    """The card as one that can have virtual functions."""
    where = replace(each.function.position, sriov_total=8)
    return replace(each, function=replace(each.function, position=where))


def static(text):
    """A network with an address of its own."""
    return network(static=(attachment.InterfaceAddress(ip_address(text), 24),))


TEN = ip_address("10.0.0.1")
PLAIN = {"resource": None}
VETH = replace(node(TWO).links[0], index=77, name="veth1234", pci=None, kind="veth")
LENDING = {"resource": None, "lends": True}


def with_link(link, *cards, **facts):
    """A node with the interfaces of these cards, and one link more."""
    bare = node(*cards, **facts)
    return replace(bare, links=(*bare.links, link))


def holder(each):
    """A living pod that has this card."""
    plans = planned([wish()], [share(each, mode=Mode.EXCLUSIVE)], node(each))
    return attachment.Attachment(replace(SANDBOX, pod=PodName("train", "b")), plans)


def nameless(of):
    """The same, where the kernel tells no function of the link (virtio)."""
    (plan,) = of.plans
    take, *rest = plan.steps
    return replace(of, plans=(replace(plan, steps=(replace(take, pci=None), *rest)),))


HOLDERS = [holder(ONE), holder(VIRTUAL)]

CASES = {
    "port mappings": pod(wish(capabilities=(("portMappings", b"[]"),))),
    "bandwidth and GUID": pod(
        wish(of=network(kind=MACVLAN), capabilities=(("bandwidth", b"{}"),), guid=GUID)
    ),
    "GUID of zeros": of_infiniband(guid="00:00:00:00:00:00:00:00"),
    "GUID of ones": of_infiniband(guid="ff:ff:ff:ff:ff:ff:ff:ff"),
    "GUID of a group": of_infiniband(guid="03:00:00:00:00:00:00:01"),
    "malformed GUID in cni-args": of_infiniband(argued_guid="02:00:00:00:00:01"),
    "GUID on Ethernet": pod(
        wish(of=network("net", DEVICE), guid=GUID), shares=[share(ONE, mode=Mode.EXCLUSIVE)]
    ),
    "GUID on a whole card": pod(
        wish(of=network("net", DEVICE), guid=GUID),
        shares=[share(WIDE, mode=Mode.EXCLUSIVE)],
        on=node(WIDE),
    ),
    "GUID on a shared card": pod(wish(guid=GUID), shares=[share(WIDE)], on=node(WIDE)),
    "function without a GUID": of_infiniband(dumb(WIDE_VIRTUAL)),
    "GUID for a share that was bound before": pod(
        wish(of=network("net", DEVICE), guid=GUID),
        shares=[replace(share(WIDE_VIRTUAL, mode=Mode.SRIOV), early=True)],
        on=node(WIDE_VIRTUAL),
    ),
    "MAC of a function without a node GUID": pod(
        wish(mac="02:00:00:00:00:aa"),
        shares=[share(dumb(VIRTUAL), mode=Mode.SRIOV)],
        on=node(VIRTUAL),
    ),
    "MAC on InfiniBand": of_infiniband(mac="02:00:00:00:00:01"),
    "partition on Ethernet": pod(of_kind(DEVICE, pkey=1), shares=[share(ONE, mode=Mode.EXCLUSIVE)]),
    "partition 0": pod(of_kind(IPOIB, pkey=0), shares=[share(WIDE)], on=node(WIDE)),
    "ib-kubernetes has not come yet": of_infiniband(of={"configured": True}),
    "RDMA isolation in RDMA namespace mode shared": of_infiniband(of={"isolated": True}),
    "ib-sriov on Ethernet": of_infiniband(VIRTUAL),
    "ib-sriov on a whole card": of_infiniband(WIDE),
    "MAC on ipvlan": pod(wish(of=network(kind=IPVLAN), mac="02:00:00:00:00:01")),
    "ipvlan in mode l3": pod(of_kind(IPVLAN, mode="l3")),
    "address without a length": pod(wish(addresses=(attachment.AskedAddress(TEN),))),
    "neither master nor resource": pod(of_kind(MACVLAN, resource=None)),
    "no share": pod(wish(), shares=[]),
    "no share of anything": pod(of_kind(attachment.NetworkKind.CARD, resource=None), shares=[]),
    "share of another resource": pod(wish(of=network(resource="rdma/b"))),
    "more networks than shares": pod(wish(0), wish(1), wish(2), shares=[share(ONE), share(TWO)]),
    "more networks than cards of a pool": pod(
        wish(0), wish(1), wish(2), shares=[share(ONE, TWO, mode=Mode.HCA)]
    ),
    "more networks than shares, no resource": pod(
        wish(0, network(resource=None)), wish(1, network(resource=None))
    ),
    "master is not the card that was given": pod(
        of_kind(MACVLAN, device="ens2f0"), shares=[share(ONE)]
    ),
    "device is not the card that was given": pod(wish(device_id="0000:99:00.0")),
    "deviceID beside a master": pod(
        wish(of=network(kind=MACVLAN, device="ens1f0", **PLAIN), device_id="veth1234"),
        on=with_link(VETH, ONE),
    ),
    "deviceID beside a master, of another share": pod(
        wish(of=network(kind=MACVLAN, device="ens1f0"), device_id=TWO.pci),
        shares=[share(ONE), share(TWO)],
    ),
    "deviceID beside a device": pod(
        wish(of=network(kind=DEVICE, device="ens1f0", **PLAIN), device_id="ens2f0"), shares=[]
    ),
    "deviceID of a card without a share": pod(
        wish(of=network(kind=DEVICE, **PLAIN), device_id="ens2f0")
    ),
    "deviceID of a card without a share, for macvlan": pod(
        wish(of=network(kind=MACVLAN, **PLAIN), device_id=TWO.pci), shares=[]
    ),
    "deviceID is a veth": pod(
        wish(of=network(kind=DEVICE, **LENDING), device_id="veth1234"),
        shares=[],
        on=with_link(VETH, ONE),
    ),
    "deviceID is no card": pod(
        wish(of=network(kind=MACVLAN, **LENDING), device_id="eth0"),
        shares=[],
        on=with_link(replace(VETH, name="eth0", kind=""), ONE),
    ),
    "deviceID belongs to a pool": pod(
        wish(of=network(kind=MACVLAN, **LENDING), device_id=ONE.pci),
        shares=[],
        on=replace(node(ONE), owned=((ONE, "rdma/whole"),)),
    ),
    "VLAN with the node's default route": pod(
        of_kind(DEVICE, device="bond0.100", **PLAIN),
        shares=[],
        on=with_link(replace(VETH, name="bond0.100", kind="vlan", default_route=True), ONE),
    ),
    "card is in another pod": pod(wish(), on=node(TWO)),
    "card is in a pod that is known": pod(wish(), on=with_pods(node(TWO), HOLDERS)),
    "virtual function is in another pod": of_function(VIRTUAL, on=node(TWO)),
    "virtual function is in a pod that is known": of_function(
        VIRTUAL, on=with_pods(node(TWO), HOLDERS)
    ),
    "device is in a pod that is known": pod(
        of_kind(DEVICE, device=str(ONE.pci), resource=None),
        shares=[],
        on=with_pods(node(TWO), HOLDERS),
    ),
    "interface is in a pod that is known": pod(
        of_kind(DEVICE, device="ens1f0", resource=None),
        shares=[],
        on=with_pods(node(TWO), [nameless(holder(ONE))]),
    ),
    "device belongs to a pool": pod(
        of_kind(DEVICE, device="ens1f0", resource=None),
        shares=[],
        on=replace(node(ONE), owned=((ONE, "rdma/whole"),)),
    ),
    "device belongs to a pool of several pods": pod(
        of_kind(DEVICE, device="ens1f0", resource=None),
        shares=[],
        on=replace(node(ONE), shared=((ONE, "rdma/hca"),)),
    ),
    "virtual function belongs to vfio": of_function(driven(VIRTUAL, "vfio-pci"), on=node(TWO)),
    "function settings on a card": of_function(ONE),
    "function settings on a physical function": of_function(physical(ONE)),
    "function settings without a share": pod(
        of_kind(DEVICE, device="ens1f0", resource=None, function=FunctionSettings())
    ),
    "function settings without a physical function": of_function(VIRTUAL, on=alone(VIRTUAL)),
    "function settings on InfiniBand": of_function(WIDE),
    "function settings that nobody tells": of_function(VIRTUAL, on=node(VIRTUAL, settings=None)),
    "no such master": pod(of_kind(MACVLAN, device="ens9f9", resource=None)),
    "no such device": pod(of_kind(DEVICE, device="0000:99:00.0", resource=None)),
    "node without interfaces": pod(
        of_kind(MACVLAN, device="ens2f0", resource=None),
        on=attachment.HostNetwork((), NamespaceMode.SHARED),
    ),
    "master is down": pod(wish(), on=node(ONE, up=False)),
    "MTU above the master's": pod(
        of_kind(attachment.NetworkKind.CARD, mtu=9000), on=node(ONE, mtu=1500)
    ),
    "macvlan on InfiniBand": pod(of_kind(MACVLAN), shares=[share(WIDE)], on=node(WIDE)),
    "ipvlan on InfiniBand": pod(of_kind(IPVLAN), shares=[share(WIDE)], on=node(WIDE)),
    "ipoib on Ethernet": pod(of_kind(IPOIB)),
    "link with the node's default route": pod(
        of_kind(DEVICE, device="ens1f0", resource=None), on=node(ONE, default_route=True)
    ),
    "link of a shared card": pod(of_kind(DEVICE)),
    "link taken twice": pod(
        wish(0, network("a", DEVICE, device="ens2f0", resource=None)),
        wish(1, network("b", MACVLAN, device="ens2f0", resource=None)),
    ),
    "macvlan and ipvlan on one link": pod(
        wish(0, network("a", IPVLAN, device="ens2f0", resource=None)),
        wish(1, network("b", MACVLAN, device="ens2f0", resource=None)),
    ),
    "soft card in RDMA namespace mode exclusive": pod(
        wish(), shares=[share(SOFT, mode=Mode.EXCLUSIVE)], on=node(SOFT, mode=EXCLUSIVE)
    ),
    "shared card in RDMA namespace mode exclusive": pod(wish(), on=node(ONE, mode=EXCLUSIVE)),
    "address taken twice": pod(
        wish(0, static("10.0.0.7")), wish(1, static("10.0.0.7")), shares=[share(ONE), share(TWO)]
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
        wish(of=network(routes=(attachment.NetworkRoute(ip_network("10.8.0.0/16"), TEN),))),
        leases=[given(1, "10.0.1.7/24")],
    ),
    "default route without an address": pod(wish(default_routes=(TEN,))),
    "gateway on a link without an address": pod(
        wish(routes=(attachment.NetworkRoute(ip_network("10.8.0.0/16"), TEN, onlink=True),))
    ),
}
