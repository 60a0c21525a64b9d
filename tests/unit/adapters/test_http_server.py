"""The HTTP server with a real HTTP client: answers, refusals, limits."""

import asyncio
import gzip
import http.client
import resource
import socket
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters import http_server
from kube_rdma.adapters.http_server import LIMITS, HttpServer

KIND = "text/plain; version=0.0.4"


async def metrics():
    return b"a 1\n"


@asynccontextmanager
async def serving(answer=metrics):
    server = HttpServer({"/metrics": answer}, "--metrics-address", KIND)
    await server.listen("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


def asked(server, *requests):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
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
        with pytest.raises(Refused, match=rf"cannot listen on 127.0.0.1:{server.port}") as refused:
            await HttpServer({}, "--health-address").listen("127.0.0.1", server.port)
    assert "--health-address" in str(refused.value)


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
            assert await reader.read() == b""
        except ConnectionError:
            pass  # it was cut off while it still sent
        finally:
            writer.close()


async def test_a_head_has_the_headers_of_the_answer_and_no_body():
    async with serving() as server:
        answers = await ask(server, ("HEAD", "/metrics"), ("GET", "/metrics"))
    assert answers == [(200, KIND, b""), (200, KIND, b"a 1\n")]


async def test_who_waits_for_100_continue_before_its_body_gets_it():
    head = b"POST /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    async with serving() as server, raw(server) as (reader, writer):
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"ab")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    ("codings", "packed"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0, identity", False),
        ("x-gzip", False),
        ("identity", False),
    ],
)
async def test_a_long_answer_is_compressed_for_who_takes_gzip(codings, packed):
    text = b'rdma_port_data_bytes_total{device="mlx5_0"} 0\n' * 10_000

    async def long():
        return text

    def get(server):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/metrics", headers={"Accept-Encoding": codings})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.headers["content-encoding"], body

    async with serving(long) as server:
        coding, body = await asyncio.to_thread(get, server)
    assert coding == ("gzip" if packed else None)
    assert (gzip.decompress(body) if packed else body) == text
    assert len(body) < len(text) / 10 or not packed


@asynccontextmanager
async def raw(server, host="127.0.0.1"):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(host, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def scraped(server, host):
    async with raw(server, host) as (reader, writer):
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
        with suppress(ConnectionError):
            return (await reader.read(200)).startswith(b"HTTP/1.1 200 ")
    return False


async def silent(stack, server, host, count):
    loop = asyncio.get_running_loop()
    made = [stack.enter_context(socket.socket()) for _ in range(count)]
    for one in made:
        one.setblocking(False)
        one.bind((host, 0))
        await loop.sock_connect(one, ("127.0.0.1", server.port))
    return made


async def test_thousands_of_silent_connections_of_one_address_cost_eight_and_others_are_served():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 5000), hard))
    try:
        async with serving() as server:
            with ExitStack() as stack:
                before = len(asyncio.all_tasks())
                await silent(stack, server, "127.0.0.1", 2000)
                assert await scraped(server, "127.0.0.2")
                assert len(server._open) <= LIMITS.one_peer + 1
                assert len(asyncio.all_tasks()) - before <= LIMITS.one_peer + 1
                assert await scraped(server, "127.0.0.1")
                assert len(server._open) <= LIMITS.one_peer + 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_an_address_asks_no_more_at_once_than_it_may():
    gate, asked = asyncio.Event(), []

    async def late():
        asked.append(1)
        await gate.wait()
        return b"a 1\n"

    async with serving(late) as server:
        waiting = [asyncio.create_task(scraped(server, "127.0.0.1")) for _ in range(8)]
        while len(asked) < LIMITS.one_peer:  # noqa: ASYNC110  the server's own doing
            await asyncio.sleep(0)
        assert not await scraped(server, "127.0.0.1")
        gate.set()
        assert all(await asyncio.gather(*waiting))


async def test_where_all_places_are_taken_a_silent_connection_goes_for_a_new_one():
    async with serving() as server, raw(server, "127.0.0.2") as (reader, writer):
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
        assert await reader.readuntil(b"a 1\n")
        with ExitStack() as stack:
            for last in range(100, 100 + LIMITS.connections // LIMITS.one_peer):
                await silent(stack, server, f"127.0.0.{last}", LIMITS.one_peer)
            for last in range(10, 20):
                assert await scraped(server, f"127.0.0.{last}")
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
        assert await reader.readuntil(b"a 1\n")


@pytest.mark.parametrize("body", [0, 9])
async def test_where_all_places_are_taken_who_has_many_loses_one(body):
    """Also where all of them ask, for a slow answer or with a body that never comes."""
    gate, asked = asyncio.Event(), []

    async def late():
        asked.append(1)
        if len(asked) <= LIMITS.connections and not body:
            await gate.wait()
        return b"a 1\n"

    head = b"GET /metrics HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % body
    async with serving(late) as server:
        with ExitStack() as stack:
            stack.callback(gate.set)
            for last in range(100, 100 + LIMITS.connections // LIMITS.one_peer):
                for one in await silent(stack, server, f"127.0.0.{last}", LIMITS.one_peer):
                    one.send(head)
            while sum(not each.waits for each in server._open) < LIMITS.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert await scraped(server, "127.0.0.9")


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\n"])
async def test_who_sends_no_head_in_time_is_cut_off(monkeypatch, sent):
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    async with serving() as server, raw(server) as (reader, writer):
        writer.write(sent)
        assert await reader.read() == b""


async def test_a_later_head_may_begin_late_and_then_has_to_come(monkeypatch):
    """Prometheus keeps its connection from scrape to scrape; who drips bytes is not Prometheus."""
    async with serving() as server, raw(server) as (reader, writer):
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
        assert await reader.readuntil(b"a 1\n")
        monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
        writer.write(b"GET /metrics")
        assert await reader.read() == b""
