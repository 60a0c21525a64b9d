"""The webhook's HTTPS with a real TLS client: answers, limits, renewed certificates."""

import asyncio
import http.client
import socket
import ssl
import threading
from contextlib import asynccontextmanager, suppress

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.http_server import MOST_PIECES, Body, HttpLimits
from kube_rdma.adapters.webhook.identity import ServerIdentity
from kube_rdma.adapters.webhook.peer_turns import PeerTurns
from kube_rdma.adapters.webhook.server import WebhookLimits, WebhookServer
from kube_rdma_lab.pki import Authority
from kube_rdma_testing.recording import recorded

HOST = "127.0.0.1"
MOST = 1000


def refuse(body):
    raise Refused("no form", remedy="Send another")


ANSWERS = {"/echo": lambda body: body[::-1], "/refuse": refuse}


@pytest.fixture
def authority():
    return Authority("webhook")


@pytest.fixture
def folder(tmp_path, authority):
    authority.issue(HOST, hosts=(HOST,)).write(tmp_path, "tls")
    return tmp_path


@asynccontextmanager
async def serving(folder, unusable=lambda text: None, limits=None, answers=ANSWERS):
    server = WebhookServer(ServerIdentity(folder, unusable), answers, MOST, limits)
    await server.listen("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


def trusting(authority):
    return ssl.create_default_context(cadata=authority.certificate.decode())


class Client:
    """One connection, which stays open between requests."""

    def __init__(self, server, authority):
        context = trusting(authority)
        self._connection = http.client.HTTPSConnection(
            HOST, server.port, context=context, timeout=60
        )

    async def ask(self, method, path, body=b""):
        """The answer's status and body."""
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method, path, body):
        self._connection.request(method, path, body)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    async def shown(self):
        """The number of the certificate that the server shows."""

        def look():
            self._connection.connect()
            return self._connection.sock.getpeercert()["serialNumber"]

        return await asyncio.to_thread(look)

    def close(self):
        self._connection.close()


@pytest.fixture
def client(authority):
    """Connect to a server; every connection is closed at the end."""
    clients = []

    def connect(server):
        clients.append(Client(server, authority))
        return clients[-1]

    yield connect
    for one in clients:
        one.close()


async def test_requests_on_one_connection_are_answered(folder, client):
    async with serving(folder) as server:
        asking = client(server)
        for body in (b"abc", b"", b"x" * MOST):
            assert await asking.ask("POST", "/echo?timeout=10s", body) == (200, body[::-1])
        assert await asking.ask("GET", "/healthz") == (200, b"ok")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/other", b"", 404),
        ("GET", "/echo", b"", 405),
        ("POST", "/refuse", b"", 400),
        ("POST", "/echo", b"x" * (MOST + 1), 413),
    ],
)
async def test_what_is_no_question_is_told_so(folder, client, method, path, body, status):
    """And the next one is answered."""
    async with serving(folder) as server:
        code, text = await client(server).ask(method, path, body)
        assert code == status
        assert text
        assert await client(server).ask("POST", "/echo", b"ab") == (200, b"ba")


async def test_garbage_ends_its_connection_alone(folder, client, authority):
    async with serving(folder) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=trusting(authority), server_hostname=HOST
        )
        writer.write(b"\x00 not HTTP\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert await client(server).ask("POST", "/echo", b"ab") == (200, b"ba")


async def test_a_renewed_certificate_is_shown_from_then_on(folder, client, authority):
    async with serving(folder) as server:
        first = await client(server).shown()
        assert await client(server).shown() == first
        authority.issue(HOST, hosts=(HOST,)).write(folder, "tls")
        assert await client(server).shown() != first


async def test_half_of_an_exchange_keeps_the_old_certificate(folder, client, authority):
    """Until the pair belongs together again; meanwhile a sentence says so."""
    heard = []
    async with serving(folder, heard.append) as server:
        first = await client(server).shown()
        pair = authority.issue(HOST, hosts=(HOST,))
        (folder / "tls.crt").write_bytes(pair.certificate)
        assert await client(server).shown() == first
        assert len(heard) == 1
        assert "Put a pair that belongs together there" in heard[0]
        (folder / "tls.key").write_bytes(pair.key)
        assert await client(server).shown() != first
        assert len(heard) == 1


def test_a_folder_without_a_pair_is_refused(tmp_path):
    with pytest.raises(Refused) as caught:
        ServerIdentity(tmp_path, print)
    assert caught.value.where == str(tmp_path)


async def test_a_port_that_is_taken_is_refused(folder):
    async with serving(folder) as server:
        second = WebhookServer(ServerIdentity(folder, print), ANSWERS, MOST)
        with pytest.raises(Refused):
            await second.listen("127.0.0.1", server.port)


class Counted(bytearray):
    """A piece that counts how often its bytes are asked for."""

    looks = 0

    def __len__(self):
        Counted.looks += 1
        return super().__len__()


def test_the_work_for_a_body_grows_with_its_pieces_and_no_faster():
    """Each piece is measured once, however many came before; and they have an end."""
    Counted.looks = 0
    body = Body(10 * MOST_PIECES)
    assert all(body.take(Counted(b"x")) for _ in range(MOST_PIECES))
    assert Counted.looks == MOST_PIECES
    assert body.whole() == b"x" * MOST_PIECES
    assert not body.take(b"x")
    assert body.whole() == b""
    assert not Body(9).take(b"x" * 10)


async def test_a_body_of_many_pieces_is_refused_and_others_are_served(folder, authority):
    """A client that sends bytes one by one is told so, long before the largest body."""
    many = (b"x" for _ in range(10 * MOST_PIECES))
    async with serving(folder, answers={"/echo": lambda body: body}) as server:
        client, other = Client(server, authority), Client(server, authority)
        server._most_bytes = 1 << 20
        with suppress(OSError):  # it goes on sending to whoever has hung up
            status, _ = await client.ask("POST", "/echo", many)
            assert status == 413
        assert await other.ask("POST", "/echo", b"ab") == (200, b"ab")
        client.close()
        other.close()


async def test_a_body_that_drips_is_hung_up_on(folder, authority):
    """Its time begins with its head, and does not begin anew with each byte."""
    limits = WebhookLimits(http=HttpLimits(connections=256, seconds=0.05))
    async with serving(folder, limits=limits) as server:
        context = trusting(authority)
        reader, writer = await asyncio.open_connection(HOST, server.port, ssl=context)
        writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
        assert await reader.read() == b""
        writer.close()


async def test_few_bodies_of_one_peer_are_read_at_once():
    """The next one waits, another peer's does not, and nobody is remembered afterwards."""
    turns, entered = PeerTurns(2, 3), []

    async def body(peer, gate):
        async with turns.turn(peer):
            entered.append(peer)
            await gate.wait()

    gate = asyncio.Event()
    tasks = [asyncio.create_task(body(peer, gate)) for peer in ("a", "a", "a", "b", "b")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert entered == ["a", "a", "b"]
    gate.set()
    await asyncio.gather(*tasks)
    assert sorted(entered) == ["a", "a", "a", "b", "b"]
    assert turns._peers == {}


def turned_away(server, authority):
    """A client that reads until the server ends, and does not say goodbye itself."""
    client = trusting(authority).wrap_socket(
        socket.create_connection((HOST, server.port), timeout=60), server_hostname=HOST
    )
    with suppress(ConnectionError):
        assert client.recv(1) == b""
    return client


async def test_one_connection_too_many_is_turned_away_and_no_other(folder, client, authority):
    """Whoever was there before is answered as before, and when one has gone the next is taken."""
    limits = WebhookLimits(http=HttpLimits(connections=2, seconds=60.0, goodbye=60.0))
    async with serving(folder, limits=limits) as server:
        first, second = client(server), client(server)
        both = [await one.ask("POST", "/echo", b"ab") for one in (first, second)]
        third = await asyncio.to_thread(turned_away, server, authority)
        both += [await one.ask("POST", "/echo", b"ab") for one in (first, second) * 2]
        assert set(both) == {(200, b"ba")}
        assert len(server._open) == 2
        first.close()
        while len(server._open) == 2:  # noqa: ASYNC110  it is the server's own list
            await asyncio.sleep(0)
        assert await client(server).ask("POST", "/echo", b"ab") == (200, b"ba")
        third.close()


async def test_a_fault_of_ours_ends_one_connection_alone(folder, authority):
    """And answers are made beside the loop, which goes on."""
    threads = []

    def fail(body):
        threads.append(threading.current_thread())
        raise RecursionError("nobody thought of it")

    with recorded() as log:
        async with serving(folder, answers={**ANSWERS, "/fail": fail}) as server:
            client, other = Client(server, authority), Client(server, authority)
            with pytest.raises((http.client.HTTPException, OSError)):
                await client.ask("POST", "/fail", b"x")
            assert await other.ask("POST", "/echo", b"ab") == (200, b"ba")
            client.close()
            other.close()
    assert threads != [threading.main_thread()]
    (line,) = log.of("part of the program failed")
    assert line["part"] == "admission connection"
