"""Pools of a node, specs among themselves, and policies of a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import (
    Attach,
    Bind,
    ClusterNodePolicy,
    FunctionRange,
    Mode,
    PoolSpec,
    Preference,
    Selector,
)
from kube_rdma.pools.rules.modes import MODES, terms
from kube_rdma.pools.rules.pools import faults, node_specs, offer, resolve, warnings, with_defaults
from kube_rdma.pools.rules.selection import cards, why_not
from tests.kit.nodes import DOWN, RDMA_CM, device, function, hard_card, node, nodes, position, specs

SURVEY = node().survey
HCA = PoolSpec("rdma/hca", Mode.HCA, "config.json:1")
TWO = (hard_card(0x81, 0), hard_card(0xA1, 1, numa=1))


def resolved(found, wishes, held=None):
    return resolve(wishes, found.cards, found.survey, held)


@st.composite
def worlds(draw):
    """A node, wishes, and cards of it that pods hold by one resource each."""
    found, wishes = draw(nodes()), draw(specs())
    holding = {
        card.id: draw(st.sampled_from([None, *(spec.resource for spec in wishes)]))
        for card in found.cards
    }
    held = {
        spec.resource: {name for name, by in holding.items() if by == spec.resource}
        for spec in wishes
    }
    return found, wishes, held


@given(worlds())
def test_a_card_that_a_mode_owns_is_in_one_pool(world):
    found, wishes, held = world
    pools, _ = resolved(found, wishes, held)
    for card in found.cards:
        having = [pool.spec for pool in pools if card in pool.cards]
        assert len(having) <= 1 or not any(terms(spec).owns for spec in having)


@given(nodes(), specs(1))
def test_a_card_is_in_the_pool_exactly_when_nothing_says_why_not(found, wishes):
    ((pool,), clashes) = resolved(found, wishes)
    functions = {f.position.pci: f for f in found.survey.functions}
    meant = [card for card in found.cards if why_not(pool.spec, card, functions) is None]
    assert list(pool.cards) == meant
    assert not clashes


@given(worlds())
def test_a_held_card_stays_as_long_as_its_function_is_there(world):
    found, wishes, held = world
    pools, _ = resolved(found, wishes, held)
    for pool in pools:
        assert held[pool.spec.resource] <= {card.id for card in pool.cards}


@given(worlds())
def test_a_card_that_is_meant_is_in_a_pool_or_in_a_clash(world):
    found, wishes, held = world
    pools, clashes = resolved(found, wishes, held)
    functions = {f.position.pci: f for f in found.survey.functions}
    lost = {(clash.card.id, clash.second.resource) for clash in clashes if clash.fatal}
    for pool in pools:
        for card in found.cards:
            meant = why_not(pool.spec, card, functions) is None
            name = (card.id, pool.spec.resource)
            assert not meant or (card in pool.cards) is (name not in lost)
    for clash in clashes:
        assert f"({clash.first.source})" in str(clash)
        assert f"({clash.second.source})" in str(clash)
        assert clash.fatal is (terms(clash.first).owns or terms(clash.second).owns)


@given(nodes(), specs(), st.randoms(use_true_random=False))
def test_share_ids_are_fit_for_the_kubelet_and_for_a_restart(found, wishes, random):
    """Unique, at most 63 characters, the same when the kernel lists its devices otherwise."""
    pools, _ = resolved(found, wishes)
    for pool in pools:
        ids = [share.id for share in pool.shares]
        assert len(set(ids)) == len(ids)
        assert all(0 < len(name) <= 63 for name in ids)
    verdicts = list(found.verdicts)
    random.shuffle(verdicts)
    assert resolve(wishes, cards(found.survey, verdicts), found.survey)[0] == pools


@given(nodes(), specs())
def test_shares_follow_from_the_row_of_the_mode(found, wishes):
    for pool in resolved(found, wishes)[0]:
        row = terms(pool.spec)
        assert list(pool.cards) == sorted(pool.cards, key=lambda card: card.id)
        if row.bind is Bind.POOL:
            assert len(pool.shares) == (row.shares if pool.cards else 0)
            assert {s.healthy for s in pool.shares} <= {any(c.usable for c in pool.cards)}
            assert all(s.card is None and not s.numa_nodes for s in pool.shares)
            continue
        each = row.shares if row.numbered else 1
        assert [s.card for s in pool.shares] == [c.id for c in pool.cards for _ in range(each)]
        by_id = {card.id: card for card in pool.cards}
        for share in pool.shares:
            card = by_id[share.card]
            hint = card.numa_node if pool.spec.numa_hints else None
            assert share.healthy is card.usable
            assert share.numa_nodes == (() if hint is None else (hint,))


def test_the_pool_of_the_scc_document():
    """1000 shares of two cards, healthy as long as one card is."""
    ill = hard_card(0x81, 0, DOWN)
    ((pool,), _) = resolve([HCA], (ill, TWO[1]), SURVEY)
    assert len(pool.shares) == 1000
    assert (pool.shares[0].id, pool.shares[-1].id) == ("hca-0", "hca-999")
    assert all(share.healthy for share in pool.shares)
    assert (pool.unusable, pool.rdma_cm) == ((ill,), RDMA_CM.path)
    ((pool,), _) = resolve([HCA], (ill,), SURVEY)
    assert not any(share.healthy for share in pool.shares)


def test_per_card_shares_are_named_by_card_and_slot():
    spec = PoolSpec("rdma/multi", Mode.SHARED_MULTI, "c:1", shares=2)
    ((pool,), _) = resolve([spec], (TWO[0], hard_card(0xA1, 1, DOWN, numa=1)), SURVEY)
    assert [(s.id, s.healthy, s.numa_nodes) for s in pool.shares] == [
        ("0000:81:00.0-0", True, (0,)),
        ("0000:81:00.0-1", True, (0,)),
        ("0000:a1:00.0-0", False, (1,)),
        ("0000:a1:00.0-1", False, (1,)),
    ]


def test_two_pools_that_own_their_cards():
    first = PoolSpec("rdma/a", Mode.EXCLUSIVE, "config.json:3")
    second = PoolSpec("rdma/b", Mode.HCA, "config.json:9")
    (a, b), (clash, _) = resolve([first, second], TWO, SURVEY)
    assert (a.cards, b.cards) == (TWO, ())
    assert str(clash) == (
        "mlx5_0 belongs to rdma/a (config.json:3) and rdma/b (config.json:9); "
        "it stays with rdma/a, for mode exclusive shares no card"
    )


def test_two_pools_that_share_their_cards():
    first = PoolSpec("rdma/a", Mode.HCA, "config.json:3")
    (a, b), (clash, _) = resolve([first, replace(first, resource="rdma/b")], TWO, SURVEY)
    assert a.cards == b.cards == TWO
    assert not clash.fatal
    assert str(clash).endswith("so their shares count it twice")


def test_who_holds_a_card_keeps_it_before_an_earlier_wish():
    """A new pool at the head of the document must not give away what a pod has."""
    new = PoolSpec("rdma/new", Mode.EXCLUSIVE, "config.json:1")
    old = PoolSpec("rdma/old", Mode.EXCLUSIVE, "config.json:5")
    held = {"rdma/old": (TWO[1].id,)}
    pools, clashes = resolve([new, old], TWO, SURVEY, held)
    assert [pool.cards for pool in pools] == [TWO[:1], TWO[1:]]
    assert [(c.card, c.first, c.second) for c in clashes] == [
        (TWO[0], new, old),
        (TWO[1], old, new),
    ]


def test_a_card_inside_a_pod_is_not_lost():
    spec = PoolSpec("rdma/a", Mode.EXCLUSIVE, "c:1", (Selector(interfaces=("eth0",)),))
    where = position(0x81)
    before = node(function(where, "eth0"), devices=(device(0, where, "eth0"),))
    inside = node(function(where))
    ((pool,), _) = resolved(before, [spec])
    ((held,), _) = resolved(inside, [spec], {"rdma/a": [pool.cards[0].id]})
    assert held.shares == pool.shares
    ((lost,), _) = resolved(inside, [spec])
    assert lost.shares == ()


@pytest.mark.parametrize(
    ("spec", "prefers", "gated"),
    [
        (HCA, False, False),
        (replace(HCA, bind=Bind.PER_CARD), True, False),
        (replace(HCA, mode=Mode.EXCLUSIVE), True, True),
        (replace(HCA, mode=Mode.EXCLUSIVE, attach=Attach.NONE), True, False),
        (replace(HCA, mode=Mode.SRIOV), True, False),
    ],
)
def test_the_kubelet_is_told_which_questions_to_ask(spec, prefers, gated):
    ((pool,), _) = resolve([spec], TWO, SURVEY)
    told = offer(pool)
    assert (told.resource, told.shares) == ("rdma/hca", pool.shares)
    assert (told.prefers, told.gated) == (prefers, gated)


ONE = PciAddress("0000:81:00.0")
BOTH = PciAddress("0000:81:00.1")


def pools(first, second, modes=(Mode.EXCLUSIVE, Mode.EXCLUSIVE)):
    return [
        PoolSpec(f"rdma/{name}", mode, f"f:{line}", selectors=(selector,) if selector else ())
        for name, line, mode, selector in zip("ab", (1, 2), modes, (first, second), strict=True)
    ]


def spans(text, *indexes):
    return FunctionRange(text, indexes)


S = Selector
MEET = {
    "no selectors": (None, None, "every card"),
    "address": (S(pci_addresses=(BOTH, ONE)), S(pci_addresses=(ONE,)), ONE),
    "interface": (S(interfaces=("a", "b")), S(interfaces=("b", "c")), "b"),
    "RDMA device": (S(rdma_devices=("mlx5_0",)), S(rdma_devices=("mlx5_0",)), "mlx5_0"),
    "ACPI index": (S(acpi_indexes=(1,)), S(acpi_indexes=(1,)), "1"),
    "functions": (S(physical=(spans("a", (0, 3)),)), S(physical=(spans("a", (3, 5)),)), "a#3"),
    "all functions": (S(physical=(spans("a"),)), S(physical=(spans("a", (3, 5)),)), "a#3-5"),
    "root": (S(roots=(spans(ONE, (0, 3)),)), S(roots=(spans(ONE, (1, 1)),)), f"{ONE}#1"),
    "one narrower": (S(interfaces=("a",)), S(interfaces=("a",), vendors=("15b3",)), "a"),
    "both the same": (S(interfaces=("a",), pci_addresses=(ONE,)),) * 2 + (ONE,),
}
APART = {
    "all and some": (None, S(interfaces=("a",))),
    "other address": (S(pci_addresses=(BOTH,)), S(pci_addresses=(ONE,))),
    "other ranges": (S(physical=(spans("a", (0, 3)),)), S(physical=(spans("a", (4, 5)),))),
    "other parent": (S(physical=(spans("a"),)), S(physical=(spans("b"),))),
    "other driver": (S(interfaces=("a",), drivers=("x",)), S(interfaces=("a",), drivers=("y",))),
    "perhaps": (S(interfaces=("a",), drivers=("x",)), S(interfaces=("a",), vendors=("15b3",))),
    "with and without RDMA": (S(interfaces=("a",), rdma=True), S(interfaces=("a",), rdma=False)),
    "vendor and interface": (S(vendors=("15b3",)), S(interfaces=("a",))),
    "two names": (
        S(interfaces=("a", "b"), pci_addresses=(ONE,)),
        S(interfaces=("a", "c"), pci_addresses=(ONE, BOTH)),
    ),
}


@pytest.mark.parametrize("name", MEET)
def test_an_owner_refuses_a_second_pool_of_its_cards(name):
    first, second, what = MEET[name]
    for one, other in ((first, second), (second, first)):
        for modes in ((Mode.EXCLUSIVE, Mode.SHARED), (Mode.HCA, Mode.EXCLUSIVE)):
            specs = pools(one, other, modes)
            (fault,) = faults(specs)
            assert str(fault).startswith(f"f:2: rdma/b and rdma/a both have {what}, and mode exc")
            assert fault.remedy.endswith("f:1")
            assert not warnings(specs)


@pytest.mark.parametrize("name", MEET)
def test_sharing_pools_of_the_same_cards_are_warned_of(name):
    first, second, what = MEET[name]
    specs = pools(first, second, (Mode.HCA, Mode.SHARED))
    assert not faults(specs)
    (warning,) = warnings(specs)
    assert warning.startswith(f"rdma/a (f:1) and rdma/b (f:2) both have {what}, ")


@pytest.mark.parametrize("name", APART)
def test_what_depends_on_the_node_is_left_to_it(name):
    for one, other in (APART[name], APART[name][::-1]):
        assert not faults(pools(one, other))
        assert not warnings(pools(one, other, (Mode.HCA, Mode.HCA)))


def test_a_resource_is_given_once():
    specs = [PoolSpec("rdma/a", Mode.HCA, f"f:{n}", (S(interfaces=(f"i{n}",)),)) for n in (1, 2, 3)]
    said_of = [str(fault) for fault in faults(specs)]
    assert said_of[0] == "f:2: the resource rdma/a is given twice. Rename one, the first is f:1."
    assert [line[:4] for line in said_of] == ["f:2:", "f:3:"]


@pytest.mark.parametrize("mode", Mode)
def test_shares_are_at_most_what_the_mode_has(mode):
    most = MODES[mode].most
    assert not faults([PoolSpec("rdma/a", mode, "f:1", shares=most)])
    if most is not None:
        (fault,) = faults([PoolSpec("rdma/a", mode, "f:1", shares=most + 1)])
        assert fault.problem == f"{most + 1} shares of a card are more than mode {mode} has"
        assert fault.where == "f:1"


@given(
    st.builds(
        PoolSpec,
        st.just("rdma/a"),
        st.sampled_from(Mode),
        st.just("f"),
        shares=st.none() | st.integers(1, 9),
        bind=st.none() | st.sampled_from(Bind),
        prefer=st.none() | st.sampled_from(Preference),
    )
)
def test_what_is_said_of_a_wish_changes_nothing_in_it(spec):
    whole = with_defaults(spec)
    assert terms(whole) == terms(spec)
    assert None not in (whole.shares, whole.bind, whole.attach, whole.prefer)
    assert with_defaults(whole) == whole


POLICY_HCA = PoolSpec("rdma/hca", Mode.HCA, "a")
LABELS = (("kind", "gpu"), ("zone", "a"))
A = ClusterNodePolicy("a", (), 0, (POLICY_HCA,))

policies = st.lists(
    st.builds(
        ClusterNodePolicy,
        st.sampled_from("abcdef"),
        st.sampled_from([(), (("kind", "gpu"),), (("kind", "cpu"),)]),
        st.integers(-2, 2),
        st.lists(st.sampled_from(["rdma/a", "rdma/b"]), unique=True, max_size=2).map(
            lambda names: tuple(PoolSpec(name, Mode.HCA, "x") for name in names)
        ),
        st.just(()),
        st.sampled_from([(), ("ens1",), ("ens2",)]),
    ),
    unique_by=lambda policy: policy.name,
)


def test_a_policy_is_for_nodes_with_all_of_its_labels():
    chosen = replace(A, selector=(("kind", "gpu"),))
    other = replace(A, name="b", selector=(("kind", "gpu"), ("zone", "b")))
    assert node_specs([chosen], LABELS).pools == (POLICY_HCA,)
    assert node_specs([other], LABELS).pools == ()
    assert node_specs([chosen], ()).pools == ()


def test_policies_add_up_and_a_higher_priority_wins_a_resource():
    more = PoolSpec("rdma/more", Mode.SHARED, "b")
    mine = replace(POLICY_HCA, mode=Mode.SHARED)
    wishes = node_specs([A, ClusterNodePolicy("b", (), 5, (mine, more))], LABELS)
    assert set(wishes.pools) == {mine, more}
    assert wishes.overlaps == ()


def test_equal_priorities_are_told_and_the_first_by_name_counts():
    other = replace(A, name="b", pools=(replace(POLICY_HCA, mode=Mode.SHARED),))
    wishes = node_specs([other, A], LABELS)
    assert wishes.pools == (POLICY_HCA,)
    (sentence,) = wishes.overlaps
    assert sentence.startswith("NodePolicy a and NodePolicy b both name the resource rdma/hca")


def test_two_orders_of_rails_are_told_unless_they_are_the_same():
    first, second = replace(A, rails=("ens1",)), replace(A, name="b", pools=(), rails=("ens2",))
    wishes = node_specs([first, second], LABELS)
    assert wishes.rails == ("ens1",)
    assert "both order the rails" in wishes.overlaps[0]
    assert node_specs([first, replace(second, rails=("ens1",))], LABELS).overlaps == ()


@given(policies, st.randoms())
def test_the_order_in_which_policies_come_changes_nothing(some, random):
    shuffled = list(some)
    random.shuffle(shuffled)
    assert node_specs(shuffled, LABELS) == node_specs(some, LABELS)


@given(policies)
def test_each_resource_is_wished_once_by_the_highest_priority_of_those_that_select(some):
    wishes = node_specs(some, LABELS)
    names = [pool.resource for pool in wishes.pools]
    own = [p for p in some if set(p.selector) <= set(LABELS)]
    assert len(names) == len(set(names))
    assert set(names) == {pool.resource for policy in own for pool in policy.pools}
    for name in names:
        tops = [p for p in own if any(pool.resource == name for pool in p.pools)]
        best = max(p.priority for p in tops)
        shared = [p for p in tops if p.priority == best]
        told = [s for s in wishes.overlaps if f"resource {name} " in s]
        assert len(told) >= len(shared) - 1
        assert bool(told) or len(shared) == 1


@pytest.mark.parametrize(
    ("drivers", "meant"),
    [(("mlx5_ib",), "mlx5_core"), (("bnxt_re",), "bnxt_en"), (("mlx5_core", "mlx5_ib"), "")],
)
def test_the_module_of_rdma_devices_is_no_driver_of_a_card(drivers, meant):
    """Such a pool never has a card; beside the driver the module does no harm."""
    said = warnings([replace(HCA, selectors=(Selector(drivers=drivers),))])
    assert bool(said) == bool(meant)
    assert all(sentence.endswith(f"Did you mean {meant}?") for sentence in said)
