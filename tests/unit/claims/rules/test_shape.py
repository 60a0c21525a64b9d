"""The form of slices: within every limit of the API, stable, and one slice for one card."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.adapters.cluster.kinds.offered_slice import OFFERED_SLICE as KIND
from kube_rdma.adapters.cluster.kinds.offered_slice import published, wanted_slice
from kube_rdma.claims.rules.publication import without_times
from kube_rdma.claims.rules.shape import (
    DEGRADED,
    MOST,
    MOST_TAINTED,
    UNHEALTHY,
    carried,
    claim_offer,
    fewer,
    slices,
)
from kube_rdma.model.claims.devices import DRIVER, ClaimFeature, OfferedCard, PublishedSlice
from kube_rdma.model.pools import Mode
from kube_rdma_testing.cluster.resource_slices import faults
from tests.kit.claims import fleet, functions, pool, pools
from tests.kit.nodes import DOWN

OFF = frozenset(ClaimFeature)
NO_CAPACITY = frozenset({ClaimFeature.CONSUMABLE_CAPACITY})
NO_TAINTS = frozenset({ClaimFeature.DEVICE_TAINTS})
FEATURES = st.frozensets(st.sampled_from(ClaimFeature))


def document(devices, number=0, count=1):
    """A slice as it is on the wire."""
    part = PublishedSlice(f"{number:03}-{DRIVER}-n", 1, count, devices, "uid")
    return msgspec.json.decode(wire.document(KIND, wanted_slice(part, DRIVER, "node-1")))


def shown(devices, time="2026-01-01T00:00:00Z"):
    """What is published, by name, with the times that the server has set."""
    timed = (
        replace(d, taints=tuple(replace(taint, added=taint.added or time) for taint in d.taints))
        for d in devices
    )
    return {device.name: device for device in timed}


def offered(*given):
    return claim_offer(given).cards


def own_names(devices):
    """Those of cards, among parts of cards."""
    return [device.name for device in devices if "-s" not in device.name]


def first_fit(devices, pods):
    """The cards that so many pods get, each of the first device that has a share left."""
    left = {device.name: capacities(device)["slots"].value for device in devices}
    for _ in range(pods):
        name = next((name for name, slots in left.items() if slots), None)
        if name is None:
            return
        left[name] -= 1
        yield name.rpartition("-s")[0] or name


def capacities(device):
    return dict(device.capacities)


@st.composite
def cards(draw):
    """Many cards of some groups, in pools of any mode."""
    count = draw(st.integers(0, 150))
    made = []
    for number in range(count):
        mode = draw(st.sampled_from(["exclusive", "shared-multi"]))
        attributes = (("mode", mode), ("rateGbps", draw(st.sampled_from([1, 100]))))
        taints = draw(st.sampled_from([(), (UNHEALTHY,), (DEGRADED,)]))
        slots = draw(st.sampled_from([1, 2, 16])) if mode == "shared-multi" else 1
        shared = mode == "shared-multi"
        group = f"g{draw(st.integers(0, 9))}"
        made.append(OfferedCard(f"c{number}", group, attributes, slots, shared, taints))
    return made


@given(st.one_of(cards(), pools().map(lambda made: claim_offer(made).cards)), FEATURES)
def test_slices_are_within_the_limits_of_the_api(offer, without):
    parts = slices(offer, {}, without)
    assert parts
    for number, devices in enumerate(parts):
        assert list(faults(document(devices, number, len(parts))["spec"])) == []
    names = [device.name for devices in parts for device in devices]
    assert len(set(names)) == len(names)


@given(pools(), FEATURES)
def test_the_same_pools_give_the_same_bytes(made, without):
    def written():
        return [document(devices) for devices in slices(claim_offer(made).cards, {}, without)]

    assert msgspec.json.encode(written()) == msgspec.json.encode(written())


@given(cards(), st.data())
def test_a_change_of_one_card_changes_one_slice(offer, data):
    if not offer:
        return
    number = data.draw(st.integers(0, len(offer) - 1))
    other = list(offer)
    taints = () if offer[number].taints else (UNHEALTHY,)
    other[number] = replace(offer[number], taints=taints)
    before, after = slices(offer, {}), slices(other, {})
    assert len(before) == len(after)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


@given(cards(), FEATURES)
def test_what_is_written_is_read_the_same(offer, without):
    for devices in slices(offer, {}, without):
        stored = wire.stored(KIND, msgspec.json.encode(document(devices)))
        assert published(stored).devices == devices


def test_a_node_without_devices_has_an_empty_slice():
    assert slices((), {}) == ((),)


def test_one_slice_has_all_while_it_can():
    assert len(slices(offered(pool(*functions(MOST_TAINTED), mode=Mode.SRIOV)), {})) == 1
    many = offered(
        pool(*functions(33), mode=Mode.SRIOV),
        pool(*functions(32, bus=0x91), mode=Mode.SRIOV, resource="rdma/b"),
    )
    assert [len(devices) for devices in slices(many, {})] == [33, 32]
    assert len(slices(many, {}, NO_TAINTS)) == 1


def test_the_functions_of_a_card_that_are_too_many_for_a_slice():
    many = offered(pool(*functions(MOST_TAINTED + 1), mode=Mode.SRIOV))
    assert [len(devices) for devices in slices(many, {})] == [MOST_TAINTED, 1]


def test_a_request_that_names_nothing_takes_one_slot_and_no_bandwidth():
    ((device,),) = slices(offered(pool(*fleet(1))), {})
    slots, bandwidth = capacities(device)["slots"], capacities(device)["bandwidth"]
    assert device.shared
    assert (slots.value, slots.policy.default, slots.policy.least) == (16, 1, 1)
    assert (bandwidth.value, bandwidth.policy.default) == (100 * 10**9, 0)


def test_a_card_for_one_pod_has_facts_and_no_policy():
    ((device,),) = slices(offered(pool(*fleet(1), mode=Mode.EXCLUSIVE)), {})
    assert not device.shared
    assert [capacity.policy for capacity in capacities(device).values()] == [None, None]


def test_without_consumable_capacity_shares_are_devices_card_by_card():
    multi = pool(*fleet(2), shares=3)
    ((*devices,),) = slices(offered(multi), {}, NO_CAPACITY)
    first, second = "0000-10-00-0", "0000-11-00-0"
    assert [device.name for device in devices] == [
        f"{card}-s{slot}" for slot in range(3) for card in (first, second)
    ]
    assert not any(device.shared for device in devices)


def test_first_fit_over_interleaved_shares_is_even():
    """64 pods on 8 cards, each taking the first device that is free."""
    (devices,) = slices(offered(pool(*fleet(8))), {}, OFF)
    taken = [device.name.rpartition("-s")[0] for device in devices[:64]]
    assert {taken.count(card) for card in taken} == {8}


@pytest.mark.parametrize(("cards", "shares"), [(8, 8), (4, 8), (2, 16)])
def test_first_fit_over_rows_is_even_while_rows_are_of_one_share(cards, shares):
    (devices,) = slices(offered(pool(*fleet(cards), shares=shares)), {})
    taken = Counter()
    for name in first_fit(devices, cards * 4):
        taken[name] += 1
        assert max(taken.values()) - min(taken[one] for one in own_names(devices)) <= 1


@given(st.integers(2, 32), st.integers(1, 200))
def test_rows_have_all_shares_of_each_card_and_no_card_has_twice_the_pods_of_another(cards, shares):
    parts = slices(offered(pool(*fleet(cards), shares=shares)), {})
    (devices,) = parts
    assert len(devices) <= MOST_TAINTED
    taken = list(first_fit(devices, cards * shares + 1))
    assert set(Counter(taken).values()) == {shares}
    if cards > 8 or shares > 128:
        return  # fewer rows, which are larger
    loads = Counter(dict.fromkeys(own_names(devices), 0))
    for name in taken:
        loads[name] += 1
        assert max(loads.values()) <= 2 * min(loads.values()) + 1


def test_bandwidth_of_a_card_is_counted_once():
    (devices,) = slices(offered(pool(*fleet(8), shares=16)), {})
    assert len(devices) == MOST_TAINTED
    counted = [device.name for device in devices if "bandwidth" in capacities(device)]
    assert counted == own_names(devices) == [device.name for device in devices[-8:]]


def test_a_pool_for_itself_is_one_device_and_so_is_a_card_without_another():
    for one in (pool(*fleet(8), mode=Mode.HCA), pool(*fleet(1))):
        assert [len(devices) for devices in slices(offered(one), {})] == [1]


def test_where_other_devices_need_the_slice_there_are_fewer_rows():
    """Each physical card has its own slice beyond 64 devices, and no rows."""
    for others, rows in ((0, 8), (32, 4), (48, 2), (56, 1), (64, 1)):
        vfs = pool(*functions(others), mode=Mode.SRIOV, resource="rdma/vf")
        multi = pool(*fleet(8), resource="rdma/multi")
        parts = slices(offered(vfs, multi), {})
        assert sum(map(len, parts)) == others + rows * 8
        assert (len(parts) == 1) == (others < 64)


def test_a_pool_of_more_shares_than_devices_says_so():
    hca = offered(pool(*fleet(2), mode=Mode.HCA))
    (devices,) = slices(hca, {}, OFF)
    assert len(devices) == MOST
    assert "128 of 1000 shares" in fewer(hca)
    assert fewer(offered(pool(*fleet(8)))) is None


def test_without_taints_a_card_that_cannot_be_used_is_left_out():
    cards = offered(pool(*fleet(2, DOWN)))
    (devices,) = slices(cards, {}, NO_TAINTS)
    second = "0000-11-00-0"
    assert [device.name for device in devices] == [*(f"{second}-s{n}" for n in range(7)), second]
    degraded = offered(pool(*fleet(2, DOWN), mode=Mode.HCA))
    ((device,),) = slices(degraded, {}, NO_TAINTS)
    assert device.taints == ()


@given(cards(), FEATURES)
def test_times_of_taints_are_carried_over(offer, without):
    before = slices(offer, {}, without)
    stored = shown(device for devices in before for device in devices)
    after = slices(offer, stored, without)
    assert [without_times(devices) for devices in after] == [without_times(d) for d in before]
    assert all(t.added for devices in after for device in devices for t in device.taints)


def test_a_taint_of_another_effect_has_no_time_yet():
    healthy = pool(*fleet(2), mode=Mode.HCA)
    degraded, ill = (pool(*fleet(n, DOWN), mode=Mode.HCA) for n in (2, 1))
    (devices,) = slices(offered(degraded), {})
    ((device,),) = slices(offered(ill), shown(devices))
    assert [taint.added for taint in device.taints] == [""]
    ((device,),) = slices(offered(healthy), shown(devices))
    assert device.taints == ()


def test_a_card_inside_of_a_pod_is_still_what_it_was():
    """Its interface and RDMA device are in another namespace, its address is not."""
    (card,) = fleet(1)
    inside = replace(card, devices=(), function=replace(card.function, netdevs=()))
    for without in ((), OFF):
        (before,) = slices(offered(pool(card)), {}, without)
        (after,) = slices(offered(pool(inside)), shown(before), without)
        assert before == after


def test_a_pool_says_no_more_what_its_cards_differ_in():
    first, second = fleet(2)
    (before,) = slices(offered(pool(first, second, mode=Mode.HCA)), {})
    (port,) = second.devices[0].ports
    fast = replace(second.devices[0], ports=(replace(port, rate_gbps=200.0),))
    other = pool(first, replace(second, devices=(fast,)), mode=Mode.HCA)
    ((device,),) = slices(offered(other), shown(before))
    assert "rateGbps" not in dict(device.attributes)


def test_a_card_that_is_left_out_changes_nothing_of_the_others():
    """Where shares are devices, and more than fit."""
    well, ill = (offered(pool(*fleet(10, *reasons))) for reasons in ((), (DOWN,)))
    names = [{device.name for part in slices(c, {}, OFF) for device in part} for c in (well, ill)]
    assert names[1] == {name for name in names[0] if not name.startswith("0000-10-")}


def test_another_card_at_the_place_is_not_what_the_first_was():
    (card,) = offered(pool(*fleet(1)))
    ((device,),) = slices([card], {})
    bare = replace(card, attributes=(("kind", "vf"),))
    assert carried(bare, {device.name: device}) == bare
