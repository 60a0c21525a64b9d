"""Rails belong to physical functions, and what becomes of one card moves no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.card import Card, CardId
from kube_rdma.model.rails import RailRecord
from kube_rdma.rules.pools.rails import numbers, physical, recorded
from tests.kit.nodes import device, function, hard_card, physical_with_virtual, seat

CARDS = tuple(hard_card(0x10 + number, number) for number in range(8))
IDS = tuple(card.id for card in CARDS)
LOOKS = st.lists(st.tuples(st.sets(st.sampled_from(CARDS)), st.booleans()), max_size=8)


def after(looks, listed=()):
    """The record after looks at a node: the cards in its pools, and whether it was idle."""
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
    """Cards come and go, in whatever order; those that were numbered keep their numbers."""
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
    """Fallen off the bus, or inside a pod in RDMA namespace mode exclusive."""
    *_, record = after([(CARDS, False), (CARDS[4:], False), (CARDS[5:], True)])
    assert rails(record, CARDS[5:])[IDS[5]] == 5
    bare = Card(IDS[5], (), function(CARDS[5].seat))
    assert rails(record, (bare,))[IDS[5]] == 5


def test_virtual_functions_and_sub_functions_have_their_card_s_rail():
    above = [physical_with_virtual(0x20 + at, 2, f"ens{at}f0") for at in range(2)]
    node = [Card(CardId(f.seat.pci), (device(n, f.seat),), f) for n, f in enumerate(sum(above, ()))]
    sub = device(9, above[1][0].seat, auxiliary="mlx5_core.sf.4")
    node.append(Card(CardId("mlx5_core.sf.4"), (sub,), None))
    offered = [card for card in node if physical(card) != card.id]
    (record,) = after([(offered, False)])
    assert [rails(record, node)[card.id] for card in node] == [0, 0, 0, 1, 1, 1, 1]


def test_a_soft_device_without_a_function_is_a_card_of_its_own():
    soft = Card(CardId("rxe1@veth1"), (device(1, None, "veth1"),), None)
    (record,) = after([([soft], False)])
    assert rails(record, (soft,)) == {soft.id: 0}


def test_a_list_has_the_last_word_and_a_name_outlives_the_interface():
    """By name or address; a card that is not listed has no rail, one in a pod keeps its own."""
    listed = ("eth5", "0000:10:00.0".upper(), "eth9")
    *_, record = after([(CARDS, True)], listed)
    expected = {IDS[5]: 0, IDS[0]: 1}
    assert {card: rail for card, rail in rails(record, CARDS, listed).items() if card in IDS} == (
        expected
    )
    inside = Card(IDS[5], (), function(seat(0x15)))
    again = recorded(record, (inside,), (inside,), listed, idle=False)
    assert rails(again, (inside,), listed)[IDS[5]] == 0
