"""A container runtime for tests: serves the calls of the CRI that kube-rdma makes.

The configuration and the OCI specs are printed as by containerd (internal/cri/config, with the JSON
names of its fields). Like real runtimes, it prints them only for a verbose request.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.server import Stream

from kube_rdma.adapters.runtime.proto import cri_v1_pb2 as pb
from kube_rdma.adapters.runtime.proto.cri_v1_grpc import RuntimeServiceBase
from kube_rdma.model.late_binding import ContainerId, PodSandbox
from kube_rdma_testing.socket_server import SocketServer


class FakeCriRuntime(RuntimeServiceBase):
    """A fake runtime: ``async with FakeCriRuntime(socket, "containerd", "v2.4.2", config)``.

    `run` makes a sandbox, `make` a container. While `failing`, every call but Version fails as if
    the runtime were starting. `lists` counts the calls of ListPodSandbox.
    """

    def __init__(self, socket: Path, name: str, version: str, config: object) -> None:
        self.config = config if isinstance(config, str) else json.dumps(config)
        self.cni: object = None  # where it looks for CNI, as containerd prints it; CRI-O does not
        self.failing, self.lists = False, 0
        self._sandboxes: dict[ContainerId, tuple[PodSandbox, str]] = {}
        self._containers: dict[ContainerId, object] = {}
        self._socket = socket
        self._version = pb.VersionResponse(
            version="0.1.0",
            runtime_name=name,
            runtime_version=version,
            runtime_api_version="v1",
        )
        self._server: SocketServer | None = None

    async def __aenter__(self) -> Self:
        self._server = SocketServer([self])
        await self._server.listen(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        await self._server.end()

    def run(self, sandbox: PodSandbox, netns: str = "") -> None:
        """Add a pod sandbox; an empty `netns` means the host's network."""
        self._sandboxes[sandbox.container] = sandbox, netns

    def make(self, container: ContainerId, spec: object) -> None:
        """Add a container that was made with this OCI spec."""
        self._containers[container] = spec

    def remove(self, container: ContainerId) -> None:
        """Remove a sandbox; raise KeyError if it is not there."""
        del self._sandboxes[container]

    async def Version(  # noqa: N802  names of the wire
        self, stream: Stream[pb.VersionRequest, pb.VersionResponse]
    ) -> None:
        """Answer the CRI call with the runtime's name and version."""
        await stream.recv_message()
        await stream.send_message(self._version)

    async def Status(  # noqa: N802
        self, stream: Stream[pb.StatusRequest, pb.StatusResponse]
    ) -> None:
        """Answer a verbose request with the runtime's configuration."""
        request = await stream.recv_message()
        assert request
        self._working()
        info = {"golang": '"go1.26.4"', "config": self.config} if request.verbose else {}
        if request.verbose and self.cni is not None:
            info["cniconfig"] = json.dumps(self.cni)
        await stream.send_message(pb.StatusResponse(info=info))

    async def ListPodSandbox(  # noqa: N802
        self, stream: Stream[pb.ListPodSandboxRequest, pb.ListPodSandboxResponse]
    ) -> None:
        """Answer the CRI call with all pod sandboxes."""
        await stream.recv_message()
        self.lists += 1
        self._working()
        items = [
            pb.PodSandbox(
                id=one.container,
                metadata=pb.PodSandboxMetadata(
                    name=one.pod.name, uid=one.uid, namespace=one.pod.namespace
                ),
                state=pb.SANDBOX_READY if one.ready else pb.SANDBOX_NOTREADY,
                created_at=one.created,
            )
            for one, _ in self._sandboxes.values()
        ]
        await stream.send_message(pb.ListPodSandboxResponse(items=items))

    async def PodSandboxStatus(  # noqa: N802
        self, stream: Stream[pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse]
    ) -> None:
        """Answer a verbose request with a sandbox's pid and OCI spec; a stopped one has no spec."""
        request = await stream.recv_message()
        assert request
        self._working()
        entry = self._sandboxes.get(ContainerId(request.pod_sandbox_id))
        if entry is None:
            raise GRPCError(Status.NOT_FOUND, f"no sandbox {request.pod_sandbox_id}")
        sandbox, netns = entry
        spaces = [{"type": "pid"}, *([{"type": "network", "path": netns}] if netns else [])]
        spec = {"linux": {"namespaces": spaces}} if sandbox.ready else None
        info = {"info": json.dumps({"pid": 1, "runtimeSpec": spec})} if request.verbose else {}
        await stream.send_message(pb.PodSandboxStatusResponse(info=info))

    async def ContainerStatus(  # noqa: N802
        self, stream: Stream[pb.ContainerStatusRequest, pb.ContainerStatusResponse]
    ) -> None:
        """Answer a verbose request with a container's pid and OCI spec."""
        request = await stream.recv_message()
        assert request
        self._working()
        if (container := ContainerId(request.container_id)) not in self._containers:
            raise GRPCError(Status.NOT_FOUND, f"no container {container}")
        printed = json.dumps({"pid": 1, "runtimeSpec": self._containers[container]})
        info = {"info": printed} if request.verbose else {}
        await stream.send_message(pb.ContainerStatusResponse(info=info))

    def _working(self) -> None:
        if self.failing:
            raise GRPCError(Status.UNAVAILABLE, "server is not initialized yet")
