"""Serves the whole metrics of an agent on a socket, for commands in its own pod alone.

`kube-rdma top` runs `kube-rdma top scrape` there by exec, so it needs no names of pods on an open
port. /dev/shm belongs to the agent's pod, and can be written where the container's root cannot.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.bulkhead import contained
from kube_rdma.model.metrics import ScrapedSample

SOCKET = Path("/dev/shm/kube-rdma-metrics.sock")  # noqa: S108  a second agent takes it over
READ = b"# read "  # a comment to Prometheus: the node's clock, in seconds
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


async def serve(path: Path, text: Callable[[], Awaitable[tuple[float, bytes]]]) -> None:
    """Write the metrics to each caller that has the agent's user id, until cancelled.

    `text` returns the metrics and when their counters were read. Raise Unavailable when the socket
    cannot be made.
    """

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = writer.get_extra_info("socket")
        peer = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        try:
            with contained("metrics of top"):
                if _PEER.unpack(peer)[1] == os.geteuid():
                    when, lines = await text()
                    writer.write(b"%b%r\n%b" % (READ, when, lines))
                    await writer.drain()
        finally:
            writer.close()

    try:
        server = await asyncio.start_unix_server(answer, path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be made ({error.strerror or error}).") from error
    async with server:
        await server.serve_forever()


async def ask(path: Path) -> str:
    """Return the metrics of the agent in this container; raise Unavailable without an answer."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            text = (await reader.read()).decode()
        finally:
            writer.close()
    except OSError as error:
        raise Unavailable(
            f"No agent of this container answers at {path} ({error.strerror or error})."
        ) from error
    if not text:
        raise Unavailable("The agent cannot read its counters now; its log says why.")
    return text


def samples(text: str) -> tuple[float, tuple[ScrapedSample, ...]]:
    """Return the time of the metrics and their series; raise Unavailable for another text."""
    from prometheus_client.parser import text_string_to_metric_families  # for `top` alone

    first, _, rest = text.partition("\n")
    try:
        return float(first.removeprefix(READ.decode())), tuple(
            ScrapedSample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(rest)
            for sample in family.samples
        )
    except ValueError as error:
        raise Unavailable(f"its answer is not in the format of Prometheus ({error})") from error
