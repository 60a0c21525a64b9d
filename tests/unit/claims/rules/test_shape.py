"""Cards that claims can get, in rows and slices: within every limit of the API, and stable."""

from __future__ import annotations

import operator
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE as KIND
from kube_rdma.adapters.cluster.kinds.resource_api import resource_slice, wanted_slice
from kube_rdma.claims.rules import shape
from kube_rdma.claims.rules.publication import PoolSite, pool_slices, publication
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import ClaimFeature, OfferedCard, TaintEffect
from kube_rdma.model.device import PortState
from kube_rdma.model.pools import Bind, Mode
from kube_rdma_testing.cluster.resource_slices import faults
from tests.kit.claims import attributes, fleet, functions, pool, pools
from tests.kit.nodes import DOWN, device, hard_card

SITE = PoolSite("node-1", "uid")


def values(card):
    return {name: one.value for name, one in card.attributes.items()}


def only(*given, rail=lambda _: None):
    (card,) = shape.claim_offer(given, rail).cards
    return card


def test_a_card_says_what_it_is():
    card = only(pool(hard_card(0x1A, 3, numa=1)), rail=lambda _: 2)
    assert values(card) == {
        "resource.kubernetes.io/pciBusID": "0000:1a:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/numaNode": 1,
        "rdmaDevice": "mlx5_3",
        "interface": "eth3",
        "linkLayer": "ethernet",
        "rateGbps": 100,
        "rail": 2,
        "kind": "pf",
        "mode": "shared-multi",
        "resource": "rdma/hca",
        "vendor": "15b3",
        "driver": "mlx5_core",
    }
    assert (card.slots, card.shared, card.taints) == (16, True, ())


def test_no_numa_node_is_no_attribute():
    for numa in (None, -1):
        card = only(pool(hard_card(0x1A, numa=numa)))
        assert "resource.kubernetes.io/numaNode" not in values(card)


def test_a_link_that_is_down_shows_no_rate():
    """The kernel prints one that the card never had."""
    card = with_port(hard_card(0x1A, 0, DOWN), state=PortState.DOWN)
    assert "rateGbps" not in values(only(pool(card)))


def test_each_mode_has_its_devices():
    cards = fleet(2)
    for mode, count, shared in (
        (Mode.HCA, 1, True),
        (Mode.EXCLUSIVE, 2, False),
        (Mode.SHARED, 2, False),
        (Mode.SHARED_MULTI, 2, True),
    ):
        offered = shape.claim_offer([pool(*cards, mode=mode)]).cards
        assert ([card.shared for card in offered]) == [shared] * count
    offered = shape.claim_offer([pool(*functions(3), mode=Mode.SRIOV)]).cards
    assert [values(card)["kind"] for card in offered] == ["vf"] * 3
    assert {card.group for card in offered} == {"0000:81:00.0"}
    parts = ({"subfunction": 7}, {"auxiliary": "mlx5_core.sf.4"}, {})
    cards = [Card(CardId("a"), (device(1, **facts),), None) for facts in parts]
    cards.append(replace(hard_card(0x1A), devices=()))
    assert [values(only(pool(one)))["kind"] for one in cards] == ["sf", "sf", "soft", "pf"]


def test_a_pool_of_all_cards_says_what_they_have_in_common():
    card = only(pool(*fleet(2), mode=Mode.HCA))
    assert card.name == "rdma-hca"
    assert card.slots == 1000
    assert values(card)["kind"] == "pool"
    assert values(card)["vendor"] == "15b3"
    assert "rdmaDevice" not in values(card)
    assert shape.claim_offer([pool(mode=Mode.HCA)]).cards == ()


def with_port(card, **facts):
    """The card with another port."""
    (device,) = card.devices
    return replace(card, devices=(replace(device, ports=(replace(device.ports[0], **facts),)),))


def test_a_pool_whose_cards_differ_does_not_say_in_what():
    """One of which the link is down differs in nothing that lasts."""
    first, second = fleet(2)
    down = with_port(second, state=PortState.DOWN)
    assert values(only(pool(first, down, mode=Mode.HCA)))["rateGbps"] == 100
    fast = with_port(second, rate_gbps=200.0)
    assert "rateGbps" not in values(only(pool(first, fast, mode=Mode.HCA)))


def test_a_shared_card_by_the_pool_s_word():
    spread = pool(*fleet(2), mode=Mode.HCA, bind=Bind.PER_CARD, shares=4)
    assert [(card.slots, card.shared) for card in offered(spread)] == [(4, True)] * 2


def test_a_card_that_cannot_be_used_is_tainted():
    cards = fleet(2, DOWN)
    taints = [card.taints for card in shape.claim_offer([pool(*cards)]).cards]
    assert [[taint.effect for taint in some] for some in taints] == [[TaintEffect.NO_SCHEDULE], []]
    (taint,) = only(pool(*cards, mode=Mode.HCA)).taints
    assert taint.effect == TaintEffect.NONE
    (taint,) = only(pool(cards[0], mode=Mode.HCA)).taints
    assert taint.effect == TaintEffect.NO_SCHEDULE


def test_a_card_with_one_dead_port_of_two_is_degraded():
    card = hard_card(0x1A)
    (device,) = card.devices
    dead = replace(device.ports[0], number=2, state=PortState.DOWN)
    card = replace(card, devices=(replace(device, ports=(*device.ports, dead)),))
    assert [taint.effect for taint in only(pool(card)).taints] == [TaintEffect.NONE]


def test_a_card_of_two_pools_belongs_to_the_first_and_one_sentence_says_so():
    cards = fleet(3)
    first, second = pool(cards[0]), pool(*cards, resource="rdma/other")
    offer = shape.claim_offer([first, second])
    assert [values(card)["resource"] for card in offer.cards] == ["rdma/hca", *["rdma/other"] * 2]
    (why,) = offer.refusals
    assert why == (
        "rdma/hca (config.json:1) and rdma/other (config.json:1) both have mlx5_0, which claims "
        "get by rdma/hca alone: select each card in one pool"
    )


def test_a_pool_of_all_cards_beside_another_pool_of_them_is_not_offered():
    offer = shape.claim_offer([pool(*fleet(2)), pool(*fleet(2), mode=Mode.HCA, resource="rdma/ib")])
    assert len(offer.cards) == 2
    (why,) = offer.refusals
    assert "claims get no rdma/ib" in why


def test_two_devices_of_one_name_are_one_with_a_sentence():
    alike = {"rdma/a.b": fleet(1), "rdma/a-b": fleet(2)[1:]}
    offer = shape.claim_offer([pool(*of, mode=Mode.HCA, resource=one) for one, of in alike.items()])
    assert [card.name for card in offer.cards] == ["rdma-a-b"]
    (why,) = offer.refusals
    assert "rdma/a-b (config.json:1) has a second device rdma-a-b" in why


def test_a_resource_too_long_for_an_attribute_is_not_offered():
    """Its devices could not be told from those of others when the pool is served otherwise."""
    fits, long = "rdma/" + "a" * 59, "rdma/" + "a" * 60
    offer = shape.claim_offer([pool(*fleet(1), resource=fits)])
    assert ([values(card)["resource"] for card in offer.cards], offer.refusals) == ([fits], ())
    offer = shape.claim_offer([pool(*fleet(1), resource=long)])
    assert offer.cards == ()
    (why,) = offer.refusals
    assert why.startswith(f"{long} (config.json:1) is longer than the 64 bytes")


@given(pools())
def test_no_card_is_offered_twice(made):
    offered = shape.claim_offer(made).cards
    assert len({card.name for card in offered}) == len(offered)
    addresses = [values(card).get("resource.kubernetes.io/pciBusID") for card in offered]
    kinds = [values(card)["kind"] for card in offered]
    hard = [a for a, kind in zip(addresses, kinds, strict=True) if a and kind in ("pf", "vf")]
    assert len(set(hard)) == len(hard)


def shared(count, resource="rdma/multi"):
    alike = attributes({"mode": "shared-multi", "resource": resource})
    return [OfferedCard(f"{resource}{n}", "g", alike, 16, shared=True) for n in range(count)]


@given(st.integers(1, 3000), st.sampled_from([1, 2, 4, shape.ROWS]))
def test_rows_have_every_share_and_grow(slots, most):
    sizes = shape.row_sizes(slots, most)
    assert sum(sizes) == slots
    assert min(slots, most) <= len(sizes) <= shape.PARTS
    assert min(sizes) >= 1
    assert list(sizes) == sorted(sizes)


@given(st.integers(1, 128))
def test_with_eight_rows_none_is_larger_than_all_before_it(slots):
    sizes = shape.row_sizes(slots, shape.ROWS)
    assert sizes[0] == 1
    assert all(size <= sum(sizes[:row]) for row, size in enumerate(sizes) if row)


def test_sixteen_and_sixty_four_shares():
    assert shape.row_sizes(16, shape.ROWS) == (*[1] * 8, 3, 5)
    assert shape.row_sizes(64, shape.ROWS) == (*[1] * 7, 5, 9, 16, 27)
    assert shape.row_sizes(16, 4) == (*[1] * 7, 9)


def test_a_card_more_or_less_seldom_changes_the_rows():
    assert [shape.row_count(shared(count), 64) for count in (1, 2, 8, 9, 16, 17, 32, 33)] == [
        *(1, 8, 8, 4, 4, 2, 2, 1)
    ]


def test_cards_of_two_pools_share_the_room():
    cards = [*shared(4), *shared(8, "rdma/more"), *shared(1, "rdma/alone")]
    assert shape.row_count(cards, 64) == 4


OFF = frozenset(ClaimFeature)
NO_CAPACITY = frozenset({ClaimFeature.CONSUMABLE_CAPACITY})
NO_TAINTS = frozenset({ClaimFeature.DEVICE_TAINTS})
FEATURES = st.frozensets(st.sampled_from(ClaimFeature))


def documents(parts):
    """Slices as they are on the wire."""
    made = pool_slices(SITE, 1, parts)
    return [msgspec.json.decode(wire.document(KIND, wanted_slice(part))) for part in made]


def shown(devices, time="2026-01-01T00:00:00Z"):
    """What is published, by name, with the times that the server has set."""
    timed = (
        replace(d, taints=tuple(replace(t, time_added=t.time_added or time) for t in d.taints))
        for d in devices
    )
    return {device.name: device for device in timed}


def untimed(devices):
    return [(device.name, {taint.key for taint in device.taints}) for device in devices]


def offered(*given):
    return shape.claim_offer(given).cards


def own_names(devices):
    """Those of cards, among parts of cards."""
    return [device.name for device in devices if "-s" not in device.name]


def first_fit(devices, pods):
    """The cards that so many pods get, each of the first device that has a share left."""
    left = {device.name: device.capacity["slots"].value for device in devices}
    for _ in range(pods):
        name = next((name for name, slots in left.items() if slots), None)
        if name is None:
            return
        left[name] -= 1
        yield name.rpartition("-s")[0] or name


@st.composite
def cards(draw):
    """Many cards of some groups, in pools of any mode."""
    count = draw(st.integers(0, 150))
    made = []
    for number in range(count):
        mode = draw(st.sampled_from(["exclusive", "shared-multi"]))
        said = attributes({"mode": mode, "rateGbps": draw(st.sampled_from([1, 100]))})
        taints = draw(st.sampled_from([(), (shape.UNHEALTHY,), (shape.DEGRADED,)]))
        slots = draw(st.sampled_from([1, 2, 16])) if mode == "shared-multi" else 1
        shared = mode == "shared-multi"
        group = f"g{draw(st.integers(0, 9))}"
        made.append(OfferedCard(f"c{number}", group, said, slots, shared, taints))
    return made


@given(st.one_of(cards(), pools().map(lambda made: shape.claim_offer(made).cards)), FEATURES)
def test_slices_are_within_the_limits_of_the_api(offer, without):
    parts = shape.slices(offer, {}, without)
    assert parts
    for document in documents(parts):
        assert list(faults(document["spec"])) == []
    names = [device.name for devices in parts for device in devices]
    assert len(set(names)) == len(names)


@given(pools(), FEATURES)
def test_the_same_pools_give_the_same_bytes(made, without):
    def written():
        return documents(shape.slices(shape.claim_offer(made).cards, {}, without))

    assert msgspec.json.encode(written()) == msgspec.json.encode(written())


@given(cards(), st.data())
def test_a_change_of_one_card_moves_no_device(offer, data):
    """And is one write, or some where rows need several slices: the generation stays."""
    if not offer:
        return
    number = data.draw(st.integers(0, len(offer) - 1))
    other = list(offer)
    taints = () if offer[number].taints else (shape.UNHEALTHY,)
    other[number] = replace(offer[number], taints=taints)
    before, after = shape.slices(offer, {}), shape.slices(other, {})
    writes = publication(SITE, pool_slices(SITE, 1, before), after)
    assert len(writes) == len(writes.changed) == sum(map(operator.ne, before, after))
    assert {part.spec.pool.generation for part in writes.changed} == {1}
    assert len(writes) == 1 or any("-s" in device.name for part in before for device in part)


@given(cards(), FEATURES)
def test_what_is_written_is_read_the_same(offer, without):
    parts = shape.slices(offer, {}, without)
    for devices, document in zip(parts, documents(parts), strict=True):
        stored = wire.stored(KIND, msgspec.json.encode(document))
        assert resource_slice(stored).spec.devices == devices


def test_one_slice_has_all_while_it_can():
    for count, sizes in ((shape.MOST_TAINTED, [64]), (shape.MOST_TAINTED + 1, [64, 1])):
        one = offered(pool(*functions(count), mode=Mode.SRIOV))
        assert [len(devices) for devices in shape.slices(one, {})] == sizes
    many = offered(
        pool(*functions(33), mode=Mode.SRIOV),
        pool(*functions(32, bus=0x91), mode=Mode.SRIOV, resource="rdma/b"),
    )
    assert [len(devices) for devices in shape.slices(many, {})] == [33, 32]
    assert len(shape.slices(many, {}, NO_TAINTS)) == 1


def test_a_request_that_names_nothing_takes_one_slot_and_no_bandwidth():
    ((device,),) = shape.slices(offered(pool(*fleet(1))), {})
    slots, bandwidth = device.capacity["slots"], device.capacity["bandwidth"]
    assert device.shared
    policy = slots.request_policy
    assert (slots.value, policy.default, policy.valid_range.min) == (16, 1, 1)
    assert (bandwidth.value, bandwidth.request_policy.default) == (100 * 10**9, 0)


def test_a_card_for_one_pod_has_facts_and_no_policy():
    ((device,),) = shape.slices(offered(pool(*fleet(1), mode=Mode.EXCLUSIVE)), {})
    assert not device.shared
    assert [capacity.request_policy for capacity in device.capacity.values()] == [None, None]


def test_without_consumable_capacity_shares_are_devices_card_by_card():
    ((*devices,),) = shape.slices(offered(pool(*fleet(2), shares=3)), {}, NO_CAPACITY)
    first, second = "0000-10-00-0", "0000-11-00-0"
    assert [device.name for device in devices] == [
        f"{card}-s{slot}" for slot in range(3) for card in (first, second)
    ]
    assert not any(device.shared for device in devices)


@pytest.mark.parametrize(("cards", "shares"), [(8, 8), (4, 8), (2, 16)])
def test_first_fit_over_rows_is_even_while_rows_are_of_one_share(cards, shares):
    (devices,) = shape.slices(offered(pool(*fleet(cards), shares=shares)), {})
    taken = Counter()
    for name in first_fit(devices, cards * 4):
        taken[name] += 1
        assert max(taken.values()) - min(taken[one] for one in own_names(devices)) <= 1


@given(st.integers(2, 32), st.integers(1, 200))
def test_rows_have_all_shares_of_each_card_and_no_card_has_twice_the_pods_of_another(cards, shares):
    parts = shape.slices(offered(pool(*fleet(cards), shares=shares)), {})
    assert all(len(part) <= shape.MOST_TAINTED for part in parts)
    devices = [device for part in parts for device in part]
    taken = list(first_fit(devices, cards * shares + 1))
    assert set(Counter(taken).values()) == {shares}
    if cards > 8 or shares > 128:
        return  # fewer rows, which are larger
    loads = Counter(dict.fromkeys(own_names(devices), 0))
    for name in taken:
        loads[name] += 1
        assert max(loads.values()) <= 2 * min(loads.values()) + 1


def test_bandwidth_of_a_card_is_counted_once():
    first, second = shape.slices(offered(pool(*fleet(8), shares=16)), {})
    devices = [*first, *second]
    assert (len(first), len(second)) == (shape.MOST_TAINTED, 16)
    counted = [device.name for device in devices if "bandwidth" in device.capacity]
    assert counted == own_names(devices) == [device.name for device in devices[-8:]]


@given(st.integers(2, 32), st.integers(1, 200))
def test_devices_of_one_share_are_for_one_claim_and_need_no_count(cards, shares):
    """But the last of each card, whose bandwidth is counted."""
    parts = shape.slices(offered(pool(*fleet(cards), shares=shares)), {})
    for one in (one for part in parts for one in part):
        last, slots = "bandwidth" in one.capacity, one.capacity["slots"]
        assert bool(one.shared) == (last or slots.value > 1) == bool(slots.request_policy)


def test_a_pool_for_itself_is_one_device_and_so_is_a_card_without_another():
    for one in (pool(*fleet(8), mode=Mode.HCA), pool(*fleet(1))):
        assert [len(devices) for devices in shape.slices(offered(one), {})] == [1]


def test_where_other_devices_need_the_slice_there_are_fewer_rows():
    """Each physical card has its own slice beyond 64 devices, and no rows."""
    for others, rows, slices in (
        *((0, 10, 2), (8, 8, 2), (32, 8, 2)),
        *((48, 2, 1), (56, 1, 1), (64, 1, 9)),
    ):
        vfs = pool(*functions(others), mode=Mode.SRIOV, resource="rdma/vf")
        parts = shape.slices(offered(vfs, pool(*fleet(8), resource="rdma/multi")), {})
        assert sum(map(len, parts)) == others + rows * 8
        assert len(parts) == slices


def test_a_pool_of_more_shares_than_devices_says_so():
    hca = offered(pool(*fleet(2), mode=Mode.HCA))
    (devices,) = shape.slices(hca, {}, OFF)
    assert len(devices) == shape.MOST
    assert "128 of 1000 shares" in shape.fewer(hca)
    assert shape.fewer(offered(pool(*fleet(8)))) is None


def test_without_taints_a_card_that_cannot_be_used_is_left_out():
    (devices,) = shape.slices(offered(pool(*fleet(2, DOWN))), {}, NO_TAINTS)
    second = "0000-11-00-0"
    assert [device.name for device in devices] == [*(f"{second}-s{n}" for n in range(9)), second]
    ((device,),) = shape.slices(offered(pool(*fleet(2, DOWN), mode=Mode.HCA)), {}, NO_TAINTS)
    assert device.taints == ()


@given(cards(), FEATURES)
def test_times_of_taints_are_carried_over(offer, without):
    before = shape.slices(offer, {}, without)
    stored = shown(device for devices in before for device in devices)
    after = shape.slices(offer, stored, without)
    assert [untimed(devices) for devices in after] == [untimed(devices) for devices in before]
    assert all(t.time_added for devices in after for device in devices for t in device.taints)


def test_a_taint_of_another_effect_has_no_time_yet():
    healthy = pool(*fleet(2), mode=Mode.HCA)
    degraded, ill = (pool(*fleet(n, DOWN), mode=Mode.HCA) for n in (2, 1))
    (devices,) = shape.slices(offered(degraded), {})
    ((device,),) = shape.slices(offered(ill), shown(devices))
    assert [taint.time_added for taint in device.taints] == [""]
    ((device,),) = shape.slices(offered(healthy), shown(devices))
    assert device.taints == ()


def test_a_card_inside_of_a_pod_is_still_what_it_was():
    """Its interface and RDMA device are in another namespace, its address is not."""
    (card,) = fleet(1)
    inside = replace(card, devices=(), function=replace(card.function, netdevs=()))
    for without in ((), OFF):
        (before,) = shape.slices(offered(pool(card)), {}, without)
        (after,) = shape.slices(offered(pool(inside)), shown(before), without)
        assert before == after


def test_a_pool_says_no_more_what_its_cards_differ_in():
    first, second = fleet(2)
    (before,) = shape.slices(offered(pool(first, second, mode=Mode.HCA)), {})
    other = pool(first, with_port(second, rate_gbps=200.0), mode=Mode.HCA)
    ((device,),) = shape.slices(offered(other), shown(before))
    assert "rateGbps" not in device.attributes


def test_a_card_that_is_left_out_changes_nothing_of_the_others():
    """Where shares are devices, and more than fit."""
    well, ill = (offered(pool(*fleet(10, *reasons))) for reasons in ((), (DOWN,)))
    names = [
        {device.name for part in shape.slices(c, {}, OFF) for device in part} for c in (well, ill)
    ]
    assert names[1] == {name for name in names[0] if not name.startswith("0000-10-")}


def test_another_card_at_the_place_is_not_what_the_first_was():
    (card,) = offered(pool(*fleet(1)))
    ((device,),) = shape.slices([card], {})
    bare = replace(card, attributes=attributes({"kind": "vf"}))
    ((after,),) = shape.slices([bare], {device.name: device})
    assert after.attributes == bare.attributes
