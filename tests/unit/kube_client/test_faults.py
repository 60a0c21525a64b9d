"""Broken networks and busy servers, on the fake: what a caller is told, and what it can do then."""

import asyncio
import json
from contextlib import suppress

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.errors import Conflict, Lost, failure
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_client.watching import Changed, Cut, Deleted, Muddled, Synced
from kube_client.wire import Answer, ApiRequest
from tests.kit.api_server import QUICK, TRIAL, Spec, Told


@pytest.fixture
def other(server):
    """Somebody whose network always works."""
    return Cluster(server.line(), QUICK)


def trial(name, **spec):
    return Wanted(name, spec=Spec(**spec))


async def test_a_lost_answer_leaves_the_write_done(cluster, line, other):
    """The caller reads, then decides: here its create is done already."""
    line.lose = 1
    with pytest.raises(Unavailable, match="got lost"):
        await cluster.create(TRIAL, trial("a"))
    assert await other.get(TRIAL, "a")
    with pytest.raises(Conflict) as caught:
        await cluster.create(TRIAL, trial("a"))
    assert caught.value.lost is Lost.EXISTS


@pytest.mark.parametrize(("uid", "lost"), [("", Lost.GONE), ("2-b", Lost.CHANGED)])
def test_a_replaced_object_is_gone_where_the_server_compares_its_uid_with_that_of_none(uid, lost):
    """What 1.30 answers, with 409; the newest answers 404."""
    message = (
        'Operation cannot be fulfilled on ippools.kube-rdma.io "a": StorageError: invalid object,'
        " Code: 4, Key: /registry/kube-rdma.io/ippools/a, ResourceVersion: 0, AdditionalErrorMsg:"
        f" Precondition failed: UID in precondition: 1-a, UID in object meta: {uid}"
    )
    status = {"kind": "Status", "message": message, "reason": "Conflict", "details": {"name": "a"}}
    request = ApiRequest("update", "kube-rdma.io", "v1alpha1", "ippools", name="a")
    error = failure(request, Answer(409, json.dumps(status).encode()), "trial")
    assert isinstance(error, Conflict)
    assert error.lost is lost


def test_a_definition_that_is_being_deleted_is_tried_again():
    """What 1.36 answers, with 403, until it is gone or was made anew; nobody has to act."""
    message = (
        'nodereports.kube-rdma.io "a" is forbidden: create not allowed while custom resource'
        " definition is terminating"
    )
    status = {"kind": "Status", "message": message, "reason": "Forbidden"}
    request = ApiRequest("patch", "kube-rdma.io", "v1alpha1", "nodereports", name="a")
    error = failure(request, Answer(403, json.dumps(status).encode()), "trial")
    assert isinstance(error, Unavailable)


async def test_a_repeated_write_conflicts_with_itself(cluster, line):
    """Something on the way delivers it twice; the swap is done once."""
    made = await cluster.create(TRIAL, trial("a", size=1))
    line.repeat = 1
    with pytest.raises(Conflict):
        await cluster.replace(TRIAL, replace(made, spec=Spec(size=2)))
    assert (await cluster.get(TRIAL, "a")).spec == Spec(size=2)


def sleeping(line):
    """A client, and the seconds that it sleeps."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    return Cluster(line, replace(QUICK, sleep=sleep)), slept


async def test_a_server_that_is_too_busy_is_asked_again_when_it_says(line):
    """Any call: it did nothing, as when its storage is being made after a definition came."""
    cluster, slept = sleeping(line)
    line.busy = [1.0, 3.0]
    await cluster.create(TRIAL, trial("a"))
    line.busy = [2.0]
    assert [one.name for one in await cluster.list(TRIAL)] == ["a"]
    assert all(a <= b <= a * 1.25 for a, b in zip([1, 3, 2], slept, strict=True))
    assert [request.verb for request in line.requests] == ["create"] * 3 + ["list"] * 2


@pytest.mark.parametrize("busy", [[31.0], [10.0] * 9])
async def test_a_server_that_is_busy_for_long_is_told(line, busy):
    """One call waits for half a minute in all."""
    cluster, slept = sleeping(line)
    line.busy = busy
    with pytest.raises(Unavailable, match=r"is busy: storage is \(re\)initializing"):
        await cluster.get(TRIAL, "a")
    assert sum(slept) <= 30 * 1.25


async def test_a_watch_of_a_busy_server_waits_too(line):
    """Before the next round."""
    cluster, slept = sleeping(line)
    async with Told(cluster) as told:
        line.busy = []
        send = line.send

        async def then_busy(request):
            answer = await send(request)
            line.busy = [] if slept else [5.0]
            return answer

        line.send = then_busy
        assert await told.sync() == []
        assert isinstance(await told.next(), Cut)
        assert await told.sync() == []
    assert len(slept) == 1
    assert slept[0] >= 5.0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_busy_server_does_nothing(cluster, line, status):
    line.fail = [status]
    with pytest.raises(Unavailable):
        await cluster.create(TRIAL, trial("a"))
    assert await cluster.get(TRIAL, "a") is None


async def test_without_a_network(cluster, line):
    """Nothing is done, and one node's cut is no other's."""
    line.cut()
    with pytest.raises(Unavailable):
        await cluster.create(TRIAL, trial("a"))
    line.mend()
    assert await cluster.get(TRIAL, "a") is None


async def test_a_watch_outlives_a_cut(cluster, line, other):
    """One Cut for the outage; then what changed meanwhile, without another list."""
    first = await cluster.create(TRIAL, trial("a", size=1))
    second = await cluster.create(TRIAL, trial("b", size=1))
    async with Told(cluster) as told:
        assert await told.sync() == [Changed(first), Changed(second)]
        line.cut()
        cut = await told.next()
        assert isinstance(cut, Cut)
        await other.delete(TRIAL, first)
        changed = await other.replace(TRIAL, replace(second, spec=Spec(size=2)))
        waiting = asyncio.create_task(told.next())
        await asyncio.sleep(0.1)  # some rounds that fail
        assert not waiting.done()
        line.mend()
        assert isinstance(await waiting, Synced)
        assert await told.next() == Deleted("a", "", first.uid)
        assert await told.next() == Changed(changed)
    assert [dict(r.query)["limit"] for r in line.requests if r.verb == "list"] == ["500", "1"]


async def test_a_connection_breaks(cluster, line, other):
    async with Told(cluster) as told:
        await told.sync()
        waiting = asyncio.create_task(told.next())
        await until_watching(line)
        line.break_watches()
        assert isinstance(await waiting, Cut)
        assert await told.sync() == []
        made = await other.create(TRIAL, trial("a"))
        assert await told.next() == Changed(made)


async def until_watching(line):
    """Wait for the stream, which opens when the notice after Synced is asked for."""
    while not line.watching:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_forgotten_version_is_no_cut(cluster, server, other):
    """410 begins a new round; nobody has to know."""
    async with Told(cluster) as told:
        await told.sync()
        made = await other.create(TRIAL, trial("a"))
        server.compact()
        assert await told.next() == Changed(made)


async def test_a_namesake_is_told_as_two(cluster, server, line, other):
    """Deleted and made anew between two lists: the old one is gone, another is there."""
    old = await cluster.create(TRIAL, trial("a"))
    async with Told(cluster) as told:
        await told.sync()
        line.cut()
        await told.next()
        await other.delete(TRIAL, old)
        new = await other.create(TRIAL, trial("a"))
        server.compact()
        line.mend()
        assert await told.sync() == []
        assert await told.sync() == [Deleted("a", "", old.uid), Changed(new)]


async def test_a_right_that_is_taken_later_is_a_cut(cluster, server, line):
    """A server that starts forbids for seconds what it will allow."""
    async with Told(cluster) as told:
        await told.sync()
        server.forbidden = {("list", "trials")}
        waiting = asyncio.create_task(told.next())
        await until_watching(line)
        line.end_watches()
        cut = await waiting
        assert isinstance(cut, Cut)
        assert 'verbs: ["list", "watch"]' in cut.why
        server.forbidden = set()
        assert await told.sync() == []


async def test_what_is_not_understood_is_told_and_stops_nothing(cluster, server, other):
    """In a watch it is one notice; a list with it is refused, for half a list is a lie."""
    odd = {"metadata": {"name": "odd"}, "spec": {"size": "large"}}
    server.put(TRIAL, odd)
    good = await other.create(TRIAL, trial("plain"))
    async with Told(cluster) as told:
        muddled, *rest = await told.sync()
        assert isinstance(muddled, Muddled)
        assert "Trial odd" in muddled.why
        assert "size" in muddled.why
        assert rest == [Changed(good)]
        server.remove(TRIAL, "odd")
        assert isinstance(await told.next(), Deleted)
    server.put(TRIAL, odd)
    with pytest.raises(Refused, match="Trial odd"):
        await cluster.list(TRIAL)


async def test_rounds_that_fail_wait_longer(line):
    """The pause grows with the failures, whether a list or a stream fails."""
    asked = []

    def pause(failures):
        asked.append(failures)
        return 0.0

    line.fail = [200, 500, 500, 500]  # the first list is told in vain: no list at all
    async with Told(Cluster(line, replace(QUICK, pause=pause))) as told:
        assert isinstance(await told.next(), Cut)
        assert isinstance(await told.next(), Synced)
    assert asked == [1, 2, 3, 4]


async def test_a_watch_that_is_left_leaves_nothing(cluster, line):
    """Cancelled while it waits, it closes its stream."""
    told = Told(cluster)
    async with told:
        await told.sync()
        waiting = asyncio.create_task(told.next())
        await until_watching(line)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    assert line.watching == 0


async def test_a_refused_look_is_no_trouble_afterwards(cluster, server):
    server.forbidden = {("list", "trials")}
    with pytest.raises(Refused):
        await cluster.see(TRIAL)
    assert cluster.troubles() == ()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_closed_watch_is_no_trouble_any_more(cluster, line, is_cancelled):
    async with Told(cluster) as told:
        await told.sync()
        line.cut()
        assert isinstance(await told.next(), Cut)
        assert len(cluster.troubles()) == 1
        if is_cancelled:
            waiting = asyncio.create_task(told.next())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert cluster.troubles() == ()
    assert cluster.troubles() == ()
