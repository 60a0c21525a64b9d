"""A pool goes from shares to claims and back: no card is given twice, and no share too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.claims.rules import serving
from kube_rdma.model.claims.claim import ClaimName, ClaimShare, PreparedClaim
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Mode, Serving, ShareId
from kube_rdma.pools.rules.allocation import allocate
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.pools import offer
from tests.kit.claims import fleet, pool

HCA = "rdma/hca"
MODES = st.sampled_from([Mode.HCA, Mode.SHARED_MULTI, Mode.EXCLUSIVE, Mode.SHARED])


def no_rail(_):
    return None


def served(serve, mode=Mode.SHARED_MULTI, cards=2, **facts):
    return pool(*fleet(cards), mode=mode, serve=serve, **facts)


def holding(*shares, pod="old"):
    return Holding("team", pod, "main", HCA, tuple(map(ShareId, shares)))


def claim(made, card, slots=1, uid="5b0e", admin=False):
    """A claim that has so many slots of a card of the pool, or (None) of the whole pool."""
    name = f"{card.id if card else made.spec.mode}-{uid}.0"
    cards = (card,) if card else made.cards
    share = ClaimShare(
        request="nic",
        pool="node-1",
        device="device",
        share_id=None,
        resource=made.spec.resource,
        share=ShareId(name),
        cards=tuple(one.id for one in cards),
        slots=slots,
        char_paths=(),
        cdi="",
        admin=admin,
    )
    return PreparedClaim(ClaimName("team", f"claim-{uid}", uid), (share,), (), "boot", 1.0)


def node(**allocatable):
    return NodeState("node-1", allocatable=tuple(allocatable.items()))


@given(MODES, st.data())
def test_slots_and_held_shares_are_never_more_than_the_card_has(mode, data):
    made = served(Serving.CLAIMS, mode)
    held = data.draw(st.sets(st.sampled_from([share.id for share in made.shares]), max_size=40))
    offered = {
        one.name: one.slots for one in serving.for_claims([made], {HCA: held}, no_rail).cards
    }
    whole = {one.name: one.slots for one in serving.for_claims([made], {}, no_rail).cards}
    taken = {}
    for share in held:
        card = card_of(made.spec, share)
        name = card.replace(":", "-").replace(".", "-") if card else "rdma-hca"
        taken[name] = taken.get(name, 0) + 1
    for name, slots in whole.items():
        assert offered.get(name, 0) == slots - taken.get(name, 0)


@given(MODES, st.integers(1, 20), st.booleans(), st.data())
def test_healthy_shares_and_claims_are_never_more_than_the_card_has(mode, slots, is_admin, data):
    """Shares that pods hold stay as they are, so that nobody loses one."""
    made = served(Serving.PLUGIN, mode)
    card = None if mode is Mode.HCA else made.cards[0]
    held = data.draw(st.sets(st.sampled_from([share.id for share in made.shares]), max_size=4))
    booked = [claim(made, card, slots, admin=is_admin)]
    (left,) = serving.for_plugin([made], booked, {HCA: held}, frozenset())
    assert [share.id for share in left.shares] == [share.id for share in made.shares]
    assert all(share.healthy for share in left.shares if share.id in held)
    own = [share for share in left.shares if card is None or share.card == card.id]
    free = sum(share.healthy and share.id not in held for share in own)
    before = len([share for share in own if share.id not in held])
    assert free == (before if is_admin else max(0, before - slots))
    others = [share for share in left.shares if share not in own]
    assert all(share.healthy for share in others)


def test_devices_wait_until_the_scheduler_counts_no_share_any_more():
    """It takes the way of claims where allocatable is 0; until then a pod may come for a share."""
    offered = serving.for_claims([served(Serving.CLAIMS)], {}, no_rail)
    assert serving.ready(offered, node(**{HCA: 32})) == ()
    assert serving.ready(offered, node(**{HCA: 0})) == offered.cards
    assert serving.ready(offered, node()) == offered.cards


def test_the_list_of_a_pool_of_claims_is_empty_and_asks_for_no_call():
    """The kubelet refuses a container without a share where calls before its start are asked."""
    assert not offer(served(Serving.CLAIMS)).shares
    assert not offer(served(Serving.CLAIMS)).gated
    assert offer(served(Serving.PLUGIN)).gated


@pytest.mark.parametrize("published", [None, {HCA}], ids=["not known", "published"])
def test_shares_wait_until_no_slice_has_the_pool(published):
    made = served(Serving.PLUGIN)
    (left,) = serving.for_plugin([made], (), {}, published)
    assert offer(left).shares == ()
    assert serving.waiting([made], [left], ())
    (left,) = serving.for_plugin([made], (), {}, frozenset({"rdma/other"}))
    assert left is made
    assert not serving.waiting([made], [left], ())


def test_while_claims_hold_shares_the_node_is_looked_at_again():
    made = served(Serving.PLUGIN)
    booked = [claim(made, made.cards[0])]
    assert serving.waiting([made], serving.for_plugin([made], booked, {}, frozenset()), booked)


def test_what_claims_hold_is_not_held_by_the_plugin():
    made = served(Serving.CLAIMS)
    booked = claim(made, made.cards[0])
    listed = (holding(made.shares[0].id), holding(booked.shares[0].share, pod="new"))
    assert serving.plugin_shares(listed, [booked]) == {HCA: {made.shares[0].id}}
    assert serving.plugin_shares(None, [booked]) is None


def test_the_kubelet_gets_no_share_of_a_pool_of_claims():
    made = served(Serving.CLAIMS)
    with pytest.raises(Refused, match="claims serve it on this node now"):
        allocate(made, [made.shares[0].id])


def test_a_pool_that_says_nothing_is_as_before():
    made = served(None)
    assert serving.for_plugin([made], (), None, None) == (made,)
    assert serving.for_claims([made], {}, no_rail).cards
    assert serving.ready(serving.for_claims([made], {}, no_rail), node(**{HCA: 32}))
    assert replace(made, spec=replace(made.spec, serve=Serving.PLUGIN)).shares == made.shares


def test_while_nobody_tells_what_is_held_the_plugin_gives_nothing_beside_claims():
    """Another share than the one that a pod holds would be withheld, and given twice."""
    made = served(Serving.PLUGIN, cards=1)
    (left,) = serving.for_plugin([made], [claim(made, made.cards[0])], None, frozenset())
    assert offer(left).shares == ()
    (left,) = serving.for_plugin([made], (), None, frozenset())
    assert left is made, "claims hold nothing of it"


@given(MODES, st.integers(0, 20), st.data())
def test_allocate_gives_no_share_beyond_what_claims_and_pods_leave(mode, slots, data):
    """The list that the kubelet chose from may be older than a claim. What a pod has it keeps."""
    made = served(Serving.PLUGIN, mode)
    card = None if mode is Mode.HCA else made.cards[0]
    names = [share.id for share in made.shares if card is None or share.card == card.id]
    held = data.draw(st.sets(st.sampled_from(names), max_size=4))
    wanted = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=4))
    holders = {(HCA, share): "pod team/old" for share in held}
    fits = not slots or len(held | wanted) + slots <= len(names) or wanted <= held
    booked = [claim(made, card, slots)] if slots else []
    if fits:
        serving.refuse_claimed(made, wanted, booked, holders)
    else:
        with pytest.raises(Refused, match=r"held by claims \(team/claim-5b0e\)"):
            serving.refuse_claimed(made, wanted, booked, holders)
