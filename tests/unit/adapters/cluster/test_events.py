"""Events while the API server is away, and how much of them is kept."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import CAPACITY, About, Events
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma_testing.recording import recorded
from tests.kit.api_server import QUICK
from tests.kit.beside import beside

NODE = About("Node", "node-1", uid="u")


class Clock:
    """The time of day, moved by hand."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def line(server):
    return server.line()


@pytest.fixture
def events(line, clock):
    return Events(Cluster(line, QUICK), "node-1", now=clock, pause=lambda _: 0.0)


def running(events):
    return beside(events.run())


def notes(server):
    return {
        each["note"]: each.get("series", {}).get("count", 1) for each in server.documents("events")
    }


async def test_what_is_told_during_an_outage_comes_later(events, server, line):
    """Telling returns at once; repeats share a place."""
    line.cut()
    async with running(events):
        for _ in range(3):
            events.tell(NODE, "CardVanished", "rxe0 is gone")
        events.tell(NODE, "CardVanished", "rxe1 is gone")
        assert not await events.settle(0.05)
        line.mend()
        assert await events.settle(10)
    assert notes(server) == {"rxe0 is gone": 3, "rxe1 is gone": 1}


async def test_what_is_told_of_one_namespace_crowds_out_no_other(events, server, line):
    """A pod of which ever other sentences are told took all places."""
    line.cut()
    for number in range(CAPACITY + 10):
        events.tell(About("Pod", "evil", "tenant", "e"), "NetworksRefused", f"no {number}")
    events.tell(About("Pod", "honest", "train", "h"), "NetworksRefused", "no network")
    events.tell(NODE, "CardVanished", "rxe0 is gone")
    line.mend()
    async with running(events):
        assert await events.settle(10)
    assert {"no network", "rxe0 is gone", "no 0"} <= notes(server).keys()
    assert events.dropped == 12


async def test_memory_is_bounded(events, server, line):
    """What has no place is counted and logged, what has one is written later."""
    line.cut()
    with recorded() as recording:
        for number in range(CAPACITY + 10):
            events.tell(NODE, "CardVanished", f"card {number}")
    assert events.dropped == 10
    assert [each["dropped"] for each in recording.of("events dropped")] == [1, 2, 4, 8]
    line.mend()
    async with running(events):
        assert await events.settle(10)
        events.tell(NODE, "CardVanished", "one more")  # the oldest is forgotten for it
        assert await events.settle(10)
    assert len(server.documents("events")) == CAPACITY + 1


async def test_repeats_are_written_rarely(events, server, line, clock):
    """The first at once, the next after half a minute, however many there were."""
    async with running(events):
        events.tell(NODE, "CardIll", "rxe0 is down")
        assert await events.settle(10)
        for _ in range(100):
            events.tell(NODE, "CardIll", "rxe0 is down")
        events.tell(NODE, "CardIll", "rxe1 is down")
        while "rxe1 is down" not in notes(server):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert notes(server) == {"rxe0 is down": 1, "rxe1 is down": 1}
        clock.now += timedelta(seconds=31)
        events.tell(NODE, "CardIll", "rxe0 is down")
        while notes(server)["rxe0 is down"] == 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert notes(server)["rxe0 is down"] == 102
    assert len(line.requests) == 3


async def test_after_a_silence_it_is_news_again(events, server, clock):
    async with running(events):
        for _ in range(2):
            events.tell(NODE, "CardIll", "rxe0 is down")
            assert await events.settle(10)
            clock.now += timedelta(minutes=7)
    assert len(server.documents("events")) == 2


async def test_a_lost_answer_makes_no_second_event(events, server, line):
    line.lose = 1
    async with running(events):
        events.tell(NODE, "CardIll", "rxe0 is down")
        assert await events.settle(10)
    assert notes(server) == {"rxe0 is down": 1}


async def test_an_event_that_expired_is_written_anew(events, server):
    """The server keeps Events for an hour; a repeat after that begins a new one."""
    async with running(events):
        events.tell(NODE, "CardIll", "rxe0 is down")
        assert await events.settle(10)
        (old,) = server.store.objects
        server.store.delete(old, {})
        events.tell(NODE, "CardIll", "rxe0 is down")
        assert await events.settle(10)
    assert notes(server) == {"rxe0 is down": 2}


@pytest.mark.parametrize("there", [True, False], ids=["there", "gone"])
async def test_a_pod_that_is_known_by_its_name_gets_its_events_by_uid(events, server, there):
    """`kubectl describe pod` shows no others; of a pod that is gone the Event is written too."""
    if there:
        metadata = {"name": "train-0", "namespace": "team", "uid": "u-7"}
        server.put(POD, {"metadata": metadata, "spec": {}})
    async with running(events):
        events.tell(About("Pod", "train-0", "team"), "RDMACardUnhealthy", "rxe0 is down")
        assert await events.settle(10)
    (event,) = server.documents("events")
    uid = server.documents("pods")[0]["metadata"]["uid"] if there else None
    assert event["regarding"].get("uid") == uid
    assert event["metadata"]["namespace"] == event["regarding"]["namespace"] == "team"


async def test_who_may_not_read_pods_tells_all_the_same(events, server):
    server.forbidden.add(("get", "pods"))
    async with running(events):
        events.tell(About("Pod", "train-0", "team"), "RDMACardUnhealthy", "rxe0 is down")
        assert await events.settle(10)
    assert notes(server) == {"rxe0 is down": 1}
