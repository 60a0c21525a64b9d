"""What every API server does: the fake always, the real one in the lab."""

import asyncio
from contextlib import aclosing

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.errors import Conflict, Lost
from kube_client.kinds import Owner, Wanted, Where
from kube_client.watching import Changed, Deleted, Synced
from tests.kit.api_server import TRIAL, UNKNOWN, Spec, Status, Told


async def make(cluster, name="a", **parts):
    parts.setdefault("spec", Spec(size=1))
    return await cluster.create(TRIAL, Wanted(name, **parts))


async def lost(awaitable):
    """Which race was lost."""
    with pytest.raises(Conflict) as caught:
        await awaitable
    return caught.value.lost


async def test_what_is_created_can_be_read(clients):
    """All parts come back, with an identity and a version of the server's."""
    root = await make(clients.other, "root")
    owner = Owner(TRIAL.api_version, TRIAL.kind, "root", root.uid, controller=True)
    wanted = Wanted(
        "a",
        spec=Spec(size=1, colour="red"),
        labels=(("x", "1"), ("y", "2")),
        annotations=(("note", "n"),),
        owners=(owner,),
        finalizers=("contract.kube-rdma.io/hold",),
    )
    made = await clients.cluster.create(TRIAL, wanted)
    assert await clients.other.get(TRIAL, "a") == made
    assert made.uid
    assert made.version
    assert made.status is None
    assert (made.spec, made.labels, made.label("y")) == (wanted.spec, wanted.labels, "2")
    assert (made.annotation("note"), made.annotation("none")) == ("n", None)
    assert (made.owners, made.finalizers, made.deleting) == ((owner,), wanted.finalizers, False)


async def test_a_missing_object_is_none(clients):
    assert await clients.cluster.get(TRIAL, "nobody") is None


async def test_a_name_is_taken_once(clients):
    await make(clients.cluster)
    assert await lost(make(clients.other)) is Lost.EXISTS


async def test_only_who_saw_the_last_version_replaces(clients):
    """Compare and swap: of two who read the same, the second to write loses and changes nothing."""
    seen = await make(clients.cluster)
    first = await clients.cluster.replace(TRIAL, replace(seen, spec=Spec(size=2)))
    assert (
        await lost(clients.other.replace(TRIAL, replace(seen, spec=Spec(size=3)))) is Lost.CHANGED
    )
    assert await clients.other.get(TRIAL, "a") == first
    assert first.version != seen.version
    assert first.uid == seen.uid


async def test_replacing_the_same_makes_no_version(clients):
    seen = await make(clients.cluster)
    assert await clients.cluster.replace(TRIAL, seen) == seen


async def test_what_is_gone_cannot_be_written(clients):
    seen = await make(clients.cluster)
    await clients.other.delete(TRIAL, seen)
    assert await lost(clients.cluster.replace(TRIAL, seen)) is Lost.GONE
    assert await lost(clients.cluster.patch(TRIAL, "a", labels=(("x", "1"),))) is Lost.GONE
    assert await lost(clients.cluster.apply_status(TRIAL, "a", "", Status(1))) is Lost.GONE


async def test_a_namesake_is_not_replaced(clients):
    """An object made anew under the name is another one."""
    seen = await make(clients.cluster)
    await clients.other.delete(TRIAL, seen)
    await make(clients.other)
    assert await lost(clients.cluster.replace(TRIAL, seen)) is Lost.CHANGED
    assert await lost(clients.cluster.delete(TRIAL, seen, unchanged=False)) is Lost.CHANGED


async def test_status_and_spec_are_written_apart(clients):
    seen = await make(clients.cluster)
    told = await clients.cluster.replace_status(
        TRIAL, replace(seen, spec=Spec(9), status=Status(5))
    )
    assert (told.spec, told.status) == (Spec(size=1), Status(5))
    kept = await clients.cluster.replace(TRIAL, replace(told, spec=Spec(2), status=Status(6)))
    assert (kept.spec, kept.status) == (Spec(size=2), Status(5))
    stale = clients.other.replace_status(TRIAL, replace(seen, status=Status(7)))
    assert await lost(stale) is Lost.CHANGED


async def test_status_is_applied(clients):
    await make(clients.cluster)
    applied = await clients.cluster.apply_status(TRIAL, "a", "", Status(3))
    assert (applied.spec, applied.status) == (Spec(size=1), Status(3))


async def test_a_status_is_applied_to_the_version_that_was_seen(clients):
    """Even by force: what was computed from an older spec is not written over what is newer."""
    seen = await make(clients.cluster)
    newer = await clients.other.replace(TRIAL, replace(seen, spec=Spec(size=7)))
    apply = clients.cluster.apply_status
    assert (
        await lost(apply(TRIAL, "a", "", Status(1), force=True, version=seen.version))
        is Lost.CHANGED
    )
    applied = await apply(TRIAL, "a", "", Status(2), force=True, version=newer.version)
    assert (applied.spec, applied.status) == (Spec(size=7), Status(2))


async def test_a_status_is_merged_into_the_version_that_was_seen(clients):
    """What another writer has put there and this one does not name stays."""
    seen = await make(clients.cluster)
    merge = clients.cluster.merge_status
    merged = await merge(TRIAL, "a", "", Status(1), version=seen.version)
    assert (merged.spec, merged.status) == (seen.spec, Status(1))
    assert await lost(merge(TRIAL, "a", "", Status(2), version=seen.version)) is Lost.CHANGED
    gone = merge(TRIAL, "gone", "", Status(2), version=seen.version)
    assert await lost(gone) is Lost.GONE


async def test_apply_says_all_that_we_say(clients):
    """What was applied before and is no longer said goes away; the same again changes nothing."""
    wanted = Wanted("a", spec=Spec(size=1, colour="red"), labels=(("x", "1"), ("y", "2")))
    made = await clients.cluster.apply(TRIAL, wanted)
    assert (made.spec, made.labels) == (wanted.spec, wanted.labels)
    assert await clients.cluster.apply(TRIAL, wanted) == made
    less = await clients.cluster.apply(TRIAL, Wanted("a", spec=Spec(size=1), labels=(("y", "2"),)))
    assert (less.spec, less.labels) == (Spec(size=1), (("y", "2"),))


async def test_apply_leaves_what_others_say(clients):
    await make(clients.other, spec=Spec(colour="red"), labels=(("theirs", "1"),))
    ours = await clients.cluster.apply(
        TRIAL, Wanted("a", spec=Spec(size=1), labels=(("ours", "1"),))
    )
    assert ours.spec == Spec(size=1, colour="red")
    assert ours.labels == (("ours", "1"), ("theirs", "1"))


async def test_apply_takes_a_field_of_others_only_by_force(clients):
    await make(clients.other, spec=Spec(size=1))
    wanted = Wanted("a", spec=Spec(size=2))
    with pytest.raises(Refused, match=r"spec\.size .*conflict with"):
        await clients.cluster.apply(TRIAL, wanted)
    assert (await clients.cluster.apply(TRIAL, wanted, force=True)).spec == Spec(size=2)


async def test_single_labels_are_set_and_taken_away(clients):
    await make(clients.other, labels=(("x", "1"), ("y", "2")))
    changes = (("x", None), ("z", "3"))
    marked = await clients.cluster.patch(TRIAL, "a", labels=changes, annotations=(("n", "1"),))
    assert (marked.labels, marked.annotations) == ((("y", "2"), ("z", "3")), (("n", "1"),))


async def test_delete_only_what_was_seen(clients):
    seen = await make(clients.cluster)
    changed = await clients.other.replace(TRIAL, replace(seen, spec=Spec(size=2)))
    assert await lost(clients.cluster.delete(TRIAL, seen)) is Lost.CHANGED
    assert await clients.cluster.get(TRIAL, "a") == changed
    assert await clients.cluster.delete(TRIAL, seen, unchanged=False) is True
    assert await clients.cluster.delete(TRIAL, seen, unchanged=False) is False


async def test_finalizers_hold_an_object(clients):
    seen = await make(clients.cluster, finalizers=("contract.kube-rdma.io/hold",))
    assert await clients.cluster.delete(TRIAL, seen)
    ending = await clients.cluster.get(TRIAL, "a")
    assert ending.deleting
    await clients.cluster.replace(TRIAL, replace(ending, finalizers=()))
    assert await clients.cluster.get(TRIAL, "a") is None


async def test_a_list_is_sorted_and_selected(clients):
    for name, colour in (("c", "red"), ("a", "red"), ("b", "blue")):
        await make(clients.cluster, name, labels=(("colour", colour),))

    async def names(**where):
        return [each.name for each in await clients.cluster.list(TRIAL, Where(**where))]

    assert await names() == ["a", "b", "c"]
    assert await names(labels="colour=red") == ["a", "c"]
    assert await names(labels="colour in (blue, green)") == ["b"]
    assert await names(labels="!colour") == []
    assert await names(name="b") == ["b"]
    with pytest.raises(Refused, match="not supported"):
        await names(fields="spec.size=1")


@pytest.mark.parametrize("name", ["Upper", "under_score", "a/b", "..", "a%2fb"])
async def test_a_bad_name_is_refused(clients, name):
    with pytest.raises(Refused):
        await make(clients.cluster, name)
    if not name.isidentifier():
        with pytest.raises(Refused, match="cannot be a name"):
            await clients.cluster.get(TRIAL, name)


async def test_a_resource_that_is_not_installed(clients):
    with pytest.raises(Refused, match="Install the custom resource definitions"):
        await clients.cluster.get(UNKNOWN, "a")
    with pytest.raises(Refused, match="Install the custom resource definitions"):
        async with Told(clients.cluster, kind=UNKNOWN) as told:
            await told.next()


async def test_a_missing_right_is_named(clients):
    """The sentence holds the rule to add."""
    rule = 'apiGroups: ["contract.kube-rdma.io"], resources: ["trials"], verbs: '
    with pytest.raises(Refused) as caught:
        await make(clients.powerless)
    assert f'{rule}["create"]' in str(caught.value)
    with pytest.raises(Refused) as caught:
        async with Told(clients.powerless) as told:
            await told.next()
    assert f'{rule}["list", "watch"]' in str(caught.value)


async def test_a_watch_tells_what_is_there_then_what_changes(clients):
    made = await make(clients.other)
    async with Told(clients.cluster) as told:
        assert await told.sync() == [Changed(made)]
        changed = await clients.other.replace(TRIAL, replace(made, spec=Spec(size=2)))
        assert await told.next() == Changed(changed)
        second = await make(clients.other, "b")
        assert await told.next() == Changed(second)
        await clients.other.delete(TRIAL, changed)
        assert await told.next() == Deleted("a", "", made.uid)


async def test_a_watch_keeps_to_its_selection(clients):
    """What leaves the selection is gone, what others do is not told."""
    async with Told(clients.cluster, Where(labels="colour=red")) as told:
        assert await told.sync() == []
        await make(clients.other, "blue", labels=(("colour", "blue"),))
        red = await make(clients.other, "a", labels=(("colour", "red"),))
        assert await told.next() == Changed(red)
        await clients.other.patch(TRIAL, "a", labels=(("colour", "blue"),))
        assert await told.next() == Deleted("a", "", red.uid)
        back = await clients.other.patch(TRIAL, "blue", labels=(("colour", "red"),))
        assert await told.next() == Changed(back)


async def test_rounds_of_a_watch_repeat_nothing(brisk, clients):
    """The server ends the stream; the next one goes on, and tells only what changed since."""
    made = await make(clients.other)
    async with aclosing(brisk.watch(TRIAL, Where(name="a"))) as events:
        assert await anext(events) == Changed(made)
        assert isinstance(await anext(events), Synced)
        following = asyncio.ensure_future(anext(events))
        await asyncio.wait((following,), timeout=2.5)  # at least one stream has ended
        assert not following.done()
        changed = await clients.other.replace(TRIAL, replace(made, spec=Spec(size=2)))
        assert await following == Changed(changed)


async def test_a_list_comes_in_pages(clients):
    """All of it, and a watch begins behind the last page."""
    kind = replace(TRIAL, page=2)
    made = [await make(clients.other, name) for name in ("a", "b", "c", "d", "e")]
    assert list(await clients.cluster.list(kind)) == made
    async with Told(clients.cluster, kind=kind) as told:
        assert await told.sync() == [Changed(each) for each in made]
        await clients.other.delete(TRIAL, made[1])
        assert await told.next() == Deleted("b", "", made[1].uid)
