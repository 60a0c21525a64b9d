"""A gRPC server on a path, for the programs that tests run beside an agent."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from grpclib.server import Server


class SocketServer(Server):
    """A gRPC server on one socket path that ends without half-accepted connections."""

    _listening: socket.socket

    async def listen(self, path: Path) -> None:
        """Listen at this path, also if an earlier server left its socket there."""
        self._listening = _bound(path)
        await self.start(sock=self._listening)

    async def end(self) -> None:
        """Stop accepting connections, then end those that are open.

        A connection that asyncio has accepted reaches the server one turn of the loop later. If the
        server is closed by then, its socket is left to the garbage collector, which warns.
        """
        asyncio.get_running_loop().remove_reader(self._listening)
        await asyncio.sleep(0)
        self.close()
        await self.wait_closed()


def _bound(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    return bound
