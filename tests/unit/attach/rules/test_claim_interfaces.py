"""Which interfaces a pod gets by its claims, beside those that its annotation names."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.rules.claim_networks import (
    ask_of,
    interfaces,
    own_network,
    refuse_uncalled,
    with_claims,
)
from kube_rdma.model.attach.attachment import AskedAddress, NetworkAsk, NetworkKind, NetworkRoute
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.claims.claim import (
    ClaimDevice,
    ClaimName,
    ClaimParameters,
    ClaimShare,
    NetworkReference,
    PodClaims,
    PreparedClaim,
)

CLAIM = ClaimName("team", "job-0-nic-x7", "uid-1")
RAIL = ClaimParameters(network=NetworkReference("rail"))
MANY = ClaimParameters(
    network=NetworkReference("rail", "infra"),
    mtu=9000,
    addresses=(AskedAddress(ip_address("10.0.0.10")),),
    routes=(NetworkRoute(ip_network("10.0.0.0/8")),),
    default_route=True,
    mac="02:00:0a:00:00:01",
)


def share(parameters=RAIL, number=0, request="nic", **facts):
    return ClaimShare(
        request=request,
        pool="node-1",
        device="0000-81-00-0",
        share_id=None,
        resource="rdma/hca",
        share=f"0000:81:00.0-uid1.{number}",
        cards=("0000:81:00.0",),
        slots=1,
        char_paths=(),
        parameters=parameters,
        **facts,
    )


def booked(*shares, claim=CLAIM):
    return PreparedClaim(claim, shares, (), "b00t", 7.0)


def device(parameters=RAIL, number=0, request="nic"):
    return ClaimDevice(CLAIM, share(parameters, number, request))


def entry(network="rail", interface="net1", namespace="team", **facts):
    return NetworkAsk(namespace, network, interface, "networks[0]", **facts)


def test_what_says_nothing_and_what_is_only_looked_at_is_no_interface():
    """And the order is that of the pod's own list, not that of the names."""
    first, second = replace(CLAIM, name="b"), replace(CLAIM, name="a", uid="uid-2")
    pod = PodClaims("team", "job-0", "uid-p", (("x", "b"), ("y", "a")))
    prepared = (
        booked(share(ClaimParameters()), share(RAIL, 1), share(RAIL, 2, admin=True), claim=first),
        booked(share(RAIL, 3), claim=second),
    )
    assert [one.share.share[-1] for one in interfaces(pod, prepared)] == ["1", "3"]


def test_an_entry_says_all_that_the_parameters_say():
    ask = ask_of(device(MANY))
    assert (ask.namespace, ask.network, ask.mtu, ask.default) == ("infra", "rail", 9000, True)
    assert ask.addresses == MANY.addresses
    assert ask.routes == MANY.routes
    assert ask.mac == MANY.mac
    assert ask.held == ("rdma/hca", "0000:81:00.0-uid1.0")
    assert ask.source == "claim team/job-0-nic-x7: request nic"
    assert own_network(device(MANY)) is None


def test_parameters_without_a_network_describe_their_own():
    parameters = ClaimParameters(kind=NetworkKind.MACVLAN, mode="private", pool="rail-0")
    mine = device(parameters, request="nic/fast")
    network = own_network(mine)
    assert network is not None
    assert (network.kind, network.mode, network.pools) == ("macvlan", "private", ("rail-0",))
    assert network.resource == "rdma/hca"
    ask = ask_of(mine)
    assert network.name == f"{ask.namespace}/{ask.network}" == "team/job-0-nic-x7:nic.fast"
    follows = own_network(device(ClaimParameters(mtu=9000)))
    assert follows is not None
    assert follows.kind is NetworkKind.CARD


def test_an_entry_of_the_annotation_for_the_same_network_is_that_of_the_device():
    mine = ask_of(device(replace(MANY, network=RAIL.network)))
    (merged,) = with_claims([entry(interface="rdma0", mac="02:00:00:00:00:09")], [mine])
    assert (merged.interface, merged.mac) == ("rdma0", "02:00:00:00:00:09")
    assert (merged.mtu, merged.addresses, merged.held) == (9000, MANY.addresses, mine.held)


def test_an_entry_that_names_its_device_stays_alone():
    entries = with_claims([entry(device_id="0000:1a:00.0")], [ask_of(device())])
    assert [(one.interface, one.held) for one in entries] == [
        ("net1", None),
        ("net2", ("rdma/hca", "0000:81:00.0-uid1.0")),
    ]


def test_two_interfaces_of_one_name_are_refused():
    named = ask_of(device(replace(RAIL, interface="rdma0")))
    sentence = (
        r"claim team/job-0-nic-x7: request nic: the interface rdma0 is that of networks\[0\] too\. "
        r"Write another name, or leave interface out\."
    )
    with pytest.raises(Refused, match=sentence):
        with_claims([entry("other", "rdma0")], [named])


@given(
    st.lists(st.sampled_from(["rail", "other", "third"]), max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["rail", "other"]), st.sampled_from([None, "net2", "rdma0"])),
        max_size=4,
        unique_by=lambda one: one[1] or object(),
    ),
)
def test_every_device_has_one_entry_and_every_entry_an_interface_of_its_own(networks, wanted):
    """And the entries of the annotation stay where they are, with their networks."""
    annotated = [entry(name, f"eth{n}") for n, name in enumerate(networks, 5)]
    claimed = [
        ask_of(device(ClaimParameters(NetworkReference(name), interface=interface), n))
        for n, (name, interface) in enumerate(wanted)
    ]
    entries = with_claims(annotated, claimed)
    assert [(one.network, one.interface) for one in entries[: len(annotated)]] == [
        (one.network, one.interface) for one in annotated
    ]
    assert sorted(one.held for one in entries if one.held) == [one.held for one in claimed]
    names = [one.interface for one in entries]
    assert all(names)
    assert len(set(names)) == len(names)


def test_parameters_that_nobody_would_follow_are_refused():
    refuse_uncalled(booked(share()), Wiring.CHAIN)
    refuse_uncalled(booked(share(ClaimParameters())), Wiring.DELEGATE)
    with pytest.raises(Refused, match="request nic: its parameters ask for an interface, and on"):
        refuse_uncalled(booked(share()), Wiring.DELEGATE)
    with pytest.raises(Unavailable, match="Wait until it is; the kubelet tries again"):
        refuse_uncalled(booked(share()), Wiring.NONE)
