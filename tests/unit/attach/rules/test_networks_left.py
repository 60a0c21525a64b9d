"""Entries of our types that mean more elsewhere: left to plugins, honoured, or refused."""

import json
from ipaddress import ip_address

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.documents.network_definition import load
from kube_rdma.attach.rules.requests import match_entries
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind
from tests.kit.pod_networks import network, wish

MACVLAN, IPVLAN, OTHER = NetworkKind.MACVLAN, NetworkKind.IPVLAN, NetworkKind.OTHER
BARE = {"resource": None}
STATIC = {
    "type": "macvlan",
    "master": "ens1f0",
    "ipam": {"type": "static", "addresses": [{"address": "10.0.0.5/24"}]},
}


def met(one, *, holding):
    """The wish as it is met."""
    (found,) = match_entries([one.ask], [one.network], holding=holding)
    return found


@pytest.mark.parametrize("kind", [MACVLAN, IPVLAN])
def test_what_names_no_card_is_the_plugins_in_a_pod_without_a_share(kind):
    """The reference plugin takes the interface of the default route; a pod with a share has one."""
    one = wish(of=network(kind=kind, **BARE))
    assert met(one, holding=False).network.kind is OTHER
    assert met(one, holding=True) == one


@pytest.mark.parametrize(
    "one",
    [
        wish(of=network(kind=MACVLAN, device="ens1f0", **BARE)),
        wish(of=network(kind=MACVLAN)),
        wish(of=network(kind=MACVLAN, **BARE), device_id="0000:11:00.1"),
        wish(of=network(kind=NetworkKind.IPOIB, **BARE)),
        wish(of=network(kind=NetworkKind.CARD, **BARE)),
    ],
)
def test_what_names_a_card_or_is_ours_alone_stays_ours(one):
    """A master, a resource, a device; and types that stand on nothing by themselves."""
    assert met(one, holding=False) == one


def test_what_is_left_to_a_plugin_may_ask_for_what_it_can_do():
    ports = (("portMappings", b'[{"hostPort": 80}]'),)
    one = wish(of=network(kind=MACVLAN, **BARE), capabilities=ports)
    assert met(one, holding=False).ask.capabilities == ports
    with pytest.raises(Refused, match="portMappings has no effect on an RDMA network"):
        met(one, holding=True)


@pytest.mark.parametrize("mode", ["l3", "l3s"])
def test_ipvlan_that_answers_no_neighbour_is_the_plugins_without_rdma(mode):
    """Tied to a resource it would be for RDMA, whose peers cannot find it."""
    text = json.dumps({"type": "ipvlan", "master": "ens1f0", "mode": mode}).encode()
    plain = load("default", "a", text, None)
    assert (plain.network.kind, plain.network.plugin) == (OTHER, "ipvlan")
    assert f"mode is {mode}, so the plugins themselves are called" in plain.warnings[0]
    tied = load("default", "a", text, "rdma/hca").network
    assert tied.kind is IPVLAN
    ask = wish(of=network("a")).ask
    with pytest.raises(Refused, match=f"ipvlan in mode {mode} answers no neighbour"):
        match_entries([ask], [tied])


def arguing(ips, **facts):
    """An entry whose cni-args say these addresses."""
    return wish(arguments=json.dumps({"ips": ips}).encode(), **facts)


def test_addresses_of_cni_args_are_asked_for():
    """With their length or without, where the entry itself says none."""
    first, second = AskedAddress(ip_address("10.0.0.7"), 24), AskedAddress(ip_address("fd00::7"))
    pooled = network(pools=("rail-0",))
    one = arguing(["10.0.0.7/24", "fd00::7"], of=pooled)
    assert met(one, holding=True).ask.addresses == (first, second)
    said = arguing(["10.0.0.8"], of=pooled, addresses=(first,))
    assert met(said, holding=True).ask.addresses == (first,)
    for nothing in ([], None, ""):
        assert met(arguing(nothing), holding=True).ask.addresses == ()


@pytest.mark.parametrize(
    ("yields_to", "by_entry", "by_args"),
    [((), True, True), (("cni-args",), True, False), (("cni-args", "ips"), False, False)],
)
def test_addresses_of_static_give_way_to_those_of_the_pod(yields_to, by_entry, by_args):
    """As that plugin does: always to its args, to those of the entry by the capability ips."""
    own = load("default", "a", json.dumps(STATIC).encode(), None).network.static
    of = network(static=own, yields_to=yields_to)
    asked = (AskedAddress(ip_address("10.0.0.7"), 24),)
    assert bool(met(wish(of=of, addresses=asked), holding=True).network.static) == by_entry
    assert bool(met(arguing(["10.0.0.7/24"], of=of), holding=True).network.static) == by_args
    assert met(wish(of=of), holding=True).network.static == own


@pytest.mark.parametrize("has_capability", [True, False])
def test_what_static_gives_way_to_follows_from_the_capability(has_capability):
    """Multus puts the pod's addresses into runtimeConfig only where the plugin declares it."""
    conf = {**STATIC, "capabilities": {"ips": has_capability}}
    fields = load("default", "a", json.dumps(conf).encode(), None).network.yields_to
    assert ("cni-args" in fields, "ips" in fields) == (True, has_capability)


@pytest.mark.parametrize(
    "ips", [["ten"], "ten", [7], 7, {"a": 1}, ["fe80::1%eth0"], ["10.0.0.1/33"]]
)
def test_addresses_of_cni_args_that_are_none_are_refused(ips):
    with pytest.raises(Refused, match=r"cni-args\.ips: .* is not a list of IP addresses") as caught:
        met(arguing(ips), holding=True)
    assert caught.value.remedy


def test_what_another_plugin_reads_in_its_cni_args_is_left_as_it_is():
    one = arguing(["ten"], of=network(kind=OTHER))
    assert met(one, holding=True) == one
