"""A container runtime for tests: serves the two calls of the CRI that kube-rdma makes.

Configurations as containerd prints them (internal/cri/config, JSON names of its fields); like the
real ones it tells them only when it is asked to be verbose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from grpclib.server import Server, Stream

from kube_rdma.adapters.runtime.proto import cri_v1_pb2 as pb
from kube_rdma.adapters.runtime.proto.cri_v1_grpc import RuntimeServiceBase


class FakeRuntime(RuntimeServiceBase):
    """``async with FakeRuntime(socket, "containerd", "v2.4.2", config)``."""

    def __init__(self, socket: Path, name: str, version: str, config: object) -> None:
        self.config = config if isinstance(config, str) else json.dumps(config)
        self._socket = socket
        self._version = pb.VersionResponse(
            version="0.1.0",
            runtime_name=name,
            runtime_version=version,
            runtime_api_version="v1",
        )
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        self._server = Server([self])
        await self._server.start(path=str(self._socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        await self._server.wait_closed()

    async def Version(  # noqa: N802  names of the wire
        self, stream: Stream[pb.VersionRequest, pb.VersionResponse]
    ) -> None:
        """Who it is."""
        await stream.recv_message()
        await stream.send_message(self._version)

    async def Status(  # noqa: N802
        self, stream: Stream[pb.StatusRequest, pb.StatusResponse]
    ) -> None:
        """How it is set."""
        request = await stream.recv_message()
        assert request
        info = {"golang": '"go1.26.4"', "config": self.config} if request.verbose else {}
        await stream.send_message(pb.StatusResponse(info=info))
