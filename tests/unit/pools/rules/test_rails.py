"""Rails belong to physical functions, and what becomes of one card moves no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools import RailRecord
from kube_rdma.pools.rules.rails import numbers, physical, places_of, recorded, without_cards
from tests.kit.nodes import device, function, hard_card, physical_with_virtual, position

CARDS = tuple(hard_card(0x10 + number, number) for number in range(8))
IDS = tuple(card.id for card in CARDS)
LOOKS = st.lists(st.tuples(st.sets(st.sampled_from(CARDS)), st.booleans()), max_size=8)


def after(looks, listed=()):
    record = RailRecord()
    for cards, idle in looks:
        record = recorded(record, cards, tuple(cards), listed, idle=idle)
        yield record


def rails(record, node=CARDS, listed=()):
    return dict(numbers(record, node, listed))


def test_cards_are_numbered_by_address():
    (record,) = after([(CARDS[::-1], False)])
    assert rails(record) == {card: rail for rail, card in enumerate(IDS)}


@given(LOOKS)
def test_while_pods_run_no_card_s_rail_changes(looks):
    records = [RailRecord(), *after(looks)]
    for before, now, (_, idle) in zip(records, records[1:], looks, strict=False):
        assert set(before.functions) <= set(now.functions)
        if not idle:
            assert now.functions[: len(before.functions)] == before.functions


@given(LOOKS)
def test_an_idle_node_has_the_order_of_addresses_again(looks):
    """So nodes of one kind agree, whatever happened to each of them."""
    seen = {card.id for cards, _ in looks for card in cards}
    *_, last = after([*looks, ((), True)])
    assert last.functions == tuple(sorted(seen))


def test_a_card_that_is_gone_or_without_its_devices_shifts_nobody():
    *_, record = after([(CARDS, False), (CARDS[4:], False), (CARDS[5:], True)])
    assert rails(record, CARDS[5:])[IDS[5]] == 5
    assert rails(record, (Card(IDS[5], (), function(CARDS[5].position)),))[IDS[5]] == 5


def test_virtual_functions_and_sub_functions_have_their_card_s_rail():
    above = [physical_with_virtual(0x20 + at, 2, f"ens{at}f0") for at in range(2)]
    node = [
        Card(CardId(f.position.pci), (device(n, f.position),), f)
        for n, f in enumerate(sum(above, ()))
    ]
    sub = device(9, above[1][0].position, auxiliary="mlx5_core.sf.4")
    node.append(Card(CardId("mlx5_core.sf.4"), (sub,), None))
    offered = [card for card in node if physical(card) != card.id]
    (record,) = after([(offered, False)])
    assert [rails(record, node)[card.id] for card in node] == [0, 0, 0, 1, 1, 1, 1]


def moved(card, bus, at=None):
    where = position(bus)
    (one,) = card.devices
    return Card(
        CardId(where.pci),
        (
            replace(
                one, identity=where.pci, position=where, pci=where.pci, node_guid=at or guid(card)
            ),
        ),
        function(where, *(netdev.name for netdev in card.function.netdevs)),
    )


def guid(card):
    return f"a088:c203:0077:{card.id[5:7]:0>4}"


KNOWN = tuple(moved(card, 0x10 + number) for number, card in enumerate(CARDS))


def by_guid(record, node):
    found = rails(record, node)
    return {card.devices[0].node_guid: found[card.id] for card in node}


@given(
    st.lists(st.integers(0x01, 0xFE), min_size=8, max_size=8, unique=True),
    st.sets(st.sampled_from(range(8))),
    st.booleans(),
    st.booleans(),
)
def test_cards_at_other_buses_keep_their_rails(buses, away, idle, rebooted):
    first = recorded(RailRecord(), KNOWN, KNOWN, (), idle=True, boot="1")
    shifted = [moved(card, bus, guid(card)) for card, bus in zip(CARDS, buses, strict=True)]
    some = [card for number, card in enumerate(shifted) if number not in away]
    record = first
    for node in (some, shifted, shifted[::-1]):
        boot = "2" if rebooted else "1"
        record = recorded(record, node, node, (), idle=idle, boot=boot)
        assert by_guid(record, node).items() <= by_guid(first, KNOWN).items()
    assert len(record.functions) == 8
    assert without_cards(record, shifted) is None


def test_a_guid_that_two_cards_have_or_nobody_was_given_identifies_none():
    a, b, c, d = CARDS[:4]
    node = (moved(a, 0x10), moved(b, 0x11, guid(a)), moved(c, 0x12, "0000:0000:0000:0000"), d)
    assert recorded(RailRecord(), node, node, (), idle=True).guids == ()


def test_another_card_in_a_slot_has_the_slot_s_rail():
    """As after a repair; the one that was there before is new when it comes back elsewhere."""
    first = recorded(RailRecord(), KNOWN, KNOWN, (), idle=True)
    spare = moved(CARDS[3], 0x13, "0000:0000:0000:0099")
    node = (*KNOWN[:3], spare, *KNOWN[4:])
    record = recorded(first, node, node, (), idle=False)
    assert rails(record, node) == rails(first, KNOWN)
    back = moved(CARDS[3], 0x30, guid(CARDS[3]))
    record = recorded(record, (*node, back), (*node, back), (), idle=False)
    assert rails(record, (*node, back))[back.id] == 8


def test_as_many_new_cards_after_a_boot_take_the_places_of_those_that_are_gone():
    record = RailRecord(functions=IDS)
    others = tuple(hard_card(0x40 + number, number) for number in range(8))
    grown = recorded(record, others, others, (), idle=False)
    assert min(rails(grown, others).values()) == 0
    assert sorted(rails(grown, others)[card.id] for card in others) == list(range(8, 16))
    assert "16 rails are numbered, and the node has no card for 0, 1," in without_cards(
        grown, others
    )
    again = recorded(record, others, others, (), idle=False, boot="2")
    assert [rails(again, others)[card.id] for card in others] == list(range(8))
    assert without_cards(again, others) is None


def test_drivers_that_are_late_after_a_boot_are_waited_for():
    """While the node is idle, new cards get their places once as many are there."""
    record = RailRecord(functions=IDS, boot="1")
    others = tuple(hard_card(0x40 + number, number) for number in range(8))
    for count in (3, 8):
        record = recorded(record, others[:count], others[:count], (), idle=True, boot="2")
    assert [rails(record, others)[card.id] for card in others] == list(range(8))


def test_a_card_that_is_lost_after_a_boot_keeps_its_rail_from_fewer_new_ones():
    record = recorded(
        RailRecord(functions=IDS, boot="1"), CARDS[2:], CARDS[2:], (), idle=True, boot="2"
    )
    new = hard_card(0x40, 9)
    node = (*CARDS[2:], new)
    record = recorded(record, node, node, (), idle=True, boot="2")
    assert rails(record, node)[new.id] == 8
    assert rails(record, node)[IDS[2]] == 2


def test_a_soft_device_without_a_function_is_a_card_of_its_own():
    soft = Card(CardId("rxe1@veth1"), (device(1, None, "veth1"),), None)
    (record,) = after([([soft], False)])
    assert rails(record, (soft,)) == {soft.id: 0}


def test_a_list_has_the_last_word_and_a_name_outlives_the_interface():
    listed = ("eth5", "0000:10:00.0".upper(), "eth9")
    *_, record = after([(CARDS, True)], listed)
    expected = {IDS[5]: 0, IDS[0]: 1}
    assert {card: rail for card, rail in rails(record, CARDS, listed).items() if card in IDS} == (
        expected
    )
    inside = Card(IDS[5], (), function(position(0x15)))
    again = recorded(record, (inside,), (inside,), listed, idle=False)
    assert rails(again, (inside,), listed)[IDS[5]] == 0


def test_the_places_of_rails_are_those_of_the_list_or_of_the_numbers():
    (numbered,) = after([(CARDS[:2], False)])
    assert places_of(numbered) == (("0", IDS[0]), ("1", IDS[1]))
    listed = (IDS[0], "0000:AA:00.0", "eth1")
    (record,) = after([(CARDS[:2], False)], listed)
    places = {IDS[0]: IDS[0], "0000:AA:00.0": "0000:aa:00.0", "eth1": IDS[1]}
    assert dict(places_of(record)) == places
    soft = Card(CardId("rxe0@eth0"), (device(0, None, "eth0", identity="rxe0@eth0"),), None)
    (record,) = after([((soft,), False)])
    assert places_of(record) == ()
