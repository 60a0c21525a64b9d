"""Cards in no pool that a selector seems to mean: told, unless they may be left out on purpose."""

from __future__ import annotations

import pytest

from kube_base.frozen import replace
from kube_rdma.model.card import Netdev
from kube_rdma.model.pools import Mode, PoolSpec, Selector
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards, why_left
from tests.kit.nodes import device, function, node, position

FUNCTIONS = [function(position(0x80 + n), f"ib{n}") for n in range(4)]
DEVICES = [device(n, one.position, f"ib{n}") for n, one in enumerate(FUNCTIONS)]
RENAMED = Selector(interfaces=("ib0", "ib1", "ib2", "ibp166s0"))


def facts(*selectors, functions=FUNCTIONS, devices=DEVICES, mode=Mode.SHARED):
    survey = node(*functions, devices=devices).survey
    return NodeFacts(
        survey, node_cards(survey), (PoolSpec("rdma/nic", mode, "c:1", selectors=selectors),)
    )


def left_out(*selectors, **node):
    seen = facts(*selectors, **node)
    names = {card.id: card.name for card in seen.cards}
    return {names[card]: why for card, why in evaluate(seen).left_out.items()}


def hidden(number):
    """The cards where the interface of one is inside of a pod."""
    return [replace(f, netdevs=() if n == number else f.netdevs) for n, f in enumerate(FUNCTIONS)]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (RENAMED, "interface ib3 is not among ib0, ib1, ib2, ibp166s0"),
        (
            Selector(rdma_devices=("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_33")),
            "RDMA device mlx5_3 is not among mlx5_0, mlx5_1, mlx5_2, mlx5_33",
        ),
        (
            Selector(
                pci_addresses=("0000:80:00.0", "0000:81:00.0", "0000:82:00.0", "0000:8a:00.0")
            ),
            "PCI address 0000:83:00.0 is not among 0000:80:00.0, 0000:81:00.0, 0000:82:00.0, ",
        ),
    ],
)
def test_a_name_that_nothing_has_beside_a_card_that_nothing_names_is_told(selector, why):
    sentence = left_out(selector)["mlx5_3"]
    (field,) = filter(None, (selector.interfaces, selector.rdma_devices, selector.pci_addresses))
    assert sentence.startswith(why)
    told = f"; rdma/nic (c:1) names {field[-1]}, which the node does not have"
    assert sentence.endswith(told)


OTHER_MODEL = [*FUNCTIONS[:3], replace(FUNCTIONS[3], device=0x101D)]


@pytest.mark.parametrize(
    ("selectors", "node"),
    {
        "all cards": ([], {}),
        "one left out on purpose, all names are there": ([Selector(interfaces=("ib0", "ib1"))], {}),
        "a card of another model, as for storage": ([RENAMED], {"functions": OTHER_MODEL}),
        "names of two kinds of nodes": (
            [Selector(interfaces=("ib0", "ib1", "ib2", "ens1", "ens2", "ens3"))],
            {},
        ),
        "mostly names of other nodes": ([Selector(interfaces=("ib0", "ens1", "ens2"))], {}),
        "another selector has the card": ([RENAMED, Selector(rdma_devices=("mlx5_3",))], {}),
        "the kind is not asked for": ([replace(RENAMED, vendors=("8086",))], {}),
        "an interface is inside of a pod": (
            [Selector(interfaces=("ib0", "ib1", "ib2"))],
            {"functions": hidden(2), "devices": DEVICES[:2] + DEVICES[3:]},
        ),
        "no card of the pool is here": ([Selector(interfaces=("ens1",))], {}),
    }.values(),
)
def test_nothing_is_told_of_what_may_be_meant_so(selectors, node):
    assert left_out(*selectors, **node) == {}


def test_a_card_that_the_mode_leaves_to_the_node_is_none_of_them():
    """A name would not bring the card into the pool: the node's own route leads through it."""
    route = Netdev("ib3", "ether", up=True, carrier=True, default_route=True)
    functions = [*FUNCTIONS[:3], replace(FUNCTIONS[3], netdevs=(route,))]
    assert left_out(RENAMED, functions=functions, mode=Mode.EXCLUSIVE) == {}
    assert left_out(RENAMED, functions=functions)


def test_why_a_card_left_is_what_its_pools_say():
    seen = facts(RENAMED)
    cards = {card.name: card.id for card in seen.cards}
    left = why_left(seen, {cards["mlx5_3"], "0000:ff:00.0"})
    assert left == {cards["mlx5_3"]: "interface ib3 is not among ib0, ib1, ib2, ibp166s0"}
    nothing = why_left(replace(seen, specs=()), {cards["mlx5_3"]})
    assert nothing == {cards["mlx5_3"]: "no pool is configured"}
