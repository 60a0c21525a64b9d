"""What every API server does at the door: the fake always, the real one in the lab."""

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


async def test_what_is_created_can_be_read(door):
    """All parts come back, with an identity and a version of the server's."""
    root = await make(door.other, "root")
    owner = Owner(TRIAL.api_version, TRIAL.kind, "root", root.uid, controller=True)
    wanted = Wanted(
        "a",
        spec=Spec(size=1, colour="red"),
        labels=(("x", "1"), ("y", "2")),
        annotations=(("note", "n"),),
        owners=(owner,),
        finalizers=("contract.kube-rdma.io/hold",),
    )
    made = await door.cluster.create(TRIAL, wanted)
    assert await door.other.get(TRIAL, "a") == made
    assert made.uid
    assert made.version
    assert made.status is None
    assert (made.spec, made.labels, made.label("y")) == (wanted.spec, wanted.labels, "2")
    assert (made.annotation("note"), made.annotation("none")) == ("n", None)
    assert (made.owners, made.finalizers, made.deleting) == ((owner,), wanted.finalizers, False)


async def test_a_missing_object_is_none(door):
    assert await door.cluster.get(TRIAL, "nobody") is None


async def test_a_name_is_taken_once(door):
    await make(door.cluster)
    assert await lost(make(door.other)) is Lost.EXISTS


async def test_only_who_saw_the_last_version_replaces(door):
    """Compare and swap: of two who read the same, the second to write loses and changes nothing."""
    seen = await make(door.cluster)
    first = await door.cluster.replace(TRIAL, replace(seen, spec=Spec(size=2)))
    assert await lost(door.other.replace(TRIAL, replace(seen, spec=Spec(size=3)))) is Lost.CHANGED
    assert await door.other.get(TRIAL, "a") == first
    assert first.version != seen.version
    assert first.uid == seen.uid


async def test_replacing_the_same_makes_no_version(door):
    seen = await make(door.cluster)
    assert await door.cluster.replace(TRIAL, seen) == seen


async def test_what_is_gone_cannot_be_written(door):
    seen = await make(door.cluster)
    await door.other.delete(TRIAL, seen)
    assert await lost(door.cluster.replace(TRIAL, seen)) is Lost.GONE
    assert await lost(door.cluster.patch(TRIAL, "a", labels=(("x", "1"),))) is Lost.GONE
    assert await lost(door.cluster.apply_status(TRIAL, "a", "", Status(1))) is Lost.GONE


async def test_a_namesake_is_not_replaced(door):
    """An object made anew under the name is another one."""
    seen = await make(door.cluster)
    await door.other.delete(TRIAL, seen)
    await make(door.other)
    assert await lost(door.cluster.replace(TRIAL, seen)) is Lost.CHANGED
    assert await lost(door.cluster.delete(TRIAL, seen, unchanged=False)) is Lost.CHANGED


async def test_status_and_spec_are_written_apart(door):
    seen = await make(door.cluster)
    told = await door.cluster.replace_status(TRIAL, replace(seen, spec=Spec(9), status=Status(5)))
    assert (told.spec, told.status) == (Spec(size=1), Status(5))
    kept = await door.cluster.replace(TRIAL, replace(told, spec=Spec(2), status=Status(6)))
    assert (kept.spec, kept.status) == (Spec(size=2), Status(5))
    stale = door.other.replace_status(TRIAL, replace(seen, status=Status(7)))
    assert await lost(stale) is Lost.CHANGED


async def test_status_is_applied(door):
    await make(door.cluster)
    applied = await door.cluster.apply_status(TRIAL, "a", "", Status(3))
    assert (applied.spec, applied.status) == (Spec(size=1), Status(3))


async def test_a_status_is_applied_to_the_version_that_was_seen(door):
    """Even by force: what was computed from an older spec is not written over what is newer."""
    seen = await make(door.cluster)
    newer = await door.other.replace(TRIAL, replace(seen, spec=Spec(size=7)))
    apply = door.cluster.apply_status
    assert (
        await lost(apply(TRIAL, "a", "", Status(1), force=True, version=seen.version))
        is Lost.CHANGED
    )
    applied = await apply(TRIAL, "a", "", Status(2), force=True, version=newer.version)
    assert (applied.spec, applied.status) == (Spec(size=7), Status(2))


async def test_a_status_is_merged_into_the_version_that_was_seen(door):
    """What another writer has put there and this one does not name stays."""
    seen = await make(door.cluster)
    merge = door.cluster.merge_status
    merged = await merge(TRIAL, "a", "", Status(1), version=seen.version)
    assert (merged.spec, merged.status) == (seen.spec, Status(1))
    assert await lost(merge(TRIAL, "a", "", Status(2), version=seen.version)) is Lost.CHANGED
    gone = merge(TRIAL, "gone", "", Status(2), version=seen.version)
    assert await lost(gone) is Lost.GONE


async def test_apply_says_all_that_we_say(door):
    """What was applied before and is no longer said goes away; the same again changes nothing."""
    wanted = Wanted("a", spec=Spec(size=1, colour="red"), labels=(("x", "1"), ("y", "2")))
    made = await door.cluster.apply(TRIAL, wanted)
    assert (made.spec, made.labels) == (wanted.spec, wanted.labels)
    assert await door.cluster.apply(TRIAL, wanted) == made
    less = await door.cluster.apply(TRIAL, Wanted("a", spec=Spec(size=1), labels=(("y", "2"),)))
    assert (less.spec, less.labels) == (Spec(size=1), (("y", "2"),))


async def test_apply_leaves_what_others_say(door):
    await make(door.other, spec=Spec(colour="red"), labels=(("theirs", "1"),))
    ours = await door.cluster.apply(TRIAL, Wanted("a", spec=Spec(size=1), labels=(("ours", "1"),)))
    assert ours.spec == Spec(size=1, colour="red")
    assert ours.labels == (("ours", "1"), ("theirs", "1"))


async def test_apply_takes_a_field_of_others_only_by_force(door):
    await make(door.other, spec=Spec(size=1))
    wanted = Wanted("a", spec=Spec(size=2))
    with pytest.raises(Refused, match=r"spec\.size .*conflict with"):
        await door.cluster.apply(TRIAL, wanted)
    assert (await door.cluster.apply(TRIAL, wanted, force=True)).spec == Spec(size=2)


async def test_single_labels_are_set_and_taken_away(door):
    await make(door.other, labels=(("x", "1"), ("y", "2")))
    changes = (("x", None), ("z", "3"))
    marked = await door.cluster.patch(TRIAL, "a", labels=changes, annotations=(("n", "1"),))
    assert (marked.labels, marked.annotations) == ((("y", "2"), ("z", "3")), (("n", "1"),))


async def test_delete_only_what_was_seen(door):
    seen = await make(door.cluster)
    changed = await door.other.replace(TRIAL, replace(seen, spec=Spec(size=2)))
    assert await lost(door.cluster.delete(TRIAL, seen)) is Lost.CHANGED
    assert await door.cluster.get(TRIAL, "a") == changed
    assert await door.cluster.delete(TRIAL, seen, unchanged=False) is True
    assert await door.cluster.delete(TRIAL, seen, unchanged=False) is False


async def test_finalizers_hold_an_object(door):
    seen = await make(door.cluster, finalizers=("contract.kube-rdma.io/hold",))
    assert await door.cluster.delete(TRIAL, seen)
    ending = await door.cluster.get(TRIAL, "a")
    assert ending.deleting
    await door.cluster.replace(TRIAL, replace(ending, finalizers=()))
    assert await door.cluster.get(TRIAL, "a") is None


async def test_a_list_is_sorted_and_selected(door):
    for name, colour in (("c", "red"), ("a", "red"), ("b", "blue")):
        await make(door.cluster, name, labels=(("colour", colour),))

    async def names(**where):
        return [each.name for each in await door.cluster.list(TRIAL, Where(**where))]

    assert await names() == ["a", "b", "c"]
    assert await names(labels="colour=red") == ["a", "c"]
    assert await names(labels="colour in (blue, green)") == ["b"]
    assert await names(labels="!colour") == []
    assert await names(name="b") == ["b"]
    with pytest.raises(Refused, match="not supported"):
        await names(fields="spec.size=1")


@pytest.mark.parametrize("name", ["Upper", "under_score", "a/b", "..", "a%2fb"])
async def test_a_bad_name_is_refused(door, name):
    with pytest.raises(Refused):
        await make(door.cluster, name)
    if not name.isidentifier():
        with pytest.raises(Refused, match="cannot be a name"):
            await door.cluster.get(TRIAL, name)


async def test_a_resource_that_is_not_installed(door):
    with pytest.raises(Refused, match="Install the custom resource definitions"):
        await door.cluster.get(UNKNOWN, "a")
    with pytest.raises(Refused, match="Install the custom resource definitions"):
        async with Told(door.cluster, kind=UNKNOWN) as told:
            await told.next()


async def test_a_missing_right_is_named(door):
    """The sentence holds the rule to add."""
    rule = 'apiGroups: ["contract.kube-rdma.io"], resources: ["trials"], verbs: '
    with pytest.raises(Refused) as caught:
        await make(door.powerless)
    assert f'{rule}["create"]' in str(caught.value)
    with pytest.raises(Refused) as caught:
        async with Told(door.powerless) as told:
            await told.next()
    assert f'{rule}["list", "watch"]' in str(caught.value)


async def test_a_watch_tells_what_is_there_then_what_changes(door):
    made = await make(door.other)
    async with Told(door.cluster) as told:
        assert await told.sync() == [Changed(made)]
        changed = await door.other.replace(TRIAL, replace(made, spec=Spec(size=2)))
        assert await told.next() == Changed(changed)
        second = await make(door.other, "b")
        assert await told.next() == Changed(second)
        await door.other.delete(TRIAL, changed)
        assert await told.next() == Deleted("a", "", made.uid)


async def test_a_watch_keeps_to_its_selection(door):
    """What leaves the selection is gone, what others do is not told."""
    async with Told(door.cluster, Where(labels="colour=red")) as told:
        assert await told.sync() == []
        await make(door.other, "blue", labels=(("colour", "blue"),))
        red = await make(door.other, "a", labels=(("colour", "red"),))
        assert await told.next() == Changed(red)
        await door.other.patch(TRIAL, "a", labels=(("colour", "blue"),))
        assert await told.next() == Deleted("a", "", red.uid)
        back = await door.other.patch(TRIAL, "blue", labels=(("colour", "red"),))
        assert await told.next() == Changed(back)


async def test_rounds_of_a_watch_repeat_nothing(brisk, door):
    """The server ends the stream; the next one goes on, and tells only what changed since."""
    made = await make(door.other)
    async with aclosing(brisk.watch(TRIAL, Where(name="a"))) as events:
        assert await anext(events) == Changed(made)
        assert isinstance(await anext(events), Synced)
        following = asyncio.ensure_future(anext(events))
        await asyncio.wait((following,), timeout=2.5)  # at least one stream has ended
        assert not following.done()
        changed = await door.other.replace(TRIAL, replace(made, spec=Spec(size=2)))
        assert await following == Changed(changed)


async def test_a_list_comes_in_pages(door):
    """All of it, and a watch begins behind the last page."""
    kind = replace(TRIAL, page=2)
    made = [await make(door.other, name) for name in ("a", "b", "c", "d", "e")]
    assert list(await door.cluster.list(kind)) == made
    async with Told(door.cluster, kind=kind) as told:
        assert await told.sync() == [Changed(each) for each in made]
        await door.other.delete(TRIAL, made[1])
        assert await told.next() == Deleted("b", "", made[1].uid)
