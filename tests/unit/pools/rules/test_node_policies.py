"""What the policies of a cluster come to on a node: by selector, by priority, told where equal."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.pools import ClusterNodePolicy, Mode, PoolSpec
from kube_rdma.pools.rules.pools import node_specs

HCA = PoolSpec("rdma/hca", Mode.HCA, "a")
LABELS = (("kind", "gpu"), ("zone", "a"))
A = ClusterNodePolicy("a", (), 0, (HCA,))

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
    assert node_specs([chosen], LABELS).pools == (HCA,)
    assert node_specs([other], LABELS).pools == ()
    assert node_specs([chosen], ()).pools == ()


def test_policies_add_up_and_a_higher_priority_wins_a_resource():
    more = PoolSpec("rdma/more", Mode.SHARED, "b")
    mine = replace(HCA, mode=Mode.SHARED)
    high = ClusterNodePolicy("b", (), 5, (mine, more))
    wishes = node_specs([A, high], LABELS)
    assert set(wishes.pools) == {mine, more}
    assert wishes.overlaps == ()


def test_equal_priorities_are_told_and_the_first_by_name_counts():
    other = replace(A, name="b", pools=(replace(HCA, mode=Mode.SHARED),))
    wishes = node_specs([other, A], LABELS)
    assert wishes.pools == (HCA,)
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
