"""A network with pools of single rails gets the pod's card on them, whatever order shares have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.documents.network_definition import load
from kube_rdma.attach.rules import delegated
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.model.attach.attachment import Plan
from kube_rdma.model.pools import Mode
from tests.kit.pod_networks import RESOURCE, card, network, node, share, wish

CARDS = [card(number) for number in range(8)]
RAILS = tuple((each.id, rail) for rail, each in enumerate(CARDS))
HOST = replace(node(*CARDS), rails=RAILS)
EVERY = tuple(range(8))


def rail(number):
    """The network of one rail."""
    return network(f"rail-{number}", rails=(number,))


def nics_of(networks, shares, host=HOST):
    """The card of each network, in the order of the annotation."""
    wishes = [wish(number, of) for number, of in enumerate(networks)]
    return [nic.card for nic in pod_nics(wishes, shares, host)]


@given(st.permutations(EVERY), st.permutations(EVERY))
def test_each_network_of_a_rail_is_on_its_rail(asked, held):
    shares = [share(CARDS[number]) for number in held]
    assert nics_of(map(rail, asked), shares) == [CARDS[number] for number in asked]


@given(st.permutations(EVERY), st.integers(0, 7))
def test_a_network_for_every_rail_takes_what_the_others_leave(held, number):
    shares = [share(CARDS[one]) for one in held[:2]]
    follows = network("rails", rails=EVERY)
    wanted = held[number % 2]
    other = held[1 - number % 2]
    assert nics_of([follows, rail(wanted)], shares) == [CARDS[other], CARDS[wanted]]
    assert nics_of([follows, follows], shares) == [CARDS[one] for one in held[:2]]


def test_one_share_of_all_cards_has_every_rail():
    shares = [share(*CARDS, mode=Mode.HCA)]
    assert nics_of(map(rail, reversed(EVERY)), shares) == list(reversed(CARDS))


def test_a_pod_without_a_card_on_the_rail_is_refused():
    with pytest.raises(Refused) as refusal:
        nics_of([rail(3)], [share(CARDS[0])])
    sentence = f"the network is for rail 3, and of {RESOURCE} the pod was given mlx5_0 (ens0f0)"
    assert sentence in str(refusal.value)
    assert "name a network with a pool for each rail" in str(refusal.value)


def test_a_second_network_of_a_rail_is_refused():
    with pytest.raises(Refused, match="every card that the pod holds"):
        nics_of([rail(0), rail(0)], [share(CARDS[0]), share(CARDS[1])])


def test_where_nobody_knows_the_rails_the_order_counts():
    shares = [share(CARDS[1]), share(CARDS[0])]
    assert nics_of([rail(0), rail(1)], shares, node(*CARDS)) == [CARDS[1], CARDS[0]]


@given(st.permutations(EVERY), st.permutations(EVERY))
def test_a_meta_plugin_that_knows_no_rails_is_overruled(asked, held):
    """Multus gives the n-th network the n-th share; the cards that earlier calls took are gone."""
    shares = tuple(share(CARDS[number]) for number in held)
    before = []
    for number, (one, handed) in enumerate(zip(asked, shares, strict=True)):
        meant = wish(number, rail(one), device_id=handed.share)
        placed = delegated.nic(meant, shares, before, HOST)
        assert placed.card == CARDS[one]
        before.append(Plan(meant.ask.interface, "n", placed.card.id, (), held=placed.share.held))


def test_a_meta_plugin_s_choice_counts_for_a_network_of_every_rail():
    shares = tuple(map(share, CARDS))
    meant = wish(0, network("rails", rails=EVERY), device_id=shares[5].share)
    assert delegated.nic(meant, shares, (), HOST).card == CARDS[5]


@pytest.mark.parametrize(
    ("ipam", "rails"),
    [
        ('"pools": {"3": "rail-3"}', (3,)),
        ('"pools": {"0": "a", "1": "b"}', (0, 1)),
        ('"pool": "a"', ()),
        ('"pool": "a", "pools": {"0": "b"}', ()),
    ],
)
def test_pools_say_which_rails_a_network_is_for(ipam, rails):
    """A pool for all cards makes it one for any."""
    text = f'{{"type": "kube-rdma", "ipam": {{"type": "kube-rdma-ipam", {ipam}}}}}'
    assert load("default", "n", text.encode(), RESOURCE).network.rails == rails
