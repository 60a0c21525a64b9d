"""When the startup taint has to go: the Node object shows what is offered."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.kubernetes import NodeState, Taint
from kube_rdma.pools.rules.holdings import EFFECT, KEYS, STARTING_FOR_AUTOSCALER, shows, starting

NAMES = st.sampled_from(("rdma/a", "rdma/b", "cpu"))
COUNTS = st.dictionaries(NAMES, st.integers(0, 4))


def node(allocatable, *taints):
    return NodeState("node-1", allocatable=tuple(sorted(allocatable.items())), taints=taints)


@given(COUNTS)
def test_what_is_offered_is_shown_whatever_else_the_node_has(offered):
    """Resources of others say nothing."""
    assert shows(node({**offered, "example.org/other": 7}), offered)


@given(COUNTS, NAMES, st.integers(-4, 4).filter(bool))
def test_any_other_count_is_not_yet_it(offered, resource, more):
    """Fewer have not all arrived, more are of an older list."""
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
    """Its value is the administrator's."""
    taints = [Taint(key, EFFECT, value) for key in keys]
    assert set(starting(node({}, Taint("example.org/t", EFFECT), *taints))) == keys
    assert not starting(node({}, *(replace(one, effect="NoExecute") for one in taints)))
    assert not starting(node({}, *(replace(one, key="example.org/t") for one in taints)))


def test_one_of_the_taints_is_known_to_the_cluster_autoscaler():
    """By its prefix, without an option there."""
    assert STARTING_FOR_AUTOSCALER.startswith("startup-taint.cluster-autoscaler.kubernetes.io/")
