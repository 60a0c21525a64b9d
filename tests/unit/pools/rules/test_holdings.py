"""Shares that pods hold and the kubelet does not report, and the startup taint."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.holdings import Holding, NodeHoldings, RecordedGrant
from kube_rdma.model.kubernetes import MIRROR, NodeState, PodState, Taint
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import ShareId
from kube_rdma.pools.kubelet_view import KubeletRecord
from kube_rdma.pools.rules.holdings import (
    EFFECT,
    KEYS,
    STARTING_FOR_AUTOSCALER,
    completed,
    running,
    shows,
    starting,
    unreported,
)

HCA = "rdma/hca"


def name(number):
    return PodName("team", f"pod-{number}")


def holding(number, *shares):
    return Holding("team", f"pod-{number}", "main", HCA, tuple(map(ShareId, shares)))


def grant(number, *shares, uid=None):
    return RecordedGrant(uid or f"uid-{number}", "main", HCA, tuple(map(ShareId, shares)))


def pod(number, phase="Running", **facts):
    return PodState("team", f"pod-{number}", f"uid-{number}", phase=phase, **facts)


def told(*holdings, pods=()):
    own = tuple(PodName(one.namespace, one.pod) for one in holdings)
    return NodeHoldings(holdings, pods=(*own, *map(name, pods)))


@given(st.lists(st.sampled_from(["told", "silent", "ended", "over"]), max_size=12), st.booleans())
def test_what_is_held_is_what_pods_that_run_hold_however_far_the_kubelet_is(fates, asked_before):
    recorded = [grant(n, f"hca-{n}") for n in range(len(fates))]
    answer = told(*(holding(n, f"hca-{n}") for n, fate in enumerate(fates) if fate == "told"))
    phases = {"told": "Running", "silent": "Pending", "over": "Failed"}
    named = running([pod(n, phases[f]) for n, f in enumerate(fates) if f in phases])
    lacking = unreported(recorded, answer, named if asked_before else {})
    whole = completed(answer, lacking, named)
    held = sorted(share for one in whole for share in one.shares)
    assert held == sorted(f"hca-{n}" for n, f in enumerate(fates) if f in {"told", "silent"})
    assert len(whole) == len(held), "no share twice"


def test_nothing_is_lacking_while_all_that_is_recorded_is_told():
    assert unreported([grant(0, "hca-0")], told(holding(0, "hca-0")), {}) == ()


async def test_a_share_of_an_init_container_alone_is_told_as_the_kubelet_does():
    """The API server is asked once, and again by a new kubelet: a static pod may come late."""
    recorded, asked = (grant(0, "hca-9"), grant(1, "hca-1")), []

    async def pods():
        asked.append(len(asked))
        return [pod(0), pod(1)][: len(asked)]

    record = KubeletRecord(lambda: recorded, pods)
    for _ in range(3):
        assert await record.complete(await record.read(), told(pods=[0])) == ()
    whole = await record.complete(await record.read(), told())
    assert whole == (holding(0, "hca-9"), holding(1, "hca-1"))
    assert asked == [0, 1]


def test_a_pod_of_the_same_name_does_not_have_what_the_one_before_it_had():
    recorded = [grant(0, "hca-0", uid="uid-before")]
    assert completed(told(), recorded, {"uid-0": name(0)}) == ()


def test_a_share_that_another_pod_is_told_to_hold_is_that_pods():
    recorded = [grant(0, "hca-0", "hca-1")]
    whole = completed(told(holding(1, "hca-0")), recorded, {"uid-0": name(0)})
    assert whole == (holding(1, "hca-0"), holding(0, "hca-1"))


def test_a_static_pod_is_known_by_the_uid_of_its_runtime():
    assert running([pod(0, annotations=((MIRROR, "hash"),))]) == {"hash": name(0)}


NAMES = st.sampled_from(("rdma/a", "rdma/b", "cpu"))
COUNTS = st.dictionaries(NAMES, st.integers(0, 4))


def node(allocatable, *taints):
    return NodeState("node-1", allocatable=tuple(sorted(allocatable.items())), taints=taints)


@given(COUNTS)
def test_what_is_offered_is_shown_whatever_else_the_node_has(offered):
    assert shows(node({**offered, "example.org/other": 7}), offered)


@given(COUNTS, NAMES, st.integers(-4, 4).filter(bool))
def test_any_other_count_is_not_yet_it(offered, resource, more):
    count = offered.get(resource, 0)
    shown = max(0, count + more)
    assert shows(node({**offered, resource: shown}), {**offered, resource: count}) == (
        shown == count
    )


def test_a_resource_without_healthy_shares_may_be_missing():
    """The kubelet writes 0 or nothing."""
    assert shows(node({}), {"rdma/a": 0})
    assert shows(node({}), {}), "a node without pools has nothing to wait for"


@given(st.sets(st.sampled_from(KEYS), min_size=1), st.text(max_size=5))
def test_the_taint_is_known_by_key_and_effect(keys, value):
    taints = [Taint(key, EFFECT, value) for key in keys]
    assert set(starting(node({}, Taint("example.org/t", EFFECT), *taints))) == keys
    assert not starting(node({}, *(replace(one, effect="NoExecute") for one in taints)))
    assert not starting(node({}, *(replace(one, key="example.org/t") for one in taints)))


def test_one_of_the_taints_is_known_to_the_cluster_autoscaler():
    assert STARTING_FOR_AUTOSCALER.startswith("startup-taint.cluster-autoscaler.kubernetes.io/")
