"""The webhook's HTTPS with a real TLS client: answers, limits, renewed certificates."""

import asyncio
import http.client
import ssl
from contextlib import asynccontextmanager

import pytest

from kube_rdma.adapters.webhook.identity import ServerIdentity
from kube_rdma.adapters.webhook.server import WebhookServer
from kube_rdma.model.errors import Refused
from kube_rdma_lab.pki import Authority

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
async def serving(folder, unusable=lambda text: None):
    server = WebhookServer(ServerIdentity(folder, unusable), ANSWERS, MOST)
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
