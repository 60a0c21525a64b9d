"""The server of metrics with a real HTTP client: answers, refusals, limits."""

import asyncio
import http.client
from contextlib import asynccontextmanager

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.metrics.server import LIMITS, MetricsServer

KIND = "text/plain; version=0.0.4"


async def metrics():
    return b"a 1\n"


@asynccontextmanager
async def serving(answer=metrics):
    server = MetricsServer(answer, KIND)
    await server.listen("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


def asked(server, *requests):
    """Status, type and body of each request on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        for method, path in requests:
            connection.request(method, path)
            answer = connection.getresponse()
            yield answer.status, answer.headers["content-type"], answer.read()
    finally:
        connection.close()


async def ask(server, *requests):
    return await asyncio.to_thread(lambda: list(asked(server, *requests)))


async def test_a_connection_serves_many_scrapes():
    async with serving() as server:
        answers = await ask(server, *[("GET", "/metrics"), ("GET", "/metrics?name=a")] * 2)
    assert answers == [(200, KIND, b"a 1\n")] * 4


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("POST", "/metrics", 405)]
)
async def test_anything_else_is_refused_in_a_line(method, path, status):
    async with serving() as server:
        ((code, kind, body),) = await ask(server, (method, path))
    assert (code, body.count(b"\n")) == (status, 1)
    assert kind.startswith("text/plain")


async def test_a_scrape_that_cannot_be_answered_says_why():
    async def silent():
        raise Unavailable("the counters were not read")

    async with serving(silent) as server:
        ((status, _, body),) = await ask(server, ("GET", "/metrics"))
    assert (status, body) == (503, b"the counters were not read\n")


async def test_an_address_that_is_taken_is_refused():
    async with serving() as server:
        with pytest.raises(Refused, match=rf"cannot listen on 127.0.0.1:{server.port}"):
            await MetricsServer(metrics, KIND).listen("127.0.0.1", server.port)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.1\r\nx: " + b"y" * (1 << 15),
        b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 99999\r\n\r\n" + b"z" * 99999,
        b"\x16\x03\x01 not http\r\n\r\n",
    ],
)
async def test_a_request_that_is_too_long_or_none_ends_the_connection(sent):
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(sent)
            async with asyncio.timeout(60):
                assert await reader.read() == b""
        except ConnectionError:
            pass  # it was cut off while it still sent
        finally:
            writer.close()


async def test_callers_are_bounded():
    """The last ones are turned away, and nobody else notices."""
    async with serving() as server:
        silent = [
            await asyncio.open_connection("127.0.0.1", server.port)
            for _ in range(LIMITS.connections + 1)
        ]
        async with asyncio.timeout(60):
            closed = [asyncio.create_task(reader.read()) for reader, _ in silent]
            done, pending = await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        for task in pending:
            task.cancel()
        for _, writer in silent:
            writer.close()
