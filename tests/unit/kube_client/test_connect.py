"""The way to a server: configurations that cannot be used, and HTTP that breaks."""

import asyncio
import base64
import gc
import json
import ssl
import sys
import time
from asyncio import sslproto
from contextlib import asynccontextmanager, suppress

import pytest

from kube_base.errors import Refused, Unavailable
from kube_client.connect import by_line
from kube_client.watching import Cut
from kube_rdma_lab.pki import Authority
from tests.kit.api_server import QUICK, TRIAL, Told
from tests.unit.kube_client.trial import connect

OBJECT = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": {"size": 1}}
LIST = {"metadata": {"resourceVersion": "1"}, "items": []}


def answer(document, status=200, content_type="application/json"):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = f"HTTP/1.1 {status} X", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"
    return "\r\n".join([*head, "", ""]).encode() + body


class Server:
    """Answers every request with the next of `answers`, bytes as they are, and hangs up."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.heads = []  # of the requests

    @asynccontextmanager
    async def running(self, folder, **user):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            yield kubeconfig(folder, f"http://127.0.0.1:{port}", user)

    async def _serve(self, reader, writer):
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(self.answers.pop(0))
        await writer.drain()
        writer.close()


def kubeconfig(folder, url, user, **cluster):
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


async def test_requests_are_ours(tmp_path):
    """The path, and who asks."""
    server = Server(answer(OBJECT))
    async with server.running(tmp_path) as config, connect(config) as cluster:
        assert (await cluster.get(TRIAL, "a")).uid == "u"
    (head,) = server.heads
    assert head.startswith("GET /apis/contract.kube-rdma.io/v1/trials/a HTTP/1.1\r\n")
    assert "User-Agent: trial/1.0\r\n" in head


async def test_the_address_that_the_server_is_spoken_with_from_is_known(tmp_path):
    """Once there was a connection."""
    server = Server(answer(OBJECT))
    async with server.running(tmp_path) as config, connect(config) as cluster:
        assert cluster.local_address() is None
        await cluster.get(TRIAL, "a")
        assert cluster.local_address() == "127.0.0.1"


async def test_a_rotated_token_is_read_again(tmp_path):
    """When the old one is no longer accepted, the file is read and the request sent anew."""
    token = tmp_path / "token"
    token.write_text("old")
    server = Server(answer(OBJECT), answer({"code": 401}, 401), answer(OBJECT))
    async with server.running(tmp_path, tokenFile=str(token)) as config, connect(config) as cluster:
        await cluster.get(TRIAL, "a")
        token.write_text("new")
        await cluster.get(TRIAL, "a")
    sent = [head.split("Bearer ")[1].split("\r")[0] for head in server.heads]
    assert sent == ["old", "old", "new"]


async def test_credentials_that_nobody_accepts(tmp_path):
    server = Server(answer({"code": 401}, 401))
    async with server.running(tmp_path) as config, connect(config) as cluster:
        with pytest.raises(Refused, match="does not accept trial's credentials"):
            await cluster.get(TRIAL, "a")


@pytest.mark.parametrize(
    "what",
    [
        b"",
        b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\nshort",
        b"nonsense\r\n\r\n",
        answer(b"<html>sign in</html>", 200, "text/html"),
        answer(b"<html>oops</html>", 503, "text/html"),
        answer(b"[]"),
        answer(b"{"),
    ],
)
async def test_what_is_no_answer(tmp_path, what):
    """Closed, cut off, or given by something else: Unavailable, in one sentence, no contact."""
    async with Server(what).running(tmp_path) as config, connect(config) as cluster:
        with pytest.raises(Unavailable, match=r"\.$") as caught:
            await cluster.get(TRIAL, "a")
        assert "\n" not in str(caught.value)


async def test_nobody_listens(tmp_path):
    async with Server().running(tmp_path) as config:
        pass
    async with connect(config) as cluster:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1 does not answer to get trials a"):
            await cluster.get(TRIAL, "a")


async def test_a_stream_that_breaks_is_a_cut(tmp_path):
    """In the middle of a line."""
    broken = (
        b'HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"type":'
    )
    server = Server(answer(LIST), broken, answer(LIST), answer({"code": 403, "message": "x"}, 403))
    async with (
        server.running(tmp_path) as config,
        connect(config, pace=QUICK) as cluster,
        Told(cluster) as told,
    ):
        assert await told.sync() == []
        assert isinstance(await told.next(), Cut)
        assert await told.sync() == []
        assert "forbids" in (await told.next()).why


class Keeping:
    """Answers every request on a connection that it keeps; with TLS if there is a context."""

    def __init__(self, tls=None):
        self.tls = tls
        self.heads = []
        self.peers = []  # the certificates that were shown, one for each connection
        self.writers = []

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        async with server:
            yield server.sockets[0].getsockname()[1]
            for writer in self.writers:
                writer.transport.abort()

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        self.peers.append(writer.get_extra_info("peercert"))
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(answer(OBJECT))


async def test_a_connection_is_kept(tmp_path):
    """And replaced by another one when the server closed it."""
    server = Keeping()
    async with server.running() as port:
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{port}", {})
        async with connect(config) as cluster:
            for _ in range(3):
                await cluster.get(TRIAL, "a")
            assert len(server.writers) == 1
            server.writers[0].close()
            await server.writers[0].wait_closed()
            await cluster.get(TRIAL, "a")
            await asyncio.gather(*(cluster.get(TRIAL, "a") for _ in range(3)))
    assert 2 <= len(server.writers) <= 4


AUTHORITY, STRANGER = Authority("the cluster's"), Authority("a stranger's")


def serving(folder, host="127.0.0.1", *, clients=None):
    """The TLS of a server with a certificate for `host`, which may want one of its clients."""
    AUTHORITY.issue("server", hosts=(host,)).write(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.certificate.decode())
    return context


def b64(data):
    return base64.b64encode(data).decode()


TRUST = {"certificate-authority-data": b64(AUTHORITY.certificate)}


@pytest.mark.parametrize(
    ("host", "cluster"),
    [
        ("127.0.0.1", TRUST),
        ("127.0.0.1", {"certificate-authority": "ca.crt"}),
        ("api.example", {**TRUST, "tls-server-name": "api.example"}),
        ("api.example", {"insecure-skip-tls-verify": True}),
    ],
)
async def test_a_server_that_is_trusted(tmp_path, host, cluster):
    """By its authority and the name in its certificate, or blindly."""
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.certificate)
    async with Keeping(serving(tmp_path, host)).running() as port:
        config = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", {}, **cluster)
        async with connect(config) as client:
            assert (await client.get(TRIAL, "a")).uid == "u"


async def test_a_tls_connection_holds_no_more_than_two_records(tmp_path):
    """An agent has eight of them for its watches; asyncio would give 256 KiB to each."""
    async with Keeping(serving(tmp_path, "127.0.0.1")).running() as port:
        config = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", {}, **TRUST)
        async with connect(config) as client:
            await client.get(TRIAL, "a")
            held = [one for one in gc.get_objects() if isinstance(one, sslproto.SSLProtocol)]
            assert {len(vars(one)["_ssl_buffer"]) for one in held} == {2 * 16384}


@pytest.mark.parametrize(
    ("host", "authority"), [("127.0.0.1", STRANGER), ("api.example", AUTHORITY)]
)
async def test_a_server_that_is_not_trusted(tmp_path, host, authority):
    """Of another authority, or with another name."""
    async with Keeping(serving(tmp_path, host)).running() as port:
        trust = {"certificate-authority-data": b64(authority.certificate)}
        config = kubeconfig(tmp_path, f"https://127.0.0.1:{port}", {"token": "s3cr3t"}, **trust)
        async with connect(config) as client:
            with pytest.raises(Unavailable, match="certificate is not to be trusted") as caught:
                await client.get(TRIAL, "a")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("inline", [True, False])
async def test_a_clients_certificate(tmp_path, inline):
    """Embedded, or in files, which are read anew for a new connection."""
    server = Keeping(serving(tmp_path, clients=AUTHORITY))
    pair = AUTHORITY.issue("first")
    pair.write(tmp_path, "client")
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    data = {"client-certificate-data": b64(pair.certificate), "client-key-data": b64(pair.key)}
    async with server.running() as port:
        url = f"https://127.0.0.1:{port}"
        config = kubeconfig(tmp_path, url, data if inline else files, **TRUST)
        async with connect(config) as client:
            await client.get(TRIAL, "a")
            AUTHORITY.issue("second").write(tmp_path, "client")
            server.writers[0].transport.abort()
            await asyncio.sleep(0)
            await client.get(TRIAL, "a")
    names = [dict(part[0] for part in peer["subject"])["commonName"] for peer in server.peers]
    assert names == ["first", "first" if inline else "second"]


PLUGIN = """
import json, pathlib, sys
status = json.loads(pathlib.Path(sys.argv[1]).read_text())
version = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


def with_plugin(folder):
    (folder / "login").write_text(PLUGIN)
    args = [str(folder / "login"), str(folder / "status")]
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": args}}


async def test_a_plugins_certificate_is_shown(tmp_path):
    """Another one is shown on another connection."""
    server = Keeping(serving(tmp_path, clients=AUTHORITY))

    def status(name, **more):
        pair = AUTHORITY.issue(name)
        parts = {
            "clientCertificateData": pair.certificate.decode(),
            "clientKeyData": pair.key.decode(),
        }
        (tmp_path / "status").write_text(json.dumps({**parts, **more}))

    status("first", expirationTimestamp="2001-01-01T00:00:00Z")
    async with server.running() as port:
        url = f"https://127.0.0.1:{port}"
        config = kubeconfig(tmp_path, url, with_plugin(tmp_path), **TRUST)
        async with connect(config) as client:
            await client.get(TRIAL, "a")
            status("second")
            await client.get(TRIAL, "a")
            await client.get(TRIAL, "a")
    names = [dict(part[0] for part in peer["subject"])["commonName"] for peer in server.peers]
    assert names == ["first", "second"]


async def test_a_plugin_is_asked_again_for_what_is_refused(tmp_path):
    """Once for each request: a plugin that has nothing better is told so."""
    status = tmp_path / "status"
    status.write_text('{"token": "old"}')
    refused = answer({"code": 401}, 401)
    server = Server(answer(OBJECT), refused, answer(OBJECT), refused, refused)
    async with (
        server.running(tmp_path, **with_plugin(tmp_path)) as config,
        connect(config) as client,
    ):
        await client.get(TRIAL, "a")
        status.write_text('{"token": "new"}')
        await client.get(TRIAL, "a")
        with pytest.raises(Refused, match="does not accept trial's credentials"):
            await client.get(TRIAL, "a")
    sent = [head.split("Bearer ")[1].split("\r")[0] for head in server.heads]
    assert sent == ["old", "old", "new", "new", "new"]


@pytest.mark.parametrize(
    ("user", "cluster", "what"),
    [
        ({}, {"certificate-authority": "none"}, "cannot read the file of certificate-authority"),
        ({}, {"certificate-authority-data": "%"}, "certificate-authority-data is not base64"),
        ({}, {"certificate-authority-data": b64(b"x")}, "holds no certificate in PEM"),
        (
            {"client-certificate-data": b64(b"x"), "client-key-data": b64(b"y")},
            TRUST,
            "are not PEM",
        ),
    ],
)
async def test_certificates_that_cannot_be_used(tmp_path, user, cluster, what):
    """Are told when the client connects."""
    config = kubeconfig(tmp_path, "https://127.0.0.1:1", user, **cluster)
    with pytest.raises(Refused, match=what) as caught:
        async with connect(config):
            pass
    assert str(config) in str(caught.value)


async def relay(reader, writer):
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_proxy_is_asked_for_a_tunnel(tmp_path, secure):
    """It sees the server's name and its own credentials, and none for the server."""
    heads, ended = [], asyncio.Event()

    async def serve(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        far = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(relay(reader, far[1]), relay(far[0], writer))
        await asyncio.gather(
            *(end.wait_closed() for end in (writer, far[1])), return_exceptions=True
        )
        ended.set()

    server = Keeping(serving(tmp_path, "api.example") if secure else None)
    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server.running() as port, proxy:
        place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        config = kubeconfig(
            tmp_path,
            f"http{'s' if secure else ''}://api.example:6443",
            {"token": "s3cr3t"},
            **(TRUST if secure else {}),
            **{"proxy-url": f"http://me:it@{place}"},
        )
        async with connect(config) as client:
            assert (await client.get(TRIAL, "a")).uid == "u"
        await ended.wait()
    (head,) = heads
    assert head.startswith("CONNECT api.example:6443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6aXQ=" in head
    assert "s3cr3t" not in head
    assert "Bearer s3cr3t" in server.heads[0]


async def test_a_proxy_that_makes_no_tunnel(tmp_path):
    async with Server(answer({}, 407)).running(tmp_path) as config:
        url = json.loads(config.read_text())["clusters"][0]["cluster"]["server"]
        kubeconfig(tmp_path, "https://api.example", {}, **TRUST, **{"proxy-url": url})
        async with connect(config) as client:
            with pytest.raises(Unavailable, match=r"the proxy makes no tunnel \(407\)"):
                await client.get(TRIAL, "a")


async def test_a_server_behind_a_path(tmp_path):
    """As some managers of clusters have them."""
    server = Keeping()
    async with server.running() as port:
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{port}/k8s/clusters/c-1/", {})
        async with connect(config) as client:
            await client.get(TRIAL, "a")
    assert server.heads[0].startswith("GET /k8s/clusters/c-1/apis/contract.kube-rdma.io/")


async def test_a_long_line_costs_what_short_ones_do():
    """An object of a watch is a line, up to a megabyte: it is put together once, at its end."""
    seconds = {}
    for end in (b"\n", b""):
        begun = time.process_time()
        lines = [line async for line in by_line(each(b"x" * 4_096 + end for _ in range(2_000)))]
        seconds[end] = time.process_time() - begun
        assert len(lines) == (2_000 if end else 0)
    assert seconds[b""] < 5 * seconds[b"\n"] + 0.01


async def test_lines_are_those_of_the_whole_text():
    text = b"a\n\nbc\nd\ne"
    for size in range(1, len(text)):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert [line async for line in by_line(each(parts))] == [b"a", b"", b"bc", b"d"]


async def each(parts):
    for part in parts:
        yield part
