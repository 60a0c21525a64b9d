"""Commands in pods over a real WebSocket on loopback: every way that output comes, and breaks."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from kube_base.errors import Refused, Unavailable
from kube_client.errors import Conflict
from kube_client.pod_commands import (
    CLOSE,
    ERROR,
    MOST_OUTPUT,
    STDERR,
    STDIN,
    STDOUT,
    V4,
    V5,
    AwaitedLine,
    PodCommands,
)
from kube_client.websocket import MOST_BYTES, accept
from tests.unit.kube_client.trial import connect

WELL = {"status": "Success"}
PLACE = ("train", "w-0", ("sh", "-c", "echo $HOME & x=1"))


def ended(code):
    cause = {"reason": "ExitCode", "message": str(code)}
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}


def refusal(status, message, name="w-0"):
    body = {"kind": "Status", "code": status, "message": message, "details": {"name": name}}
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return f"{head}\r\n\r\n".encode() + data


class ExecServer:
    """One command: `pieces` are what it sends, behind its 101, one write each.

    It chooses `protocol`; with `answer` it sends just that instead.
    """

    def __init__(self, *pieces, protocol=V5, answer=b"", hold=False):
        self.pieces, self.protocol, self.answer, self.hold = pieces, protocol, answer, hold
        self.heard, self.query, self.offer = [], [], []
        self.gone = asyncio.Event()
        self.key = ""

    @asynccontextmanager
    async def running(self, folder):
        """It, and a client of it."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            document = {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "namespace": "train"}}],
                "current-context": "x",
            }
            path = folder / "kubeconfig"
            path.write_text(json.dumps(document))
            async with connect(path) as cluster:
                assert cluster.namespace == "train"
                yield PodCommands(cluster, end_seconds=0)
            await self.gone.wait()

    async def _serve(self, reader, writer):
        try:
            with suppress(ConnectionError):  # the client hangs up when it likes
                await self._answer(reader, writer)
        finally:
            self.gone.set()
            writer.close()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = urlsplit(head.split()[1])
        assert target.path == "/api/v1/namespaces/train/pods/w-0/exec"
        self.query = parse_qsl(target.query)
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        assert fields["Accept"] == "*/*"
        self.offer = fields["Sec-WebSocket-Protocol"].split(", ")
        switch = (
            "HTTP/1.1 101 Switching Protocols",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Accept: {self.key or accept(fields['Sec-WebSocket-Key'].encode())}",
            f"Sec-WebSocket-Protocol: {self.protocol}",
        )
        writer.write(self.answer or "\r\n".join([*switch, "", ""]).encode())
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if not self.hold:
            writer.write_eof()
        state = Connection(ConnectionType.SERVER)
        while data := await reader.read(1 << 16):
            state.receive_data(data)
            self.heard += [event for event in state.events() if not isinstance(event, Pong)]


def frames(*messages):
    """What a server sends: messages by channel, an event as it is."""
    state = Connection(ConnectionType.SERVER)
    return b"".join(state.send(event_of(message)) for message in messages)


def event_of(message):
    match message:
        case (channel, dict(document)):
            return BytesMessage(bytes((channel,)) + json.dumps(document).encode())
        case (channel, bytes(payload)):
            return BytesMessage(bytes((channel,)) + payload)
    return message


async def output(tmp_path, server, *, stdin=""):
    async with server.running(tmp_path) as commands:
        return await commands.run(*PLACE, stdin=stdin)


async def test_words_travel_as_they_are_and_output_comes_back(tmp_path):
    server = ExecServer(frames((STDOUT, b"a\n"), (STDERR, b"w"), (STDOUT, b"b"), (ERROR, WELL)))
    assert await output(tmp_path, server) == "a\nb"
    assert [word for key, word in server.query if key == "command"] == list(PLACE[2])
    assert ("stdin", "true") not in server.query
    assert server.offer == [V5, V4]


@pytest.mark.parametrize(("protocol", "closed"), [(V5, [bytes((CLOSE, STDIN))]), (V4, [])])
async def test_stdin_is_sent_and_ends_where_the_protocol_can_say_so(tmp_path, protocol, closed):
    server = ExecServer(frames((ERROR, WELL)), protocol=protocol)
    await output(tmp_path, server, stdin="ls\n")
    sent = [bytes(event.data) for event in server.heard if isinstance(event, BytesMessage)]
    assert sent == [bytes((STDIN,)) + b"ls\n", *closed]


@given(
    st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=300)), max_size=8),
    st.lists(st.integers(1, 200), max_size=12),
    st.booleans(),
)
def test_output_is_the_same_however_it_is_cut(tmp_path_factory, parts, cuts, pings):
    """Into messages, and into pieces of TCP; between them the server may ask for signs of life."""
    messages = [message for part in parts for message in ((part,) if not pings else (part, Ping()))]
    data = frames(*messages, (ERROR, WELL), CloseConnection(1000))
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    server_output = b"".join(payload for channel, payload in parts if channel == STDOUT)

    async def run():
        server = ExecServer(*filter(None, [*pieces, data]))
        return await output(tmp_path_factory.getbasetemp(), server)

    assert asyncio.run(run()) == server_output.decode(errors="replace")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (lambda: ExecServer(frames((STDERR, b"no\nroom"), (ERROR, ended(3)))), "with 3: no room."),
        (lambda: ExecServer(frames((STDOUT, b"out"), (ERROR, ended(1)))), "ended with 1: out"),
        (lambda: ExecServer(frames((ERROR, ended(1)))), "ended with 1: it printed nothing"),
        (
            lambda: ExecServer(frames((ERROR, {"status": "Failure", "message": "no such file"}))),
            "sh in pod w-0 did not run: no such file",
        ),
        (lambda: ExecServer(frames((STDOUT, b"half"))), "closed the connection in the midst"),
        (ExecServer, "closed the connection in the midst"),
        (lambda: ExecServer(frames(CloseConnection(1000))), "broke off before it ended"),
        (
            lambda: ExecServer(frames(CloseConnection(1011, "oops"))),
            "breaks the WebSocket off: oops",
        ),
        (lambda: ExecServer(b"\xff\xff\xff\xff"), "breaks the WebSocket off"),
        (lambda: ExecServer(frames((ERROR, b"{"))), "garbles how a command ended"),
        (lambda: ExecServer(frames(*[(STDOUT, bytes(1 << 16))] * 3)), f"more than {MOST_OUTPUT}"),
        (lambda: ExecServer(frames((STDOUT, bytes(MOST_BYTES)))), "a message of more than"),
        (lambda: ExecServer(protocol="v1.channel.k8s.io"), "'v1.channel.k8s.io', not v5"),
        (lambda: ExecServer(answer=b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "HTTP 200"),
        (lambda: ExecServer(answer=refusal(500, "unable to upgrade")), "unable to upgrade"),
    ],
)
async def test_what_breaks_is_one_sentence(tmp_path, server, words):
    with pytest.raises(Unavailable) as error:
        await output(tmp_path, server())
    assert words.rstrip(".") in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_switch_to_something_else_is_no_websocket(tmp_path):
    server = ExecServer()
    server.key = "wrong"
    with pytest.raises(Unavailable, match="not a WebSocket"):
        await output(tmp_path, server)


async def test_a_refusal_is_the_server_s_own_sentence(tmp_path):
    with pytest.raises(Conflict, match='pods "w-0" not found'):
        await output(tmp_path, ExecServer(answer=refusal(404, 'pods "w-0" not found')))


@pytest.mark.parametrize(
    ("user", "role"),
    [("mia", "a role of mia"), ("system:serviceaccount:rdma:agent", "trial's role")],
)
async def test_a_missing_rule_is_that_of_whoever_asked(tmp_path, user, role):
    """A person has a role of their own, which whoever gives rights has to know."""
    forbidden = f'pods "w-0" is forbidden: User "{user}" cannot get resource "pods/exec"'
    with pytest.raises(Refused, match=f"pods/exec.*to {role}"):
        await output(tmp_path, ExecServer(answer=refusal(403, forbidden)))


async def test_a_server_is_there_when_its_line_came_and_is_left_at_the_end(tmp_path):
    server = ExecServer(frames((STDOUT, b"hel")), frames((STDOUT, b"lo\nready\nmore")), hold=True)
    async with server.running(tmp_path) as commands:
        async with commands.serving(*PLACE, until="ready"):
            assert not server.gone.is_set()
            assert ("stdin", "true") in server.query
        await server.gone.wait()


def heard(server):
    return [event.data for event in server.heard if isinstance(event, BytesMessage)]


async def test_before_v5_a_server_gets_a_line_as_its_stdin_has_no_end(tmp_path):
    server = ExecServer(frames((STDOUT, b"ready\n")), hold=True, protocol=V4)
    async with server.running(tmp_path) as commands:
        async with commands.serving(*PLACE, until="ready"):
            assert heard(server) == []
        await server.gone.wait()
    assert heard(server) == [bytes((STDIN,)) + b"\n"]


async def test_a_server_that_has_ended_gets_no_line(tmp_path):
    last = frames((STDOUT, b"ready\n"), (ERROR, WELL), CloseConnection(1000))
    server = ExecServer(last, hold=True, protocol=V4)
    async with server.running(tmp_path) as commands:
        async with commands.serving(*PLACE, until="ready"):
            (rest,) = (task for task in asyncio.all_tasks() if task.get_coro().__name__ == "_read")
            await rest
        await server.gone.wait()
    assert heard(server) == []


@pytest.mark.parametrize(
    ("last", "words"),
    [((ERROR, ended(2)), "ended with 2: not yet"), ((ERROR, WELL), "ended before it was ready")],
)
async def test_a_server_that_ends_without_its_line_says_why(tmp_path, last, words):
    server = ExecServer(frames((STDOUT, b"not yet"), last))
    async with server.running(tmp_path) as commands:
        with pytest.raises(Unavailable, match=words):
            await commands.serving(*PLACE, until="ready").__aenter__()


async def test_who_gives_up_leaves_nothing_behind(tmp_path):
    server = ExecServer(frames((STDOUT, b"a"), TextMessage("x")), hold=True)
    async with server.running(tmp_path) as commands:
        before = asyncio.all_tasks()
        run = asyncio.create_task(commands.run(*PLACE))
        while not server.query:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.wait((run,))
        assert run.cancelled()
        await server.gone.wait()
        assert {task for task in asyncio.all_tasks() if "_serve" not in repr(task)} <= before


@given(st.lists(st.sampled_from(["ready", "\n", "re", "ady", "x" * 50, "ready\n", "\nready"])))
def test_a_line_is_met_however_it_is_cut_and_nothing_else_is_kept(pieces):
    """One byte each or all at once: what is kept is as long as the line at most."""
    whole, bytewise = AwaitedLine("ready"), AwaitedLine("ready")
    text = "".join(pieces)
    whole.add(text.encode())
    for sign in text:
        bytewise.add(sign.encode())
        assert bytewise.kept <= len("ready") + 1
    assert whole.met == bytewise.met == ("ready" in text.split("\n")[:-1])


async def test_what_a_command_prints_moves_no_cursor(tmp_path):
    server = ExecServer(frames((STDERR, b"\x1b[2J\x1b]0;x\x07no\xc2\x9b31m"), (ERROR, ended(3))))
    with pytest.raises(Unavailable) as error:
        await output(tmp_path, server)
    assert str(error.value).isprintable()
