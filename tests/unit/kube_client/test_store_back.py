"""A store that goes back to an earlier hour, on the fake: who notices, and what watches tell."""

import asyncio

import pytest

from kube_base.frozen import replace
from kube_client.errors import Conflict, Expired
from kube_client.kinds import NOTHING, ObjectKind, Wanted
from kube_client.objects import Cluster
from kube_client.watching import Changed, Cut, Deleted, Synced
from tests.kit.api_server import QUICK, TRIAL, Spec, Told
from tests.unit.kube_client.test_faults import until_watching

NODE = ObjectKind("", "v1", "Node", "nodes", namespaced=False, spec=NOTHING, status=NOTHING)


@pytest.fixture
def other(server):
    """Somebody whose requests the horizon of `cluster` does not see."""
    return Cluster(server.line(), QUICK)


async def make(cluster, name, size=1):
    return await cluster.create(TRIAL, Wanted(name, spec=Spec(size=size)))


async def news(told, count):
    """So many changes; what else is told does not matter."""
    changes = []
    while len(changes) < count:
        notice = await told.next()
        if not isinstance(notice, Synced | Cut):
            changes.append(notice)
    return changes


@pytest.mark.parametrize("bump", [0, 1000])
async def test_a_watch_tells_what_a_restored_store_has(cluster, server, other, bump):
    """Without a bumped revision the server would be silent until it is where the watch was."""
    kept = await make(other, "kept")
    backup = server.store.backup()
    async with Told(cluster) as told:
        assert await told.sync() == [Changed(kept)]
        changed = await other.replace(TRIAL, replace(kept, spec=Spec(size=2)))
        late = await make(other, "late")
        assert await news(told, 2) == [Changed(changed), Changed(late)]
        server.restore(backup, bump)
        assert await news(told, 2) == [Changed(kept), Deleted("late", "", late.uid)]
        again = await make(other, "again")
        assert await news(told, 1) == [Changed(again)]


@pytest.mark.parametrize("bump", [0, 1000])
async def test_who_listens_hears_it_once(cluster, server, other, bump):
    """IPAM does, to grant nothing more."""
    heard = []
    cluster.listeners.append(lambda: heard.append(1))
    kept = await make(other, "kept")
    backup = server.store.backup()
    async with Told(cluster) as told:
        await told.sync()
        changed = await other.replace(TRIAL, replace(kept, spec=Spec(size=2)))
        assert await news(told, 1) == [Changed(changed)]
        server.restore(backup, bump)
        assert await news(told, 1) == [Changed(kept)]
    assert heard == [1]


async def test_one_answer_ends_all_watches(cluster, line, server, other):
    """Here nothing breaks off: a write of another kind shows a lower version."""
    server.put(NODE, {"metadata": {"name": "n1"}})
    kept = await make(other, "kept")
    backup = server.store.backup()
    async with Told(cluster) as told, Told(cluster, kind=NODE) as nodes:
        await told.sync()
        assert len(await nodes.sync()) == 1
        for size in range(2, 6):
            kept = await other.replace(TRIAL, replace(kept, spec=Spec(size=size)))
            await told.next()
        waiting = [asyncio.ensure_future(each.next()) for each in (told, nodes)]
        while line.watching < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        server.store.restore(backup)
        await make(cluster, "new")
        first, _ = await asyncio.gather(*waiting)
        assert first.object.spec == Spec(size=1)
    lists = [r.plural for r in line.requests if r.verb == "list"]
    assert sorted(lists) == ["nodes", "nodes", "trials", "trials"]


async def test_a_store_that_goes_back_before_a_stream_begins(cluster, server, other):
    """The list was of the life before: a stream from its version would be silent."""
    kept = await make(other, "kept")
    backup = server.store.backup()
    changed = kept
    for size in range(2, 6):
        changed = await other.replace(TRIAL, replace(changed, spec=Spec(size=size)))
    async with Told(cluster) as told:
        assert await told.sync() == [Changed(changed)]
        server.store.restore(backup)
        new = await make(cluster, "new")
        assert await news(told, 2) == [Changed(kept), Changed(new)]


async def test_a_bumped_store_is_seen_however_much_others_wrote(cluster, line, server, other):
    """Without a bumped revision it has caught up then, and shows no lower version."""
    await make(other, "kept")
    backup = server.store.backup()
    async with Told(cluster) as told:
        await told.sync()
        late = await make(other, "late")
        assert await news(told, 1) == [Changed(late)]
        server.store.restore(backup, 1000)
        new = [Changed(await make(other, name)) for name in ("new-1", "new-2", "new-3")]
        waiting = asyncio.ensure_future(news(told, 4))
        await until_watching(line)
        line.break_watches()
        assert await waiting == [*new, Deleted("late", "", late.uid)]


async def test_a_kind_that_is_listed_in_doubt_shows_what_caught_up(line, server, other):
    """An object is older than it was, though the store counted on past all that was lost."""
    heard, cluster = [], Cluster(line, QUICK)
    cluster.listeners.append(lambda: heard.append(1))
    kept = await make(other, "kept")
    backup = server.store.backup()
    async with Told(cluster, kind=replace(TRIAL, is_listed_in_doubt=True)) as told:
        await told.sync()
        changed = await other.replace(TRIAL, replace(kept, spec=Spec(size=2)))
        assert await news(told, 1) == [Changed(changed)]
        server.store.restore(backup, 0)
        for name in ("new-1", "new-2", "new-3"):
            await make(other, name)
        await until_watching(line)
        line.break_watches()
        assert Changed(kept) in await news(told, 4)
    assert heard == [1]


async def test_a_list_is_compared_with_what_was_written_too(cluster, server):
    """The watch that lists may have been behind: here it never told the object."""
    heard = []
    cluster.listeners.append(lambda: heard.append(1))
    made = await make(cluster, "a")
    backup = server.store.backup()
    await cluster.replace(TRIAL, replace(made, spec=Spec(size=2)))
    server.restore(backup, bump=1000)
    async with Told(cluster) as told:
        assert await told.sync() == [Changed(made)]
    assert heard == [1]


async def test_an_object_that_became_older_shows_it(cluster, server):
    """A read of one object, where the version of the store is not told."""
    heard = []
    cluster.listeners.append(lambda: heard.append(1))
    made = await make(cluster, "a")
    backup = server.store.backup()
    await cluster.replace(TRIAL, replace(made, spec=Spec(size=2)))
    server.store.restore(backup)
    assert await cluster.get(TRIAL, "a") == made
    assert heard == [1]


async def test_what_is_no_sign(cluster, server, other):
    """A write that changes nothing, an old object, one made anew, and lost races."""
    heard = []
    cluster.listeners.append(lambda: heard.append(1))
    old = await make(other, "old")
    made = await make(cluster, "a")
    await make(cluster, "b")
    assert await cluster.get(TRIAL, "old") == old
    assert await cluster.replace(TRIAL, made) == made
    await other.delete(TRIAL, made)
    with pytest.raises(Conflict):
        await cluster.replace(TRIAL, replace(made, spec=Spec(size=2)))
    await make(other, "a")
    await cluster.get(TRIAL, "a")
    await cluster.patch(TRIAL, "old", labels=(("x", None),))
    assert await cluster.list(TRIAL)
    assert heard == []


async def test_what_is_written_while_a_list_is_on_its_way_is_no_sign(cluster, line, server):
    """The list is older than the write, whose answer is here first."""
    heard = []
    cluster.listeners.append(lambda: heard.append(1))
    made, send = [await make(cluster, "a")], line.send

    async def overtaken(request):
        answer = await send(request)
        if request.verb == "list":
            made.append(await cluster.replace(TRIAL, replace(made[-1], spec=Spec(size=2))))
        return answer

    line.send = overtaken
    async with Told(cluster) as told:
        assert await told.sync() == [Changed(made[0])]
        assert await news(told, 1) == [Changed(made[1])]
    assert heard == []


async def test_a_watch_at_rest_does_not_list(server):
    """A stream that the server ends in time is followed by the next one."""
    now = 0.0
    line = server.line()
    pace = replace(QUICK, clock=lambda: now, stream=1.0)
    async with Told(Cluster(line, pace)) as told:
        await told.sync()
        waiting = asyncio.ensure_future(told.next())
        await until_watching(line)
        now += 1000.0
        line.end_watches()
        while len(line.requests) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
    assert [r.verb for r in line.requests] == ["list", "watch", "watch"]


async def test_a_list_after_an_hour(server):
    """Between two lists lie an hour and up to a quarter more."""
    now = 0.0
    line = server.line()
    async with Told(Cluster(line, replace(QUICK, clock=lambda: now))) as told:
        await told.sync()
        for passed, lists in ((3599.0, 1), (902.0, 2)):
            waiting = asyncio.ensure_future(told.next())
            await until_watching(line)
            now += passed
            line.end_watches()
            if lists == 2:
                assert isinstance(await waiting, Synced)
            else:
                while len(line.requests) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await until_watching(line)
                line.break_watches()
                assert isinstance(await waiting, Cut)
                assert await told.sync() == []
    counted = [r for r in line.requests if r.verb == "list" and dict(r.query)["limit"] != "1"]
    assert len(counted) == 2


async def test_a_list_whose_pages_expire_is_begun_anew(cluster, line, server, other):
    """The server has forgotten the version of the first page; at the third time it is told."""
    kind = replace(TRIAL, page=1)
    for name in "abc":
        await make(other, name)
    send, expiries = line.send, [1]

    async def slow(request):
        answer = await send(request)
        if request.verb == "list" and expiries:
            expiries.pop()
            server.put(NODE, {"metadata": {"name": f"n{len(line.requests)}"}})
            server.compact()
        return answer

    line.send = slow
    assert [each.name for each in await cluster.list(kind)] == ["a", "b", "c"]
    expiries += [1] * 9
    with pytest.raises(Expired):
        await cluster.list(kind)


async def test_see_shows_what_a_list_begun_anew_has(cluster, line, server, other):
    """Not what was deleted, changed or mended since the pages that expired."""
    kind = replace(TRIAL, page=3)
    gone, old = await make(other, "a"), await make(other, "b")
    server.put(TRIAL, {"metadata": {"name": "c"}, "spec": {"size": "large"}})
    await make(other, "d")
    send, changed = line.send, []

    async def slow(request):
        answer = await send(request)
        if request.verb == "list" and not changed:
            changed.append(await other.replace(TRIAL, replace(old, spec=Spec(size=2))))
            await other.delete(TRIAL, gone)
            server.put(TRIAL, {"metadata": {"name": "c"}, "spec": {"size": 3}})
            server.compact()
        return answer

    line.send = slow
    seen = await cluster.see(kind)
    assert [(each.name, each.spec.size) for each in seen.objects] == [("b", 2), ("c", 3), ("d", 1)]
    assert seen.muddled == ()
    assert seen.unread == frozenset()


async def test_pages_are_as_large_as_objects_let_them(cluster, line, other):
    """Few at first; then as many as weigh four MiB, and never more than four times as many."""
    for number in range(60):
        await make(other, f"t{number:02}")
    assert len(await cluster.list(replace(TRIAL, page=5))) == 60
    assert [dict(r.query)["limit"] for r in line.requests] == ["5", "20", "80"]
