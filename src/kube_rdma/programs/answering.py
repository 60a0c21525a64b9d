"""Says that a program of ours still works, to whoever asks by programs/alive.

`--alive FILE` of the agent and the controller, or KUBE_RDMA_ALIVE in their environment, opens the
socket. The answer comes from the event loop itself: one that hangs gives none, and the kubelet ends
the container. Nothing of a neighbour is in it, for a restart of ours mends no API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kube_rdma.model.errors import Unavailable
from kube_rdma.programs.alive import WORD


@asynccontextmanager
async def answering(path: Path | None) -> AsyncIterator[None]:
    """Answer whoever connects, until the end; None: nobody asks. Raise Unavailable."""
    if path is None:
        yield
        return
    try:
        # What a program of before has left there is taken away by asyncio.
        server = await asyncio.get_running_loop().create_unix_server(_Answer, str(path))
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be made ({error.strerror or error}): its folder has to be there and "
            "writable, as /dev/shm is in every pod."
        ) from error
    async with server:
        yield


class _Answer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(WORD)
        transport.close()
