"""What a namespace can ask for: what is counted as free, and what is taken for a resource."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.reports import NodeReport, ReportedPool
from kube_rdma.model.resources import AuthorFacts, HeldShares, NamespaceQuota
from kube_rdma.resources.rules import resource_list

NIC = "rdma/nic"
SHARES = st.integers(0, 20)


def facts(shares, held, **more):
    """A node for each number of shares, and pods that hold some on them."""
    nodes = tuple(NodeState(f"n{i}", allocatable=((NIC, n),)) for i, n in enumerate(shares))
    pods = tuple(HeldShares("a", f"n{i}", NIC, n) for i, n in enumerate(held))
    return AuthorFacts("a", nodes=nodes, pods=pods, **more)


def named(facts):
    return {one.name: one for one in resource_list(facts).resources}


@given(st.lists(SHARES, min_size=1, max_size=6), st.lists(SHARES, max_size=6))
def test_free_shares_are_those_of_nodes_without_what_pods_hold_there(shares, held):
    """A pod on one node takes nothing of another, and nothing is below zero."""
    one = named(facts(shares, held))[NIC]
    each = [max(n - (held[i] if i < len(held) else 0), 0) for i, n in enumerate(shares)]
    assert (one.total, one.free, one.most) == (sum(shares), sum(each), max(each))
    assert one.nodes == sum(n > 0 for n in shares)


@given(st.lists(SHARES, min_size=1, max_size=6), st.lists(SHARES, max_size=6))
def test_what_is_not_seen_is_not_taken_for_none(shares, held):
    seen = facts(shares, held)
    hidden = named(replace(seen, pods=None))[NIC]
    assert (hidden.total, hidden.free, hidden.most) == (sum(shares), None, None)
    pools = tuple(ReportedPool(NIC, "shared", n, n, n) for n in shares)
    reports = {f"n{i}": NodeReport("1", pools=(pool,)) for i, pool in enumerate(pools)}
    one = named(replace(seen, nodes=None, reports=reports))[NIC]
    assert (one.total, one.free) == (sum(shares), named(seen)[NIC].free)


def test_a_pod_that_waits_takes_nothing_of_a_node():
    waiting = (HeldShares("a", "", NIC, 5),)
    assert named(replace(facts([8], []), pods=waiting))[NIC].free == 8


def test_nodes_that_take_no_pods_have_nothing_free():
    nodes = (
        NodeState("other", allocatable=(("cpu", 8),)),
        NodeState("closed", allocatable=((NIC, 8),), unschedulable=True),
        NodeState("lost", allocatable=((NIC, 8),), ready=False),
        NodeState("new", allocatable=((NIC, 8),)),
        NodeState("without"),
    )
    assert named(AuthorFacts("a", nodes=nodes, pods=()))[NIC].free == 8


def test_names_of_others_count_where_they_look_like_rdma():
    allocatable = (("cpu", 8), ("nvidia.com/gpu", 8), ("nvidia.com/rdma_ib", 1), ("a.b/efa", 1))
    nodes = (NodeState("n", allocatable=allocatable),)
    assert set(named(AuthorFacts("a", nodes=nodes))) == {"nvidia.com/rdma_ib", "a.b/efa"}


def test_the_tightest_quota_counts_and_is_not_below_zero():
    quotas = (NamespaceQuota(NIC, 8, 1), NamespaceQuota(NIC, 4, 2))
    assert named(facts([8], [], quotas=quotas))[NIC].quota == 2
    assert named(facts([8], [], quotas=(NamespaceQuota(NIC, 1, 2),)))[NIC].quota == 0


def test_a_mode_of_a_newer_release_has_no_sentence():
    reports = {"n": NodeReport("9", pools=(ReportedPool(NIC, "new-mode", 1, 1, 1),))}
    one = named(AuthorFacts("a", reports=reports))[NIC]
    assert (one.modes, one.meaning) == (("new-mode",), "")
