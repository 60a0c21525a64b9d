"""Runs commands in pods: the subresource exec, over a WebSocket.

Every message of the protocol begins with a byte, its channel; the last one is a Status in JSON. The
protocols are v4.channel.k8s.io, and v5, which can also close a channel (apimachinery remotecommand;
KEP-4006). A client that disconnects leaves the command running: it has to end by itself, or when
its stdin ends. The caller limits how long it may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from kube_base.errors import Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.plain_text import plain
from kube_client.errors import Status
from kube_client.objects import Cluster
from kube_client.wire import ApiRequest, Websocket

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
MOST_OUTPUT = 1 << 16  # bytes of one command by default; perftest's longest table has 3 kB
END_SECONDS = 5.0  # that a command of `serving` may take to end when it is asked to
_SHOWN = 300  # characters of what a program printed that a person gets to see


class CommandOutput:
    """The output of a command in a pod so far, by channel, and its exit status.

    `most` is how many bytes a channel may have.
    """

    def __init__(self, most: int = MOST_OUTPUT) -> None:
        self._most = most
        self.printed = {STDOUT: bytearray(), STDERR: bytearray()}
        self.outcome: Status | None = None

    def take(self, message: bytes) -> None:
        """Store one message of the protocol; raise Unavailable for a bad one or too much output."""
        channel, data = message[0] if message else CLOSE, message[1:]
        if channel == ERROR and data:
            try:
                self.outcome = decoded(data, Status)
            except Undecodable as error:
                raise Unavailable(
                    f"The API server garbles how a command ended: {error.why}."
                ) from error
        elif channel in self.printed:
            self.printed[channel] += data
            if len(self.printed[channel]) > self._most:
                raise Unavailable(f"A command in a pod prints more than {self._most} bytes.")

    def text(self, channel: int) -> str:
        """Return the output of a channel, such as stdout, as text."""
        return self.printed[channel].decode(errors="replace")

    def check(self, title: str) -> None:
        """Raise Unavailable, with the command's own words, unless the command succeeded."""
        if self.outcome is None:
            raise Unavailable(f"{title} broke off before it ended.")
        if self.outcome.status == "Success":
            return
        causes = (self.outcome.details.causes if self.outcome.details else None) or ()
        codes = [cause.message for cause in causes if cause.reason == "ExitCode"]
        if not codes:
            raise Unavailable(
                f"{title} did not run: {self.outcome.message or 'no reason is given'}"
            )
        shown = self.text(STDERR) or self.text(STDOUT)
        words = plain(" ".join(shown.split())[-_SHOWN:]) or "it printed nothing"
        raise Unavailable(f"{title} ended with {codes[0]}: {words}")


class AwaitedLine:
    """A detector for a line in a command's output; it keeps only the unfinished line."""

    def __init__(self, line: str) -> None:
        self._line = line.encode()
        self._rest = b""
        self.met = False

    @property
    def kept(self) -> int:
        """Return how many bytes of the unfinished line are kept.

        They are at most one more than the awaited line has.
        """
        return len(self._rest)

    def add(self, data: bytes) -> None:
        """Compare further output of the command with the line; set `met` once the line has come."""
        first, *others = data.split(b"\n")
        for piece in (first, *others[:-1]) if others else ():
            self._keep(piece)
            self.met = self.met or self._rest == self._line
            self._rest = b""
        self._keep(others[-1] if others else first)

    def _keep(self, piece: bytes) -> None:
        """Add a piece to the unfinished line, which is cut when longer than the awaited line."""
        self._rest += piece[: len(self._line) + 1 - len(self._rest)]


class PodCommands:
    """Commands in containers of pods, with the rights of a cluster's client.

    Without the name of a container, the pod must have only one (API server, validateContainer).
    `most` is how many bytes a command may print to stdout, and to stderr. A command of `serving`
    that is asked to end is awaited for at most `end_seconds`.
    """

    def __init__(
        self,
        cluster: Cluster,
        protocols: Sequence[str] = (V5, V4),
        *,
        most: int = MOST_OUTPUT,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self._end_seconds = end_seconds
        self._cluster = cluster
        self._protocols = protocols
        self._most = most

    async def run(
        self,
        namespace: str,
        pod: str,
        argv: Sequence[str],
        *,
        stdin: str = "",
        container: str = "",
    ) -> str:
        """Return what a command prints to stdout; raise Unavailable when it fails.

        Before v5 its stdin has no end: a reader has to know by itself when it is done.
        """
        output = CommandOutput(self._most)
        request = _request(namespace, pod, argv, stdin=bool(stdin), container=container)
        async with self._cluster.websocket(request, self._protocols) as socket:
            if stdin:
                await _feed(socket, stdin.encode())
            async for message in socket.messages():
                output.take(message)
                if output.outcome:
                    break
        output.check(_title(pod, argv))
        return output.text(STDOUT)

    @asynccontextmanager
    async def serving(
        self, namespace: str, pod: str, argv: Sequence[str], *, until: str
    ) -> AsyncIterator[None]:
        """Start a command, wait for its line `until`, and keep it running for the block.

        With v5 its stdin ends with the connection, however that ends. With v4 a read of stdin does
        not end there. So with v4 the command gets an empty line at the end of the block, which
        waits up to `end_seconds` for the command's end. Raise Unavailable when the command ends
        without the line `until`.
        """
        output, line = CommandOutput(self._most), AwaitedLine(until)
        request = _request(namespace, pod, argv, stdin=True)
        async with self._cluster.websocket(request, self._protocols) as socket:
            messages = socket.messages()
            async for message in messages:
                output.take(message)
                if message[:1] == bytes((STDOUT,)):
                    line.add(message[1:])
                if line.met or output.outcome:
                    break
            if not line.met:
                title = _title(pod, argv)
                output.check(title)
                raise Unavailable(f"{title} ended before it was ready.")
            rest = asyncio.create_task(_read(messages))
            try:
                yield
            finally:
                if socket.protocol == V4 and not rest.done():
                    await self._asked_to_end(socket, rest)
                rest.cancel()
                with suppress(asyncio.CancelledError, Unavailable):
                    await rest

    async def _asked_to_end(self, socket: Websocket, rest: asyncio.Task[None]) -> None:
        """Send an empty line to end the command, and wait for its end at most `end_seconds`."""
        with suppress(Unavailable, TimeoutError):
            await _feed(socket, b"\n")
            async with asyncio.timeout(self._end_seconds):
                await rest


async def _feed(socket: Websocket, data: bytes) -> None:
    await socket.send(bytes((STDIN,)) + data)
    if socket.protocol == V5:
        await socket.send(bytes((CLOSE, STDIN)))


async def _read(messages: AsyncIterator[bytes]) -> None:
    """Read and drop a command's output, as the command would else block."""
    async for _ in messages:
        pass


def _request(
    namespace: str, pod: str, argv: Sequence[str], *, stdin: bool, container: str = ""
) -> ApiRequest:
    query = [("command", word) for word in argv]
    query += [("container", container)] if container else []
    query += [("stdin", "true")] if stdin else []
    query += [("stdout", "true"), ("stderr", "true")]
    return ApiRequest("get", "", "v1", "pods", namespace, pod, "exec", tuple(query))


def _title(pod: str, argv: Sequence[str]) -> str:
    return f"{argv[0]} in pod {pod}"
