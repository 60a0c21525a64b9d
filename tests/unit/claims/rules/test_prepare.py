"""What a claim gets on this node, each refusal, and what is said of a booking."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.claims.rules import prepare
from kube_rdma.claims.rules.shape import claim_offer, device_name, slices, slot_name
from kube_rdma.model.attach.attachment import AttachedInterface, InterfaceAddress
from kube_rdma.model.claims.claim import (
    AllocationResult,
    ClaimName,
    ClaimUser,
    PreparedDevice,
    ResourceClaim,
)
from kube_rdma.model.claims.devices import DRIVER, ClaimFeature
from kube_rdma.model.kubernetes import Toleration
from kube_rdma.model.pools import Attach, Mode, PoolSpec, ShareId
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.pools import resolve
from tests.kit.nodes import CHAR_KINDS, DOWN, hard_card, node, nodes, specs

SURVEY = node().survey
UID = "5b0e8b0a-1111-2222-3333-444455556666"
CLAIM = ClaimName("team", "nic", UID)
FIRST, SECOND = hard_card(0x81, 0, kinds=CHAR_KINDS), hard_card(0xA1, 1, kinds=CHAR_KINDS)
MULTI = PoolSpec("rdma/multi", Mode.SHARED_MULTI, "config.json:1", shares=4)
HCA = PoolSpec("rdma/hca", Mode.HCA, "config.json:1")
PODS = (ClaimUser("pods", "job-0", "uid-job-0"),)


def world(*specs, cards=(FIRST, SECOND), prepared=(), boot="b00t"):
    """A node of these wishes, as a booking sees it."""
    pools, _ = resolve(specs or (MULTI,), cards, SURVEY)
    return prepare.BookingNode("node-1", boot, prepare.devices_of(pools), tuple(prepared))


def result(device="0000-81-00-0", request="nic", slots=None, **facts):
    capacity = {} if slots is None else {"slots": Fraction(slots)}
    return AllocationResult(request, DRIVER, "node-1", device, capacity=capacity, **facts)


def claim(*results, name=CLAIM):
    given = results or (result(share="s1", slots=1),)
    return ResourceClaim(name, allocated=given, users=PODS)


def booked(claim_, where=None):
    return prepare.book(claim_.claim, claim_, where or world(), 7.0)


def test_a_booking_has_what_the_device_opens_and_names_that_last():
    prepared = booked(claim(result(request="nics/fast", share="s1", slots=2)))
    (share,) = prepared.shares
    assert share.cards == (FIRST.id,)
    assert share.slots == 2
    assert share.resource == "rdma/multi"
    assert share.share == f"0000:81:00.0-{UID.replace('-', '')}.0"
    assert share.char_paths == ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")
    assert share.cdi == f"kube-rdma.io/claim={UID}_nics.fast_s1"
    assert prepare.answer(prepared) == (
        PreparedDevice("node-1", "0000-81-00-0", ("nics",), (share.cdi,), "s1"),
    )
    assert (prepared.users, prepared.boot, prepared.when) == (PODS, "b00t", 7.0)


def test_a_device_of_a_whole_pool_opens_every_card():
    prepared = booked(claim(result("rdma-hca", share="s1", slots=1)), world(HCA))
    (share,) = prepared.shares
    assert share.cards == (FIRST.id, SECOND.id)
    assert {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"} < set(share.char_paths)
    assert share.share.startswith("hca-")


def test_a_device_that_needs_a_network_first_has_a_name_and_no_nodes():
    """Without the file of its network the container does not start."""
    (share,) = booked(claim(), world(replace(MULTI, attach=Attach.REQUIRED))).shares
    assert share.cdi
    assert share.char_paths == ()


def test_devices_of_other_drivers_are_not_looked_at():
    other = replace(result("gpu-0"), driver="gpu.example.com", pool="x")
    assert len(booked(claim(other, result(share="s1", slots=1))).shares) == 1


ILL = replace(FIRST, reasons=(DOWN,))
ANOTHER = ClaimName("team", "other", "uid-other")
EXCLUSIVE = PoolSpec("rdma/own", Mode.EXCLUSIVE, "config.json:1")
REFUSALS = {
    "gone": (None, world(), "it is not there any more"),
    "anew": (
        claim(name=ClaimName("team", "nic", "uid-new")),
        world(),
        "deleted and made again: its uid is uid-new, not 5b0e",
    ),
    "unallocated": (ResourceClaim(CLAIM), world(), "no device of rdma.kube-rdma.io"),
    "other pool": (
        claim(replace(result(), pool="node-2")),
        world(),
        "0000-81-00-0 is a device of pool node-2, and this node is node-1",
    ),
    "vanished": (
        claim(result("0000-ff-00-0")),
        world(),
        "device 0000-ff-00-0 has vanished from node node-1, whose devices are 0000-81-00-0, 0000-a",
    ),
    "no device": (claim(), world(cards=()), "whose devices are none"),
    "ill": (claim(), world(cards=(ILL,)), f"0000-81-00-0 cannot be used: {DOWN}"),
    "ill pool": (claim(result("rdma-hca")), world(HCA, cards=(ILL,)), f"used: {ILL.name}: {DOWN}"),
    "too much": (
        claim(result(share="s1", slots=5)),
        world(),
        "it asks for 5 slots of 0000-81-00-0, which has 4",
    ),
    "too much together": (
        claim(result(share="s1", slots=3), result(request="two", share="s2", slots=2)),
        world(),
        "0000-81-00-0 has 4 slots, of which its request nic hold 3",
    ),
    "held": (
        claim(result()),
        world(EXCLUSIVE, prepared=[booked(claim(result(), name=ANOTHER), world(EXCLUSIVE))]),
        "0000-81-00-0 has 1 slot, of which team/other hold 1",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_what_cannot_be_had_is_refused_in_one_sentence(why):
    allocated, where, sentence = REFUSALS[why]
    with pytest.raises((Refused, Unavailable), match=re.escape(sentence)) as caught:
        prepare.book(CLAIM, allocated, where, 7.0)
    assert str(caught.value).startswith("claim team/nic: ")
    assert "\n" not in str(caught.value)


def test_a_device_that_is_ill_is_given_to_who_bears_its_taints_or_looks_at_it():
    for facts in ({"tolerations": (Toleration(),)}, {"admin": True}):
        assert booked(claim(result(**facts)), world(EXCLUSIVE, cards=(ILL,))).shares


def test_a_look_at_a_device_takes_nothing_away():
    admin = booked(claim(result(admin=True), name=ANOTHER), world(EXCLUSIVE))
    own = booked(claim(result()), world(EXCLUSIVE, prepared=[admin]))
    assert booked(claim(result(admin=True), name=ANOTHER), world(EXCLUSIVE, prepared=[own]))


def test_a_claim_that_is_booked_already_does_not_stand_in_its_own_way():
    before = booked(claim(result()), world(EXCLUSIVE))
    assert booked(claim(result()), world(EXCLUSIVE, prepared=[before])) == before


def test_after_a_reboot_shares_are_the_same_and_their_nodes_those_of_now():
    before = booked(claim(result()), world(EXCLUSIVE))
    moved = hard_card(0x81, 5, kinds=CHAR_KINDS)
    after = prepare.rebooked(before, world(EXCLUSIVE, cards=(moved,), boot="next"))
    assert prepare.answer(after) == prepare.answer(before)
    assert after.boot == "next"
    assert "/dev/infiniband/uverbs5" in after.shares[0].char_paths
    prepare.refuse_vanished(after, world(EXCLUSIVE, cards=(moved,)))


def test_a_device_that_is_gone_after_a_reboot_has_no_nodes_and_is_refused():
    empty = world(EXCLUSIVE, cards=(SECOND,), boot="next")
    after = prepare.rebooked(booked(claim(result()), world(EXCLUSIVE)), empty)
    assert after.shares[0].char_paths == ()
    with pytest.raises(Refused, match="0000-81-00-0 has vanished"):
        prepare.refuse_vanished(after, empty)


def published(pools):
    """The names of all devices, whatever the API server has of features."""
    cards = claim_offer(pools).cards
    shapes = [slices(cards, {}, without) for without in ((), (ClaimFeature.CONSUMABLE_CAPACITY,))]
    return {device.name for shape in shapes for part in shape for device in part}


def test_parts_of_a_card_are_booked_and_counted_as_the_card():
    """Also those of other rows than there are now, and of a device whose name was cut for it."""
    first = booked(claim(result("0000-81-00-0-s0", share="s1", slots=1)))
    assert (first.shares[0].device, first.shares[0].cards) == ("0000-81-00-0-s0", (FIRST.id,))
    assert prepare.answer(first)[0].device == "0000-81-00-0-s0"
    wanted = claim(result("0000-81-00-0-s99", share="s2", slots=4), name=replace(CLAIM, uid="u2"))
    with pytest.raises(Unavailable, match=r"0000-81-00-0-s99 has 4 slots, of which team/nic hold"):
        booked(wanted, world(prepared=[first]))
    long = "x" * 63
    node = prepare.BookingNode("node-1", "b00t", {long: world().devices["0000-81-00-0"]})
    assert node.whole(slot_name(long, 12)) == long
    assert node.whole("other-s1") == "other-s1"


@st.composite
def claims_on_nodes(draw):
    """Pools of any mode on any node, and claims for devices that slices have or once had."""
    drawn = draw(nodes())
    pools, _ = resolve(draw(specs()), drawn.cards, drawn.survey)
    devices = published(pools)
    names = st.sampled_from(sorted(devices)) if devices else st.nothing()
    slots = st.one_of(st.none(), st.integers(1, 3))
    results = st.builds(result, names, slots=slots, share=st.uuids().map(str))
    return pools, draw(st.lists(st.lists(results, min_size=1, max_size=2), max_size=6))


@given(claims_on_nodes())
def test_no_more_is_booked_than_devices_have(world_):
    """Whatever is asked for; what is booked opens device nodes of its own cards alone."""
    pools, asked = world_
    devices, prepared = prepare.devices_of(pools), []
    where = prepare.BookingNode("node-1", "b00t", devices)
    for number, results in enumerate(asked):
        name = ClaimName("team", f"c{number}", f"uid-{number}")
        where = prepare.BookingNode("node-1", "b00t", devices, tuple(prepared))
        try:
            prepared.append(
                prepare.book(name, ResourceClaim(name, allocated=tuple(results)), where, number)
            )
        except (Refused, Unavailable):
            continue
    shares = [share for one in prepared for share in one.shares]
    for device, facts in devices.items():
        room = facts.room if facts.is_shared else 1
        mine = [share for share in shares if where.whole(share.device) == device]
        assert sum(share.slots for share in mine) <= room
    for share in shares:
        pool = where.device(share.device).pool
        nodes = {
            char.path
            for card in pool.cards
            if card.id in share.cards
            for one in card.devices
            for char in one.char_devices
        }
        assert set(share.char_paths) <= {*nodes, pool.rdma_cm, *pool.spec.extra_paths}
        assert card_of(pool.spec, share.share) in (None, *share.cards)
    held = [(share.resource, share.share) for share in shares]
    assert len(held) == len(set(held)), "no two claims hold one share"


@given(claims_on_nodes())
def test_every_device_has_its_health(world_):
    pools, _ = world_
    told = prepare.health(pools, "node-1")
    assert {one.device for one in told} >= set(prepare.devices_of(pools)) | published(pools)
    assert len({one.device for one in told}) == len(told)
    for one in told:
        assert one.healthy == (not one.message)
    for pool in pools:
        usable = {device_name(pool, card) for card in pool.cards if card.usable}
        assert all(one.healthy for one in told if one.device in usable)


def test_a_card_that_a_pod_of_the_plugin_holds_is_refused_until_that_has_ended():
    """The scheduler allocated it while the kubelet, just started, told of no pods."""
    where = world(EXCLUSIVE)
    holders = {("rdma/own", ShareId(f"{FIRST.id}-0")): "pod team/old"}
    with pytest.raises(Unavailable) as caught:
        booked(claim(result()), replace(where, holders=holders))
    assert str(caught.value) == (
        "claim team/nic: 0000-81-00-0 has 1 slot, of which pod team/old (by a share of the device "
        "plugin) hold 1. Wait until their pods have ended; the kubelet tries again."
    )
    assert booked(claim(result("0000-a1-00-0")), replace(where, holders=holders)).shares
    elsewhere = {("rdma/other", ShareId(f"{FIRST.id}-0")): "pod team/old"}
    assert booked(claim(result()), replace(where, holders=elsewhere)).shares


@given(
    st.sampled_from([MULTI, EXCLUSIVE, PoolSpec("rdma/hca", Mode.HCA, "config.json:1", shares=4)]),
    st.integers(0, 4),
    st.lists(st.integers(1, 3), max_size=4),
)
def test_claims_and_pods_of_the_plugin_never_hold_more_than_a_device_has(spec, pods, wishes):
    """However they come; what fits is booked."""
    where = world(spec)
    name = "rdma-hca" if spec.mode is Mode.HCA else "0000-81-00-0"
    card = "hca" if spec.mode is Mode.HCA else FIRST.id
    room = where.devices[name].room
    pods = min(pods, room)
    holders = {
        (spec.resource, ShareId(f"{card}-{n}")): f"pod team/old-{n // 2}" for n in range(pods)
    }
    taken = pods
    for number, wished in enumerate(wishes):
        slots = wished if where.devices[name].is_shared else None
        asked = claim(
            result(name, share=f"s{number}", slots=slots),
            name=ClaimName("team", f"c{number}", f"uid-{number}"),
        )
        try:
            made = booked(asked, replace(where, holders=holders))
        except Unavailable:
            assert taken + (slots or 1) > room
            continue
        taken += slots or 1
        assert taken <= room
        where = replace(where, prepared=(*where.prepared, made))


NAME = ClaimName("team", "job-0-nic-x7", "uid-claim")
PREPARED = booked(
    claim(
        result(request="nics/fast", share="s1", slots=1),
        result("0000-a1-00-0", request="other", share="s2", slots=1),
        name=NAME,
    )
)
ADDRESS = InterfaceAddress(ip_address("10.9.0.4"), 24)
NET1 = AttachedInterface("team/rail", "net1", "02:00:00:00:00:01", 9000, (ADDRESS,), card=FIRST.id)


def conditions(status):
    return {one.type: (one.holds, one.reason) for one in status.conditions}


def test_a_device_says_what_its_network_made():
    left, right = prepare.device_statuses_of(PREPARED, [NET1])
    assert conditions(left) == {"Ready": (True, "Prepared"), "NetworkReady": (True, "Attached")}
    assert (left.interface, left.addresses, left.mac) == ("net1", ("10.9.0.4/24",), NET1.mac)
    assert left.conditions[1].message == "net1 of network team/rail has 10.9.0.4/24."
    assert conditions(right)["NetworkReady"] == (False, "NotAttached")
    assert (right.interface, right.addresses) == ("", ())
    assert [one.share_id for one in (left, right)] == ["s1", "s2"]


def test_a_device_that_waits_for_its_network_is_not_ready():
    (status,) = prepare.device_statuses_of(
        booked(claim(), world(replace(MULTI, attach=Attach.REQUIRED)))
    )
    assert conditions(status)["Ready"] == (False, "WaitsForNetwork")


def test_a_look_at_a_device_has_no_network():
    (status,) = prepare.device_statuses_of(booked(claim(result(admin=True))), [NET1])
    assert conditions(status)["NetworkReady"] == (False, "NotAttached")


def test_no_more_addresses_than_the_field_has_room_for():
    many = tuple(InterfaceAddress(ip_address(f"10.9.0.{n}"), 24) for n in range(40))
    status, _ = prepare.device_statuses_of(PREPARED, [replace(NET1, addresses=many)])
    assert len(status.addresses) == prepare.MOST_ADDRESSES


FACTS = {"0000-81-00-0": {"resource.kubernetes.io/pciBusID": {"string": "0000:81:00.0"}}}


def test_a_container_finds_its_device_by_what_the_pods_document_says():
    """The claim's own name, or the pod's word for one that was made for it."""
    direct = prepare.metadata_files(PREPARED, FACTS, [NET1])
    made = prepare.metadata_files(replace(PREPARED, pod_claim="nic"), FACTS, [NET1])
    end = "rdma.kube-rdma.io-metadata.json"
    assert {request: path for request, (path, _) in direct.items()} == {
        request: f"{prepare.FOLDER}/resourceclaims/job-0-nic-x7/{request}/{end}"
        for request in ("nics", "other")
    }
    path, text = made["nics"]
    assert path == f"{prepare.FOLDER}/resourceclaimtemplates/nic/nics/{end}"
    assert json.loads(text) == {
        "apiVersion": "metadata.resource.k8s.io/v1alpha1",
        "kind": "DeviceMetadata",
        "metadata": {"name": NAME.name, "namespace": "team", "uid": "uid-claim"},
        "podClaimName": "nic",
        "requests": [
            {
                "name": "nics/fast",
                "devices": [
                    {
                        "driver": "rdma.kube-rdma.io",
                        "pool": "node-1",
                        "name": "0000-81-00-0",
                        "attributes": FACTS["0000-81-00-0"],
                        "networkData": {
                            "interfaceName": "net1",
                            "ips": ["10.9.0.4/24"],
                            "hardwareAddress": NET1.mac,
                        },
                    }
                ],
            }
        ],
    }
    other = json.loads(made["other"][1])
    assert set(other["requests"][0]["devices"][0]) == {"driver", "pool", "name"}
