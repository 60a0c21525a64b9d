"""The way to a server: configurations that cannot be used, and HTTP that breaks."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.watching import Cut
from kube_rdma.model.errors import Refused, Unavailable

from .conftest import QUICK, TRIAL, Told

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


def kubeconfig(folder, url, user):
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
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
    assert "kube-rdma/" in head


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
        with pytest.raises(Refused, match="does not accept kube-rdma's credentials"):
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
        assert cluster.last_contact() is None


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


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "not found"),
        ("a: [", "expected the node content"),
        ("[]", "not a complete kubeconfig"),
        ("{}", "not a complete kubeconfig ('clusters')"),
        ('{"clusters": [], "contexts": []}', "No current context"),
        ('{"clusters": [], "contexts": [], "current-context": "x"}', "'x' not found"),
    ],
)
async def test_a_configuration_that_cannot_be_used(tmp_path, text, what):
    """The sentence names the file and what is wrong."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Refused, match="Name a kubeconfig") as caught:
        async with connect(path):
            pass
    assert what in str(caught.value)
    assert str(path) in str(caught.value)
