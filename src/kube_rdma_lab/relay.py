"""The lab's API server at an address of the host, by a relay of unchanged bytes.

The API server listens in the lab's own network namespace. `lab up` opens a socket on 127.0.0.1
before it starts the supervisor, which inherits it and relays each connection. So kubectl, k9s and
helm run on the host, in the user's own folder; TLS and its client certificates stay end to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from kube_rdma_lab.topology import API_PORT, CONTROL_PLANE_IP

HOST = "127.0.0.1"
CHUNK = 64 << 10


def listen() -> socket.socket:
    """Return a listening socket on the host's loopback, at a port that the kernel chooses."""
    return socket.create_server((HOST, 0), backlog=128)


@contextlib.asynccontextmanager
async def relaying(
    listening: socket.socket, target: tuple[str, int] = (CONTROL_PLANE_IP, API_PORT)
) -> AsyncIterator[None]:
    """Relay every connection to `target` until the context closes, which ends all of them.

    `listening` may belong to another network namespace than ours: a socket stays in its own.
    """
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_relay(reader, writer, target))
        connections.add(task)
        task.add_done_callback(connections.discard)

    async with await asyncio.start_server(accept, sock=listening):
        try:
            yield
        finally:
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: tuple[str, int]
) -> None:
    """Relay a connection in both directions until each has ended."""
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_close, writer)
        # An end without a farewell, on either side, is the end of both.
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*target)
            stack.push_async_callback(_close, far_writer)
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection to its end, and close only that direction."""
    while data := await source.read(CHUNK):
        sink.write(data)
        await sink.drain()
    sink.write_eof()
