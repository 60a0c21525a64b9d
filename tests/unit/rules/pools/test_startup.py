"""When the startup taint has to go: the Node object shows what is offered."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.node import NodeState, Taint
from kube_rdma.rules.pools.startup import EFFECT, STARTING, is_starting, shows

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


@given(st.text(max_size=5))
def test_the_taint_is_known_by_key_and_effect(value):
    """Its value is the administrator's."""
    starting = Taint(STARTING, EFFECT, value)
    assert is_starting(node({}, Taint("example.org/t", EFFECT), starting))
    assert not is_starting(node({}, replace(starting, effect="NoExecute")))
    assert not is_starting(node({}, replace(starting, key="example.org/t")))
