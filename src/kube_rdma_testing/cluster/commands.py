"""Commands in the pods of an API server in memory: channels of exec, as a kubelet has.

A test gives the program; whoever asks for a command gets a Websocket to one run of it. As at a real
API server, stdin cannot be closed in v4 of the protocol.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from kube_client.pod_commands import CLOSE, ERROR, STDERR, STDIN, STDOUT, V5
from kube_client.wire import ApiRequest
from kube_rdma_testing.cluster.store import Refusal

Program: TypeAlias = "Callable[[PodCommand], Awaitable[int]]"
"""A function that runs one command and returns its exit code."""


class PodCommand:
    """A command that runs in a fake pod: its request, and its stdin, stdout and stderr."""

    def __init__(self, request: ApiRequest, protocol: str) -> None:
        query = request.query
        self.namespace, self.pod = request.namespace, request.name
        self.argv = [word for key, word in query if key == "command"]
        self.container = dict(query).get("container", "")  # "": the pod's first
        self.protocol = protocol
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue()
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read_until(self, end: str) -> str:
        """Return stdin up to and with the line `end`, or all of it if there is none."""
        text = ""
        while end not in text.splitlines():
            piece = await self._stdin.get()
            if not piece:
                break
            text += piece.decode()
        return text

    def print(self, text: str) -> None:
        """Write a line to the client as the command's stdout."""
        self._out.put_nowait(bytes((STDOUT,)) + f"{text}\n".encode())

    def complain(self, text: str) -> None:
        """Write a line to the client as the command's stderr."""
        self._out.put_nowait(bytes((STDERR,)) + f"{text}\n".encode())

    async def send(self, message: bytes) -> None:
        """Handle a message from the client: input for stdin or, in v5, the end of stdin."""
        if message[0] == STDIN and message[1:]:
            self._stdin.put_nowait(message[1:])
        elif message[0] == CLOSE and self.protocol == V5:
            self._stdin.put_nowait(b"")

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages for the client, until the command has ended."""
        while (message := await self._out.get()) is not None:
            yield message

    def end(self, code: int) -> None:
        """Send the exit code as the last message, after which the server closes the connection."""
        status: dict[str, object] = {"status": "Success"}
        if code:
            cause = {"reason": "ExitCode", "message": str(code)}
            status = {
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: exit status {code}",
                "details": {"causes": [cause]},
            }
        self._out.put_nowait(bytes((ERROR,)) + json.dumps(status).encode())
        self._out.put_nowait(None)


@asynccontextmanager
async def running(
    program: Program, request: ApiRequest, protocols: Sequence[str]
) -> AsyncIterator[PodCommand]:
    """Run a command while the context is open; raise Refusal if its request names no stream."""
    if not any(key in {"stdin", "stdout", "stderr"} for key, _ in request.query):
        message = "you must specify at least 1 of stdin, stdout, stderr"
        raise Refusal(400, "BadRequest", message)
    command = PodCommand(request, protocols[0])

    async def run() -> None:
        command.end(await program(command))

    task = asyncio.create_task(run())
    try:
        yield command
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
