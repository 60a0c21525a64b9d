"""What became of a policy: the worst of a node, and each node of a cluster counted once."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.pools import (
    ClusterNodePolicy,
    FunctionsSpec,
    Mode,
    PolicyAtNode,
    PolicyOutcome,
    PolicyRemark,
    PoolSpec,
)
from kube_rdma.reports.rules.policies import at_node, rollup

POOL = PoolSpec("rdma/hca", Mode.HCA, "NodePolicy a: spec.pools[0]")
OTHER = PoolSpec("rdma/hca", Mode.SHARED, "NodePolicy b: spec.pools[0]")
FUNCTIONS = FunctionsSpec((), 8, "NodePolicy a: spec.virtualFunctions[0]")
A = ClusterNodePolicy("a", (("kind", "gpu"),), 0, (POOL,), generation=3)
B = ClusterNodePolicy("b", (), 1, (OTHER,), generation=1)
TAKEN = {"rdma/hca": POOL.source}

sources = st.sampled_from([POOL.source, OTHER.source, FUNCTIONS.source])
told = st.lists(st.tuples(sources, st.text(min_size=1)), max_size=4)
labels = st.sampled_from([frozenset(), frozenset(A.selector)])
entries = st.builds(
    PolicyAtNode,
    st.sampled_from("ab"),
    st.integers(1, 4),
    st.sampled_from(PolicyOutcome),
    st.text(max_size=3),
)
names = st.sampled_from("uvwxyz")


def outcome(policy, policies, taken=TAKEN, refused=(), waits=()):
    (mine,) = [p for p in at_node(policies, taken, refused, waits) if p.name == policy.name]
    assert mine.generation == policy.generation
    return mine.outcome, mine.sentence


def test_a_policy_whose_pools_are_met_is_applied():
    assert outcome(A, [A]) == (PolicyOutcome.APPLIED, "")


def test_a_higher_priority_overrules_and_an_equal_one_is_a_conflict():
    taken = {"rdma/hca": OTHER.source}
    assert outcome(A, [B, A], taken) == (
        PolicyOutcome.OVERRULED,
        "rdma/hca is as NodePolicy b: spec.pools[0] says",
    )
    assert outcome(B, [B, A], taken) == (PolicyOutcome.APPLIED, "")
    what, sentence = outcome(A, [replace(B, priority=0), A], taken)
    assert what is PolicyOutcome.REFUSED
    assert "give one of the two a higher one" in sentence


def test_the_node_s_own_file_overrules_whatever_the_priority():
    what, sentence = outcome(A, [A], {"rdma/hca": "config.json:3"})
    assert (what, sentence) == (PolicyOutcome.OVERRULED, "rdma/hca is as config.json:3 says")


def test_a_resource_that_nobody_has_yet_is_pending():
    assert outcome(A, [A], {}) == (PolicyOutcome.PENDING, "rdma/hca is not advertised yet")


def test_virtual_functions_that_wait_or_are_refused_count():
    policy = replace(A, functions=(FUNCTIONS,))
    waits = [(FUNCTIONS.source, "ens1 stays")]
    assert outcome(policy, [policy], waits=waits) == (PolicyOutcome.PENDING, "ens1 stays")
    refused = [(FUNCTIONS.source, "ens1 can have 4")]
    assert outcome(policy, [policy], refused=refused, waits=waits) == (
        PolicyOutcome.REFUSED,
        "ens1 can have 4",
    )
    assert outcome(A, [A], refused=refused, waits=waits)[0] is PolicyOutcome.APPLIED


@given(told, told)
def test_what_is_about_others_changes_nothing(refused, waits):
    """And what is about its own decides."""
    what, _ = outcome(A, [A, B], refused=refused, waits=waits)
    mine = [[s for source, s in some if source == POOL.source] for some in (refused, waits)]
    expected = [PolicyOutcome.REFUSED, PolicyOutcome.PENDING]
    worst = next((e for e, some in zip(expected, mine, strict=True) if some), None)
    assert what is (worst or PolicyOutcome.APPLIED)


@given(
    st.dictionaries(names, labels),
    st.dictionaries(names, st.lists(entries, max_size=2, unique_by=lambda e: e.name).map(tuple)),
)
def test_each_node_that_is_selected_is_counted_once(nodes, reports):
    """As its report says, if that is about this generation; all others wait."""
    rolled = rollup(A, nodes, reports)
    selected = {name for name, has in nodes.items() if set(A.selector) <= has}
    assert rolled.nodes == len(selected)
    current = {
        name: each.outcome
        for name in selected
        for each in reports.get(name, ())
        if (each.name, each.generation) == ("a", 3)
    }
    for what in PolicyOutcome:
        silent = len(selected) - len(current) if what is PolicyOutcome.PENDING else 0
        assert rolled.count(what) == silent + list(current.values()).count(what)
    remarked = [remark.node for remark in rolled.remarks]
    assert len(remarked) == len(set(remarked)) == rolled.nodes - rolled.count(PolicyOutcome.APPLIED)


@given(st.dictionaries(names, labels), st.dictionaries(names, st.tuples(entries)))
def test_the_worst_comes_first(nodes, reports):
    ranks = [PolicyOutcome.REFUSED, PolicyOutcome.PENDING, PolicyOutcome.OVERRULED]
    places = [ranks.index(remark.outcome) for remark in rollup(A, nodes, reports).remarks]
    assert places == sorted(places)


def test_a_node_without_a_report_says_so():
    (remark,) = rollup(A, {"x": frozenset(A.selector)}, {}).remarks
    assert remark == PolicyRemark(
        "x", PolicyOutcome.PENDING, "no agent of this node has written a report"
    )
