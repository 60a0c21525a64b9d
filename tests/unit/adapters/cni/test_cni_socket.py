"""The agent's socket: who may call, how many at once, and what a bad caller can do to others."""

import asyncio
import json
import os
import socket
import struct
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.cni import protocol
from kube_rdma.adapters.cni.socket import (
    CALLER,
    CniSocket,
    Limits,
    Turns,
    refuse_hung_up,
    set_aside,
)
from kube_rdma.model.attach.cni import CniResult, LinkRoute, Verb
from kube_rdma_testing.cni.shim import FakeShim
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside

# Not the checkout's own Python: that may lie below a home that only root may enter.
PYTHON = Path(sys.executable).resolve()

ROUTE = LinkRoute(ip_network("10.0.0.0/8"))
CONFIG = json.dumps({"cniVersion": "1.0.0", "name": "pods"}).encode()
DELETE = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0"}


@pytest.fixture
def root():
    """Short, for a socket's path has at most 107 bytes; others may look into it."""
    with tempfile.TemporaryDirectory(prefix="cni-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def path(root):
    return root / "run/kube-rdma/agent.sock"


@asynccontextmanager
async def serving(root, handler, limits=None):
    async with CniSocket(path(root), handler, limits=limits) as server, beside(server.serve()):
        yield server


class Gate:
    """A handler that holds every call until it is opened."""

    def __init__(self):
        self.running = self.most = self.total = 0
        self.open = asyncio.Event()
        self.changed = asyncio.Condition()

    async def __call__(self, call):
        self.total += 1
        self.running += 1
        self.most = max(self.most, self.running)
        async with self.changed:
            self.changed.notify_all()
        await self.open.wait()
        self.running -= 1
        return CniResult()

    async def until(self, running):
        async with self.changed:
            await self.changed.wait_for(lambda: self.running >= running)


async def connected(root):
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, str(path(root)))
    return connection


async def ended(connection):
    """What the agent said until it hung up; a reset is an end too."""
    said = b""
    with suppress(ConnectionError):
        while piece := await asyncio.get_running_loop().sock_recv(connection, 4096):
            said += piece
    connection.close()
    return said


async def quick(call):
    return CniResult()


async def test_the_socket_is_roots_alone(root):
    """Mode 0600 in a folder of mode 0700, gone when the agent ends."""
    async with serving(root, quick):
        assert path(root).stat().st_mode & 0o777 == 0o600
        assert path(root).parent.stat().st_mode & 0o777 == 0o700
    assert list(path(root).parent.iterdir()) == []


async def test_an_old_socket_is_replaced(root):
    """What a killed agent left is no hindrance, and an ending one leaves the newer's socket."""
    async with CniSocket(path(root), quick), serving(root, quick):
        assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0
    async with CniSocket(path(root), quick) as old, serving(root, quick):
        await old.__aexit__(None, None, None)
        assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0


async def test_a_folder_that_cannot_be_used_is_said(root):
    """A file in the place of the folder: the agent is told which path it needs."""
    (root / "run").touch()
    with pytest.raises(Unavailable, match=r"agent.sock cannot be made"):
        await CniSocket(path(root), quick).__aenter__()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
async def test_only_root_may_call(root):
    """Whoever reaches the socket as another user is hung up on, and the log says so."""
    calls = []

    async def handler(call):
        calls.append(call)
        return CniResult()

    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "sys.exit(len(s.recv(1)))"
    )
    with recorded() as log:
        async with serving(root, handler):
            path(root).chmod(0o666)
            path(root).parent.chmod(0o755)
            process = await asyncio.create_subprocess_exec(
                PYTHON, "-I", "-c", script, path(root), user=65534
            )
            assert await process.wait() == 0
    assert calls == []
    assert log.events == ["non-root CNI caller rejected"]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"krq",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">4sIII", b"krq1", 9, 0, 0),
        struct.pack(">4sIII", b"krq1", 0, 0, protocol.MAX_INPUT + 1),
        struct.pack(">4sIII", b"krq1", 0, 0xFFFFFFFF, 0),
        protocol.request(b"", CONFIG)[:-1],
    ],
)
async def test_a_caller_that_talks_nonsense_is_hung_up_on(root, said):
    """It gets no answer, whatever it says before it is silent; others are served."""
    with recorded():
        async with serving(root, quick):
            connection = await connected(root)
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            assert await ended(connection) == b""
            assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0


async def test_a_caller_that_is_silent_is_hung_up_on(root):
    """Half a request holds its place only for so long."""
    with recorded() as log:
        async with serving(root, quick, Limits(waiting=1, seconds=0.05)):
            connection = await connected(root)
            connection.sendall(protocol.request(b"", CONFIG)[:-1])
            assert await ended(connection) == b""
            assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0
    assert log.events == ["CNI caller disconnected"]


async def test_no_more_run_at_once_than_allowed(root):
    """The others wait, in the queue or outside of it, and all are answered."""
    gate = Gate()
    async with serving(root, gate, Limits(running=4, waiting=8)):
        calls = [asyncio.create_task(FakeShim(root).run(DELETE, CONFIG)) for _ in range(30)]
        await gate.until(4)
        gate.open.set()
        done = await asyncio.gather(*calls)
    assert [one.code for one in done] == [0] * 30
    assert (gate.total, gate.most) == (30, 4)


async def test_whoever_hung_up_while_waiting_is_not_served(root):
    """A runtime that gave up has begun anew, or deletes: its old call must not run then."""
    gate = Gate()
    async with serving(root, gate, Limits(running=1)):
        first = asyncio.create_task(FakeShim(root).run(DELETE, CONFIG))
        await gate.until(1)
        gone = await connected(root)
        gone.sendall(protocol.request(b"CNI_COMMAND=GC\0", CONFIG))
        gone.close()
        gate.open.set()
        assert (await first).code == 0
        assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0
    assert gate.total == 2


ADD = {**DELETE, "CNI_COMMAND": "ADD", "CNI_NETNS": "/proc/self/ns/net"}


async def test_adds_leave_room_for_what_ends(root):
    """However many hang; the next ADD waits for one of them."""
    gate = Gate()

    async def handler(call):
        return await gate(call) if call.verb is Verb.ADD else CniResult()

    async with serving(root, handler, Limits(running=4, adding=3)):
        calls = [asyncio.create_task(FakeShim(root).run(ADD, CONFIG)) for _ in range(9)]
        await gate.until(3)
        for _ in range(9):
            assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0
        gate.open.set()
        assert [one.code for one in await asyncio.gather(*calls)] == [0] * 9
    assert gate.most == 3


async def test_who_hangs_up_is_known_to_the_work_for_him(root):
    """While it is done, and in tasks of it; what the agent does by itself is for nobody."""
    begun, gone, known = asyncio.Event(), asyncio.Event(), []

    async def look():
        refuse_hung_up()
        begun.set()
        await gone.wait()
        known.append(CALLER.get().hung_up)
        refuse_hung_up()

    async def handler(call):
        await asyncio.create_task(look())
        return CniResult()

    with recorded():
        async with serving(root, handler):
            connection = await connected(root)
            environment = b"CNI_COMMAND=ADD\0CNI_CONTAINERID=c\0CNI_IFNAME=eth0\0CNI_NETNS=x\0"
            request = protocol.request(environment, CONFIG)
            with open_netns() as netns:
                socket.send_fds(connection, [request], [netns.fileno()])
            await begun.wait()
            connection.close()
            gone.set()
            assert (await FakeShim(root).run(ADD, CONFIG)).code == 0
    assert known == [True, False]
    refuse_hung_up()


class Hostile:
    """A connection's work that fails outside of every call."""

    def __init__(self):
        self.left = 1

    async def __call__(self, call):
        if self.left:
            self.left -= 1
            raise ExceptionGroup("nobody thought of it", [RecursionError(), OverflowError()])
        return CniResult()


async def test_a_connection_that_fails_ends_no_other(root):
    """Whoever is served beside it stays, and the next one is taken."""
    gate = Gate()

    async def handler(call):
        return await (gate(call) if call.container == "slow" else hostile(call))

    hostile = Hostile()
    with recorded() as log:
        async with serving(root, handler):
            slow = {**DELETE, "CNI_CONTAINERID": "slow"}
            beside = asyncio.create_task(FakeShim(root).run(slow, CONFIG))
            await gate.until(1)
            assert (await FakeShim(root).run(DELETE, CONFIG)).code == 1
            assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0
            gate.open.set()
            assert (await beside).code == 0
    assert len(log.of("part of the program failed")) == 1


async def test_the_configuration_of_a_call_that_waits_stays_outside(root):
    """A pod's author makes it megabytes long; it is taken when its turn comes, and not before."""
    gate = Gate()
    large = json.dumps({"cniVersion": "1.0.0", "name": "pods", "x": "y" * (1 << 20)}).encode()
    async with serving(root, gate, Limits(running=1)):
        first = asyncio.create_task(FakeShim(root).run(DELETE, CONFIG))
        await gate.until(1)
        waiting = await connected(root)
        loop = asyncio.get_running_loop()
        environment = b"CNI_COMMAND=DEL\0CNI_CONTAINERID=d\0CNI_IFNAME=eth0\0"
        sending = asyncio.create_task(
            loop.sock_sendall(waiting, protocol.request(environment, large))
        )
        assert (await asyncio.wait((sending, first), timeout=0.2))[0] == set()
        gate.open.set()
        await sending
        assert (await first).code == 0
        head = await loop.sock_recv(waiting, protocol.ANSWER_HEADER)
        assert protocol.answer_head(head) == (0, 0)
        waiting.close()
    assert gate.total == 2


async def test_an_answer_has_an_end_and_says_so(root):
    """A refusal may have thousands of faults; the shim takes it, and a runtime can read it."""
    many = [Refused(f"fault {n} " + "x" * 500, remedy="mend it") for n in range(5000)]
    results = {
        "refused": Refused.all(many),
        "long": Refused("x" * 200_000, remedy="\U0001f600" * 9000),
    }

    async def handler(call):
        if call.container in results:
            raise results[call.container]
        return CniResult(routes=tuple(ROUTE for _ in range(60_000)))

    async with serving(root, handler):
        for container in results:
            done = await FakeShim(root).run({**DELETE, "CNI_CONTAINERID": container}, CONFIG)
            assert len(done.out) <= 1 << 16
            assert "characters are cut" in done.document["msg"] + done.document["details"]
        done = await FakeShim(root).run(ADD, CONFIG)
        assert "bytes, of 1048576 that fit" in done.document["msg"]


async def test_a_fault_of_ours_fails_one_call_alone(root):
    """The caller is pointed to the log, which has the cause; the next call is served."""

    async def handler(call):
        if call.container == "bad":
            raise KeyError("x")
        return CniResult()

    with recorded() as log:
        async with serving(root, handler):
            done = await FakeShim(root).run({**DELETE, "CNI_CONTAINERID": "bad"}, CONFIG)
            assert (done.code, done.document["code"]) == (1, 101)
            assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0
    assert [line["part"] for line in log.of("part of the program failed")] == ["CNI call"]


@pytest.mark.parametrize("more", [b"[" * 2000 + b"]" * 2000, b"1e999", b"9" * 5000, b'"\xff"'])
async def test_what_a_pod_brings_into_a_configuration_harms_its_call_alone(root, more):
    """A meta-plugin copies the pod's cni-args into it; whoever calls beside it is served."""
    config = b'{"cniVersion": "1.0.0", "name": "pods", "args": {"cni": {"x": %s}}}' % more
    async with serving(root, quick):
        done = await FakeShim(root).run(DELETE, config)
        assert done.code == 0 or done.document["code"] == 6
        assert (await FakeShim(root).run(DELETE, CONFIG)).code == 0


def open_netns():
    return Path("/proc/self/ns/net").open("rb")


async def test_descriptors_are_closed(root):
    """Those of a call, those of too many, and those of nonsense: none stays open."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with recorded(), open_netns() as netns:
        async with serving(root, quick):
            for said in (b"nonsense, as long as a header", b"krq"):
                connection = await connected(root)
                socket.send_fds(connection, [said], [netns.fileno()] * 3)
                connection.shutdown(socket.SHUT_WR)
                await ended(connection)
            named = {**DELETE, "CNI_NETNS": "/proc/self/ns/net"}
            assert (await FakeShim(root).run(named, CONFIG)).code == 0
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def drained(turns, kinds, gone=()):
    """Let all wait while every place is taken, then go one by one; in which order they were."""
    order, free = [], asyncio.Event()

    async def one(number, begins):
        async with turns.turn(begins=begins):
            order.append(number)

    async def hold():
        async with turns.turn(begins=False):
            await free.wait()

    held = asyncio.create_task(hold())
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(one(number, begins)) for number, begins in enumerate(kinds)]
    await asyncio.sleep(0)
    for number in gone:
        tasks[number].cancel()
    free.set()
    await asyncio.gather(held, *tasks, return_exceptions=True)
    return order


@given(st.lists(st.booleans(), max_size=12), st.data())
def test_ends_first_then_in_the_order_in_which_they_came(kinds, data):
    """Whoever gives up while he waits is passed over, and costs nobody his turn."""
    gone = data.draw(st.sets(st.sampled_from(range(len(kinds))))) if kinds else set()
    order = asyncio.run(drained(Turns(1), kinds, gone))
    left = [number for number in range(len(kinds)) if number not in gone]
    assert order == sorted(left, key=lambda number: (kinds[number], number))


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=20),
)
def test_never_more_than_allowed_and_everybody_in_the_end(places, beginning, calls):
    """However long each takes, and whoever is cancelled at whatever moment."""

    async def run():
        turns, taken, most = Turns(places, beginning), {True: 0, False: 0}, []

        async def one(begins, steps):
            async with turns.turn(begins=begins):
                taken[begins] += 1
                most.append((taken[True], sum(taken.values())))
                try:
                    for _ in range(steps):
                        await asyncio.sleep(0)
                finally:
                    taken[begins] -= 1

        tasks = [asyncio.create_task(one(begins, steps)) for begins, steps, _ in calls]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for task, (_, _, gone) in zip(tasks, calls, strict=True):
            if gone:
                task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        assert all(begun <= beginning and every <= places for begun, every in most)
        for begins in (True, False):  # every place was given back
            for _ in range(places):
                async with turns.turn(begins=begins):
                    pass

    asyncio.run(run())


class Calling:
    hung_up = False

    def __init__(self, place):
        self.place = place


async def test_while_others_are_waited_for_the_place_is_free():
    """The next one has it; it is taken again behind whoever waited, and given back once."""
    turns, order, free = Turns(1), [], asyncio.Event()

    async def first():
        async with turns.turn(begins=True) as place:
            CALLER.set(Calling(place))
            async with set_aside():
                await free.wait()
            order.append("first")

    async def second():
        async with turns.turn(begins=True):
            order.append("second")
            free.set()
            await asyncio.sleep(0)

    await asyncio.gather(first(), second())
    async with turns.turn(begins=True):
        order.append("third")
    assert order == ["second", "first", "third"]


async def test_who_is_cancelled_while_he_wants_his_place_again_has_none_to_give_back():
    turns, aside, back = Turns(1), asyncio.Event(), asyncio.Event()

    async def call():
        async with turns.turn(begins=True) as place:
            CALLER.set(Calling(place))
            async with set_aside():
                aside.set()
                await back.wait()

    waiting = asyncio.create_task(call())
    await aside.wait()
    async with turns.turn(begins=True):
        back.set()
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        third = asyncio.create_task(turns.wait(begins=True))
        await asyncio.sleep(0)
        assert not third.done()
    await third


async def test_namespaces_have_turns():
    """A burst of pods of one namespace keeps no pod of another waiting for all of them."""
    turns, order = Turns(1), []

    async def call(namespace, number):
        async with turns.turn(begins=True, namespace=namespace):
            order.append((namespace, number))

    async with asyncio.TaskGroup() as tasks, turns.turn(begins=True):
        for number in range(9):
            tasks.create_task(call("tenant", number))
        await asyncio.sleep(0)
        for number in range(2):
            tasks.create_task(call("train", number))
        await asyncio.sleep(0)
    assert order[:4] == [("tenant", 0), ("train", 0), ("tenant", 1), ("train", 1)]


async def test_who_comes_again_and_again_goes_before_nobody_who_waits():
    """A namespace of which one call always waits has every second turn, and no more."""
    turns, order = Turns(1), []

    async def call(namespace, again=0):
        async with turns.turn(begins=True, namespace=namespace):
            order.append(namespace)
            if again:
                tasks.create_task(call(namespace, again - 1))
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks, turns.turn(begins=True):
        for _ in range(5):
            tasks.create_task(call("train"))
        tasks.create_task(call("tenant", again=20))
        await asyncio.sleep(0)
    assert order[:12].count("train") == 5
