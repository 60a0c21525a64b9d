"""What is written of a pool's slices: no more than differs, and never half a generation in use."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.claims.rules.publication import PoolSite, dropped, publication
from kube_rdma.model.claims.devices import ClaimFeature, DeviceTaint, ListedDevice, TaintEffect

SITE = PoolSite("node-1", "uid-1")
TAINT = DeviceTaint("rdma.kube-rdma.io/unhealthy", TaintEffect.NO_SCHEDULE)
TIMED = replace(TAINT, time_added="2026-01-01T00:00:00Z")
PARTS = st.lists(
    st.lists(st.sampled_from("abcdef"), max_size=3, unique=True), min_size=1, max_size=4
)


def devices(names):
    return tuple(ListedDevice(name) for name in names)


def wanted(*parts):
    return tuple(devices(names) for names in parts)


def after(stored, writes):
    """What is stored when all is written."""
    gone = {part.name for part in writes.removed}
    kept = {part.name: part for part in stored if part.name not in gone}
    kept |= {part.name: part for part in (*writes.changed, *writes.created)}
    return tuple(kept.values())


def first(*parts):
    return publication(SITE, (), wanted(*parts)).created


def test_the_first_publication_is_one_write_for_each_slice():
    created = first("ab", "c")
    assert [(part.spec.pool.generation, part.spec.pool.slices, part.owner) for part in created] == [
        (1, 2, "uid-1")
    ] * 2
    assert not publication(SITE, created, wanted("ab", "c"))


def test_one_slice_that_changes_keeps_the_generation():
    writes = publication(SITE, first("ab", "c"), wanted("ab", "d"))
    ((changed,), removed, created) = writes.changed, writes.removed, writes.created
    assert (changed.spec.pool.generation, removed, created) == (1, (), ())


def test_two_that_change_begin_another():
    writes = publication(SITE, first("ab", "c"), wanted("a", "d"))
    assert [part.spec.pool.generation for part in writes.changed] == [2, 2]


def test_two_in_which_no_device_moves_keep_it():
    parts = [[replace(one, taints=(TAINT,)) for one in part] for part in wanted("ab", "c")]
    writes = publication(SITE, first("ab", "c"), tuple(map(tuple, parts)))
    assert [part.spec.pool.generation for part in writes.changed] == [1, 1]


def test_another_number_of_slices_begins_another_generation():
    more = publication(SITE, first("ab"), wanted("ab", "c"))
    assert [part.spec.pool.generation for part in (*more.changed, *more.created)] == [2, 2]
    fewer = publication(SITE, first("ab", "c", "d"), wanted("ab", "c"))
    assert [part.spec.pool.generation for part in fewer.changed] == [2, 2]
    assert [part.name[:3] for part in fewer.removed] == ["002"]


def test_slices_that_the_kubelet_deleted_come_again():
    both = first("ab", "c")
    writes = publication(SITE, both[:1], wanted("ab", "c"))
    assert [part.spec.pool.generation for part in (*writes.changed, *writes.created)] == [2, 2]
    assert publication(SITE, (), wanted("ab", "c")).created == both


def test_a_node_that_is_made_anew_owns_its_slices_anew():
    writes = publication(PoolSite("node-1", "uid-2"), first("ab"), wanted("ab"))
    assert [part.owner for part in writes.changed] == ["uid-2"]


def test_a_time_that_the_server_set_is_no_difference():
    (mine,) = first("a")
    timed = (ListedDevice("a", taints=(TIMED,)),)
    stored = replace(mine, spec=replace(mine.spec, devices=timed))
    parts = ((ListedDevice("a", taints=(TAINT,)),),)
    assert not publication(SITE, (stored,), parts)
    assert publication(SITE, (stored,), parts, frozenset({ClaimFeature.DEVICE_TAINTS}))


@given(PARTS, PARTS)
def test_after_the_writes_all_is_said_and_the_pool_is_whole(before, then):
    stored = first(*before)
    result = after(stored, publication(SITE, stored, wanted(*then)))
    assert not publication(SITE, result, wanted(*then))
    (generation,) = {part.spec.pool.generation for part in result}
    assert {part.spec.pool.slices for part in result} == {len(result)}
    assert generation >= stored[0].spec.pool.generation


@given(PARTS, PARTS, st.integers(0, 5))
def test_an_agent_that_died_in_the_middle_leaves_nothing_that_the_next_one_cannot_end(
    before, then, count
):
    """And nothing is allocated of a generation that is not whole."""
    stored = first(*before)
    writes = publication(SITE, stored, wanted(*then))
    order = [*writes.changed, *writes.created][:count]
    half = after(stored, replace(writes, changed=tuple(order), created=()))
    whole = after(half, publication(SITE, half, wanted(*then)))
    assert [part.spec.devices for part in sorted(whole, key=lambda part: part.name)] == list(
        wanted(*then)
    )
    assert len({part.spec.pool.generation for part in whole}) == 1
    assert {part.spec.pool.slices for part in whole} == {len(then)}


def test_what_the_server_kept_nothing_of_is_off():
    shared = ListedDevice("a", shared=True)
    tainted = ListedDevice("b", taints=(TAINT,))
    assert dropped((shared, tainted), devices("ab")) == frozenset(ClaimFeature)
    assert dropped((shared,), (shared,)) == frozenset()
    assert dropped((tainted,), (replace(tainted, taints=(TIMED,)),)) == frozenset()
    assert dropped((shared,), ()) == frozenset()


def test_a_slice_of_an_older_generation_is_written_again():
    one, two = first("a", "b")
    newer = replace(one, spec=replace(one.spec, pool=replace(one.spec.pool, generation=3)))
    (changed,) = publication(SITE, (newer, two), wanted("a", "b")).changed
    assert (changed.name, changed.spec.pool.generation) == (two.name, 3)
