"""Parameters as an attachment reads them: each has its place in a Wish."""

from ipaddress import ip_address, ip_network

import pytest

from kube_rdma.model.attach.attachment import (
    AskedAddress,
    Network,
    NetworkAsk,
    NetworkKind,
    NetworkRoute,
)
from kube_rdma.model.claims.parameters import ClaimParameters
from kube_rdma.rules.claims.wishes import own_network, wish_of

ASK = NetworkAsk("team", "rdma", "net1", "claim team/rdma: request card")
NETWORK = Network("team/net", NetworkKind.MACVLAN, "NetworkAttachmentDefinition", mtu=4000)


def test_a_claim_without_parameters_is_the_card_as_its_pool_has_it():
    network = own_network(ClaimParameters(), ASK, "rdma/hca")
    assert network == Network("team/rdma", NetworkKind.CARD, ASK.source, resource="rdma/hca")
    wish = wish_of(ClaimParameters(), ASK, network)
    assert (wish.ask, wish.network) == (ASK, network)


def test_type_mode_and_pool_make_the_network():
    parameters = ClaimParameters(kind=NetworkKind.MACVLAN, mode="vepa", pool="rail-0")
    network = own_network(parameters, ASK, "rdma/hca")
    assert (network.kind, network.mode) == (NetworkKind.MACVLAN, "vepa")
    assert network.pools == ("rail-0",)


@pytest.mark.parametrize(("mtu", "meant"), [(None, 4000), (9000, 9000), (0, None)])
def test_the_mtu_is_the_claims_before_the_networks(mtu, meant):
    assert wish_of(ClaimParameters(mtu=mtu), ASK, NETWORK).network.mtu == meant


def test_what_a_pod_can_ask_for_stands_in_the_ask():
    parameters = ClaimParameters(
        interface="rdma0",
        addresses=(AskedAddress(ip_address("10.0.0.10"), 24),),
        routes=(NetworkRoute(ip_network("10.0.0.0/8")),),
        default_route=True,
        mac="02:00:0a:00:00:01",
        guid="02:00:0a:00:00:00:00:01",
    )
    asked = wish_of(parameters, ASK, NETWORK).ask
    for name in ("interface", "addresses", "routes", "mac", "guid"):
        assert getattr(asked, name) == getattr(parameters, name)
    assert asked.default
    assert asked.source == ASK.source
