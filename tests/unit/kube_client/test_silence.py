"""A starved process and a dead server, on an event loop whose clock a test moves."""

import asyncio
import socket

import pytest
import structlog

from kube_base.errors import Unavailable
from kube_client.silence import Silence
from tests.kit.api_server import TRIAL
from tests.unit.kube_client.test_connect import OBJECT, answer, kubeconfig
from tests.unit.kube_client.trial import connect


class Loop(asyncio.SelectorEventLoop):
    """Its clock is `ahead` by so many seconds: they passed while nothing here had a turn."""

    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


def run(test):
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(test(runner.get_loop()))


async def hurry(loop):
    """Let time pass quickly, while everything has its turns."""
    while True:
        loop.ahead += 0.25
        await asyncio.sleep(0)


def test_an_answer_that_waited_for_a_starved_process_counts():
    """Where a limit by the clock throws it away."""

    async def test(loop):
        near, far = socket.socketpair()
        near.setblocking(False)

        def starve():
            far.send(b"answer")
            loop.ahead += 1000

        async def receive(limit):
            async with limit:
                loop.call_soon(starve)
                return await loop.sock_recv(near, 9)

        with near, far:
            assert await receive(Silence(30)) == b"answer"
            with pytest.raises(TimeoutError):
                await receive(asyncio.timeout(30))

    run(test)


@pytest.mark.parametrize("ticks", [1, 7, 30, 330])
def test_a_dead_neighbour_costs_so_many_ticks(ticks):
    """And it is told of after some of them, once."""

    async def test(loop):
        notices = []
        hurrying = loop.create_task(hurry(loop))
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with Silence(ticks, lambda: notices.append(loop.time() - began), 5):
                await loop.create_future()
        assert ticks <= loop.time() - began < 2 * ticks + 5
        assert len(notices) == (ticks > 5)
        assert all(5 <= after < 15 for after in notices)
        hurrying.cancel()

    run(test)


@pytest.mark.parametrize("seconds", [30, 330, 3600])
def test_a_watch_that_is_silent_for_minutes_wakes_nobody_before_its_end(seconds):
    """Five turns at the end tell a starved process from a dead server as well as hundreds."""

    async def test(loop):
        woken = []
        later = loop.call_later
        loop.call_later = lambda delay, call, *words: (
            woken.append(delay) or later(delay, call, *words)
        )
        hurrying = loop.create_task(hurry(loop))
        with pytest.raises(TimeoutError):
            async with Silence(seconds):
                await loop.create_future()
        assert woken == [seconds - 5, 1, 1, 1, 1, 1]
        hurrying.cancel()

    run(test)


def test_what_is_cancelled_stays_cancelled():
    """By others, before the silence ends."""

    async def test(loop):
        async def wait():
            async with Silence(30):
                await loop.create_future()

        waiting = loop.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()

    run(test)


def test_a_server_that_is_silent(tmp_path):
    """People hear of it after seconds, the caller after half a minute, and of its return too."""

    async def test(loop):
        silent = True

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            if silent:
                await reader.read()
            else:
                writer.write(answer(OBJECT))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{port}", {})
        with structlog.testing.capture_logs() as lines:
            async with server, connect(config) as cluster:
                for _ in range(2):
                    hurrying = loop.create_task(hurry(loop))
                    with pytest.raises(Unavailable, match="silence for 30 s"):
                        await cluster.get(TRIAL, "a")
                    hurrying.cancel()
                silent = False
                assert await cluster.get(TRIAL, "a")
        assert [line["event"] for line in lines] == ["API server awaited", "API server answering"]

    run(test)


def test_a_server_that_answered_a_starved_process(tmp_path):
    """The answer lies in the socket while the process has no turn for a quarter of an hour."""

    async def test(loop):
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(OBJECT))
            loop.ahead += 1000
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{port}", {})
        async with server, connect(config) as cluster:
            assert (await cluster.get(TRIAL, "a")).uid == "u"

    run(test)
