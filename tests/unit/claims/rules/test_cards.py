"""What pools offer to claims: a device by mode, what it is called, and what is wrong with it."""

from hypothesis import given

from kube_base.frozen import replace
from kube_rdma.claims.rules.shape import claim_offer
from kube_rdma.model.claims.devices import TaintEffect
from kube_rdma.model.device import PortState
from kube_rdma.model.pools import Bind, Mode
from tests.kit.claims import fleet, functions, pool, pools
from tests.kit.nodes import DOWN, hard_card


def attributes(card):
    return dict(card.attributes)


def only(*given, rail=lambda _: None):
    (card,) = claim_offer(given, rail).cards
    return card


def test_a_card_says_what_it_is():
    card = only(pool(hard_card(0x1A, 3, numa=1)), rail=lambda _: 2)
    assert attributes(card) == {
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
        assert "resource.kubernetes.io/numaNode" not in attributes(
            only(pool(hard_card(0x1A, numa=numa)))
        )


def test_a_link_that_is_down_shows_no_rate():
    """The kernel prints one that the card never had."""
    card = with_port(hard_card(0x1A, 0, DOWN), state=PortState.DOWN)
    assert "rateGbps" not in attributes(only(pool(card)))


def test_each_mode_has_its_devices():
    cards = fleet(2)
    for mode, count, shared in (
        (Mode.HCA, 1, True),
        (Mode.EXCLUSIVE, 2, False),
        (Mode.SHARED, 2, False),
        (Mode.SHARED_MULTI, 2, True),
    ):
        offered = claim_offer([pool(*cards, mode=mode)]).cards
        assert ([card.shared for card in offered]) == [shared] * count
    offered = claim_offer([pool(*functions(3), mode=Mode.SRIOV)]).cards
    assert [attributes(card)["kind"] for card in offered] == ["vf"] * 3
    assert {card.group for card in offered} == {"0000:81:00.0"}


def test_a_pool_of_all_cards_says_what_they_have_in_common():
    card = only(pool(*fleet(2), mode=Mode.HCA))
    assert card.name == "rdma-hca"
    assert card.slots == 1000
    assert attributes(card)["kind"] == "pool"
    assert attributes(card)["vendor"] == "15b3"
    assert "rdmaDevice" not in attributes(card)
    assert claim_offer([pool(mode=Mode.HCA)]).cards == ()


def with_port(card, **facts):
    """The card with another port."""
    (device,) = card.devices
    return replace(card, devices=(replace(device, ports=(replace(device.ports[0], **facts),)),))


def test_a_pool_whose_cards_differ_does_not_say_in_what():
    """One of which the link is down differs in nothing that lasts."""
    first, second = fleet(2)
    down = with_port(second, state=PortState.DOWN)
    assert attributes(only(pool(first, down, mode=Mode.HCA)))["rateGbps"] == 100
    fast = with_port(second, rate_gbps=200.0)
    assert "rateGbps" not in attributes(only(pool(first, fast, mode=Mode.HCA)))


def test_a_shared_card_by_the_pool_s_word():
    spread = pool(*fleet(2), mode=Mode.HCA, bind=Bind.PER_CARD, shares=4)
    assert [(card.slots, card.shared) for card in claim_offer([spread]).cards] == [(4, True)] * 2


def test_a_card_that_cannot_be_used_is_tainted():
    cards = fleet(2, DOWN)
    taints = [card.taints for card in claim_offer([pool(*cards)]).cards]
    assert [[taint.effect for taint in some] for some in taints] == [[TaintEffect.NO_SCHEDULE], []]
    (taint,) = only(pool(*cards, mode=Mode.HCA)).taints
    assert taint.effect is TaintEffect.NONE
    (taint,) = only(pool(cards[0], mode=Mode.HCA)).taints
    assert taint.effect is TaintEffect.NO_SCHEDULE


def test_a_card_with_one_dead_port_of_two_is_degraded():
    card = hard_card(0x1A)
    (device,) = card.devices
    dead = replace(device.ports[0], number=2, state=PortState.DOWN)
    card = replace(card, devices=(replace(device, ports=(*device.ports, dead)),))
    assert [taint.effect for taint in only(pool(card)).taints] == [TaintEffect.NONE]


def test_a_card_of_two_pools_belongs_to_the_first_and_one_sentence_says_so():
    cards = fleet(3)
    first, second = pool(cards[0]), pool(*cards, resource="rdma/other")
    offer = claim_offer([first, second])
    assert [attributes(card)["resource"] for card in offer.cards] == [
        "rdma/hca",
        *["rdma/other"] * 2,
    ]
    (why,) = offer.refusals
    assert why == (
        "rdma/hca (config.json:1) and rdma/other (config.json:1) both have mlx5_0, which claims "
        "get by rdma/hca alone: select each card in one pool"
    )


def test_a_pool_of_all_cards_beside_another_pool_of_them_is_not_offered():
    offer = claim_offer([pool(*fleet(2)), pool(*fleet(2), mode=Mode.HCA, resource="rdma/ib")])
    assert len(offer.cards) == 2
    (why,) = offer.refusals
    assert "claims get no rdma/ib" in why


def test_two_devices_of_one_name_are_one_with_a_sentence():
    offer = claim_offer(
        [
            pool(*fleet(1), mode=Mode.HCA, resource="rdma/a.b"),
            pool(*fleet(2)[1:], mode=Mode.HCA, resource="rdma/a-b"),
        ]
    )
    assert [card.name for card in offer.cards] == ["rdma-a-b"]
    (why,) = offer.refusals
    assert "rdma/a-b (config.json:1) has a second device rdma-a-b" in why


@given(pools())
def test_no_card_is_offered_twice(made):
    offered = claim_offer(made).cards
    assert len({card.name for card in offered}) == len(offered)
    addresses = [attributes(card).get("resource.kubernetes.io/pciBusID") for card in offered]
    kinds = [attributes(card)["kind"] for card in offered]
    hard = [a for a, kind in zip(addresses, kinds, strict=True) if a and kind in ("pf", "vf")]
    assert len(set(hard)) == len(hard)
