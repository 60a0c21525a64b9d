"""What a share is never changes below a pod, whatever is remembered of it and whatever is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import Attach, Bind, Mode, PoolSpec
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.staging import StagedPools, stage

CARD = "0000:81:00.0"
IDS = {
    Mode.HCA: "hca-7",
    Mode.EXCLUSIVE: f"{CARD}-0",
    Mode.SHARED: f"{CARD}-0",
    Mode.SHARED_MULTI: f"{CARD}-1",  # the first that the others have not
    Mode.SRIOV: CARD,
}


def spec(mode, resource="rdma/a", **more):
    return PoolSpec(resource, mode, f"c:{mode}", **more)


def holding(share, resource="rdma/a", pod="p"):
    return Holding("default", pod, "c", resource, (share,))


def test_a_change_waits_for_every_pod_with_a_share_of_ours():
    now, wanted = [spec(Mode.SHARED), spec(Mode.HCA, "rdma/b")], [spec(Mode.SHARED_MULTI)]
    found = stage(now, wanted, [holding("hca-1", "rdma/b")])
    assert found.specs == (now[0],)
    assert str(found.pending[0]) == (
        "rdma/a stays in mode shared, mode shared-multi (c:shared-multi) waits until these pods "
        "have ended: default/p"
    )
    assert found.remembered == (now[0], now[1])


def test_it_is_made_when_they_have_ended_and_said():
    found = stage([spec(Mode.SHARED)], [spec(Mode.HCA)], [])
    assert (found.specs, found.pending) == ((spec(Mode.HCA),), ())
    assert [str(one) for one in found.applied] == [
        "rdma/a is in mode hca (c:hca) now, it was in mode shared"
    ]
    assert stage(found.remembered, [spec(Mode.HCA)], []).applied == ()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"attach": Attach.AUTO}, "mode hca with attach none, attach auto (c:hca) waits"),
        ({"bind": Bind.PER_CARD}, "mode hca with bind pool, bind per-card (c:hca) waits"),
    ],
)
def test_within_a_mode_what_differs_is_named(changes, sentence):
    found = stage([spec(Mode.HCA)], [spec(Mode.HCA, **changes)], [holding("hca-1")])
    assert sentence in str(found.pending[0])


def test_nothing_changes_while_nobody_tells_who_holds_what_or_it_cannot_be_remembered():
    now, wanted = [spec(Mode.SHARED)], [spec(Mode.HCA)]
    for found, why in (
        (stage(now, wanted, None), "until it is known who uses it"),
        (stage(now, wanted, [], durable=False), "until it can be written down"),
    ):
        assert found.specs == tuple(now)
        assert why in str(found.pending[0])
    assert stage([], wanted, None, durable=False).specs == tuple(wanted)


def test_a_resource_that_comes_back_in_another_mode_has_waited_all_the_while():
    gone = stage([spec(Mode.EXCLUSIVE)], [], [holding(f"{CARD}-0")])
    assert gone == StagedPools((), kept=(spec(Mode.EXCLUSIVE),))
    back = stage(gone.remembered, [spec(Mode.SHARED_MULTI)], [holding(f"{CARD}-0")])
    assert back.specs == (spec(Mode.EXCLUSIVE),)
    assert back.pending
    assert stage(gone.remembered, [], []).remembered == ()
    assert stage(gone.remembered, [], None).remembered == gone.remembered


@pytest.mark.parametrize("now", Mode)
@pytest.mark.parametrize("before", Mode)
def test_share_ids_tell_what_nothing_else_remembers(before, now):
    found = stage([], [spec(now)], [holding(IDS[before])])
    alike = {Mode.EXCLUSIVE, Mode.SHARED}
    fits = before is now or {before, now} == alike or (before in alike and now is Mode.SHARED_MULTI)
    assert (found.specs == (spec(now),)) is fits
    assert fits or str(found.pending[0]) == (
        f"rdma/a is not advertised in mode {now} (c:{now}) until these pods have ended: default/p, "
        "which hold shares of another mode"
    )
    assert found.remembered == found.specs


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("share", ["17", "mlx5-a-3"])
def test_pods_of_another_device_plugin_keep_no_shared_card(mode, share):
    """A node is taken over while its pods run; nobody has a card alone as long as they do."""
    assert bool(stage([], [spec(mode)], [holding(share)]).pending) is terms(spec(mode)).owns


@pytest.mark.parametrize(
    ("wish", "share"),
    [
        (spec(Mode.SHARED_MULTI, shares=2), f"{CARD}-5"),
        (spec(Mode.HCA, shares=2), "hca-7"),
        (spec(Mode.HCA, bind=Bind.PER_CARD), "rxe0@eth-0-999"),
        (spec(Mode.SRIOV), "mlx5_core.sf.4"),
    ],
)
def test_another_number_of_shares_is_no_other_mode(wish, share):
    assert stage([], [wish], [holding(share)]).specs == (wish,)


MODES = st.sampled_from([None, *Mode])
LIVES = st.lists(st.tuples(MODES, st.booleans(), st.booleans()), max_size=12)


@given(LIVES)
def test_no_pod_ever_holds_a_share_of_another_mode_than_it_got(life):
    """A resource is wished for in one mode after the other, pods come and go, nobody may know."""
    known, held = (), None
    for mode, told, starts in life:
        wanted = [spec(mode)] if mode else []
        found = stage(known, wanted, ([held] if held else []) if told else None)
        known = found.remembered
        offered = {one.mode for one in found.specs}
        if held:
            assert offered <= {Mode(held.container)}
        if starts and offered and held is None:
            held = replace(holding(IDS[next(iter(offered))]), container=next(iter(offered)))
        elif not starts:
            held = None
