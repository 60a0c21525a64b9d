"""What a pod has by its claims, as shares of a device plugin are held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.rules.claim_networks import claims_of, granted, holdings, node_holdings
from kube_rdma.model.claims.claim import ClaimName, ClaimUse, ClaimUser, PodClaims
from kube_rdma.model.device import CharKind
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import Attach, Bind, Mode, PoolSpec
from kube_rdma.pools.rules.holdings import held_cards
from kube_rdma.pools.rules.pools import resolve
from tests.unit.claims.rules.test_prepare import (
    FIRST,
    MULTI,
    SECOND,
    SURVEY,
    booked,
    claim,
    result,
    world,
)

POD = PodClaims("team", "job-0", "uid-job-0", (("nic", "job-0-nic-x7"),))
NAME = ClaimName("team", "job-0-nic-x7", "uid-claim")
TWO = (
    result(request="left", share="s1", slots=1),
    result("0000-a1-00-0", request="right/fast", share="s2", slots=1),
)
PREPARED = booked(claim(*TWO, name=NAME))
LEFT, RIGHT = (share.share for share in PREPARED.shares)


def pools(*specs, cards=(FIRST, SECOND)):
    return {pool.spec.resource: pool for pool in resolve(specs or (MULTI,), cards, SURVEY)[0]}


def held(container, share, pod="job-0"):
    return Holding("team", pod, container, "rdma/multi", (share,))


def test_a_claim_that_no_container_names_is_the_pods():
    assert holdings(POD, [PREPARED]) == (held("", LEFT), held("", RIGHT))


def test_containers_have_the_requests_that_they_name():
    """The main name stands for what was chosen among alternatives; no name stands for all."""
    uses = (ClaimUse("a", "nic", "right"), ClaimUse("b", "nic"), ClaimUse("c", "other"))
    pod = replace(POD, uses=uses)
    assert holdings(pod, [PREPARED]) == (held("b", LEFT), held("a", RIGHT), held("b", RIGHT))


def test_a_look_at_a_device_is_no_share_for_a_network():
    admin = booked(claim(result(admin=True), name=NAME))
    assert holdings(POD, [admin]) == ()
    assert node_holdings([admin], {}) == ()


def test_of_two_claims_with_one_name_the_pods_own_counts():
    """The kubelet has yet to give the older one back, or the younger was not for this pod."""
    old = replace(PREPARED, claim=replace(NAME, uid="uid-old"), when=9.0, users=())
    assert claims_of(POD, [old, PREPARED]) == claims_of(POD, [PREPARED, old]) == (PREPARED,)
    newer = replace(old, when=10.0)
    assert claims_of(replace(POD, uid="uid-other"), [newer, PREPARED]) == (newer,)


def test_another_namespace_has_other_claims():
    assert holdings(replace(POD, namespace="else"), [PREPARED]) == ()


def test_several_pods_of_one_claim_hold_the_same_shares():
    pods = {pod.uid: pod for pod in (POD, replace(POD, name="job-1", uid="uid-job-1"))}
    assert set(node_holdings([PREPARED], pods)) == {
        held("", share, pod) for share in (LEFT, RIGHT) for pod in ("job-0", "job-1")
    }


def test_a_claim_whose_pods_are_not_known_is_held_by_whom_it_was_reserved_for():
    assert {one.pod for one in node_holdings([PREPARED], {})} == {"job-0"}
    group = replace(PREPARED, users=(ClaimUser("podgroups", "all", "uid-all"),))
    assert {one.pod for one in node_holdings([group], {})} == {"job-0-nic-x7"}


def test_cards_of_claims_are_held_as_those_of_shares_are():
    """So a card inside a pod stays in its pool, and a change of mode waits for the pod."""
    by_resource = held_cards(node_holdings([PREPARED], {POD.uid: POD}), [MULTI])
    assert by_resource == {"rdma/multi": {FIRST.id: ("team/job-0",), SECOND.id: ("team/job-0",)}}


def test_a_share_is_granted_once_however_many_containers_use_it():
    """Else two networks would be put on it, one for each container."""
    pod = replace(POD, uses=(ClaimUse("a", "nic"), ClaimUse("b", "nic")))
    mine = holdings(pod, [PREPARED])
    assert len(mine) == 4
    shares = granted(mine, [PREPARED], pools(replace(MULTI, device_files=tuple(CharKind))))
    assert {share.device_files for share in shares} == {tuple(CharKind)}
    assert [(one.container, one.share) for one in shares] == [("a", LEFT), ("a", RIGHT)]
    assert [one.cards for one in shares] == [(FIRST,), (SECOND,)]
    assert {(one.mode, one.bind, one.early) for one in shares} == {
        (Mode.SHARED_MULTI, Bind.PER_CARD, False)
    }


def test_a_share_has_the_slots_that_its_claim_took():
    wide = booked(claim(result(request="left", share="s1", slots=3), name=NAME))
    (share,) = granted(holdings(POD, [wide]), [wide], pools())
    assert share.slots == 3


def test_nodes_that_were_given_before_the_network_are_told():
    spec = replace(MULTI, attach=Attach.NONE)
    early = booked(claim(name=NAME), world(spec))
    (share,) = granted(holdings(POD, [early]), [early], pools(spec))
    assert share.early
    assert share.char_paths == early.shares[0].char_paths != ()


def test_shares_of_a_device_plugin_are_not_looked_at():
    other = Holding("team", "job-0", "main", "rdma/multi", ("0000:81:00.0-3",))
    assert granted([other], [PREPARED], pools()) == ()


@pytest.mark.parametrize("now", [{}, pools(cards=(SECOND,))])
def test_what_is_not_on_the_node_now_is_waited_for(now):
    with pytest.raises(Unavailable, match="on this node now"):
        granted(holdings(POD, [PREPARED]), [PREPARED], now)


def test_a_pool_has_the_cards_that_are_there():
    spec = PoolSpec("rdma/hca", Mode.HCA, "config.json:1")
    whole = booked(claim(result("rdma-hca", share="s", slots=1), name=NAME), world(spec))
    (share,) = granted(holdings(POD, [whole]), [whole], pools(spec, cards=(SECOND,)))
    assert share.cards == (SECOND,)


NAMES = st.sampled_from(["x", "y"])


@given(
    st.lists(st.tuples(NAMES, NAMES), max_size=3),
    st.lists(st.builds(ClaimUse, NAMES, NAMES, st.sampled_from(["", "left", "right"])), max_size=3),
    st.lists(st.tuples(NAMES, st.integers(0, 1)), unique=True, max_size=4),
)
def test_a_pod_has_each_share_of_its_claims_and_no_other(claims, uses, made):
    prepared = [
        booked(claim(*TWO, name=ClaimName("team", name, f"uid-{name}-{number}")))
        for name, number in made
    ]
    pod = PodClaims("team", "p", "uid-p", tuple(claims), tuple(uses))
    shares = {share for one in holdings(pod, prepared) for share in one.shares}
    mine = claims_of(pod, prepared)
    assert shares == {share.share for one in mine for share in one.shares}
    assert {one.claim.name for one in mine} == {n for _, n in claims} & {n for n, _ in made}
    containers = {one.container for one in holdings(pod, prepared)}
    assert containers <= {"", *(use.container for use in uses)}
