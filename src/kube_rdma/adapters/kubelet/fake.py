"""A kubelet for tests: a real gRPC server that treats plugins as the device manager does.

Follows pkg/kubelet/cm/devicemanager of Kubernetes 1.36, with what hurts: on its start it removes
every socket of the directory; a client whose ListAndWatch ended takes down whichever client its
resource has by then, even a newer one; devices of a client that is gone turn unhealthy. The
contract tests that use it run on a real kubelet as well.
"""

from __future__ import annotations

import asyncio
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from grpclib import GRPCError, Status
from grpclib.client import Channel
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Server, Stream

from kube_rdma.adapters.kubelet.directory import KUBELET_SOCKET
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import (
    DevicePluginStub,
    RegistrationBase,
)
from kube_rdma.adapters.kubelet.wire import HEALTHY, VERSION

_DIAL_SECONDS = 10.0
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")


def is_extended_resource(name: str) -> bool:
    """Whether the kubelet takes `name` for a resource of a plugin."""
    prefix, slash, rest = name.partition("/")
    quota = f"requests.{prefix}"  # the form that is checked
    return bool(
        slash
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and len(quota) <= 253
        and _PREFIX.fullmatch(quota)
        and _NAME.fullmatch(rest)
    )


@dataclass
class _Client:
    """One registered plugin: the connection, its options and the task that reads its devices."""

    channel: Channel
    stub: DevicePluginStub
    options: pb.DevicePluginOptions
    reader: asyncio.Task[None] | None = None


class FakeKubelet(RegistrationBase):
    """``async with FakeKubelet(directory) as kubelet``; `until` waits for what a test expects.

    `refusals`: so many registrations fail first, as when the kubelet cannot dial back in time.
    """

    def __init__(self, directory: Path, *, refusals: int = 0) -> None:
        self.directory = directory
        self.refusals = refusals
        self.registrations: list[str] = []  # resources, in the order of their registrations
        self.refused: list[str] = []  # what the plugins were told
        self.devices: dict[str, dict[str, bool]] = {}  # resource -> id -> healthy
        self.states: dict[str, int] = {}  # resource -> lists received
        self.held: dict[str, set[str]] = {}  # resource -> ids given to containers
        self._clients: dict[str, _Client] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._server: Server | None = None
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Remove every socket of the directory, then listen; nothing is known of any plugin."""
        self.devices.clear()
        for path in self.directory.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        self._server = Server([self])
        await self._server.start(path=str(self.directory / KUBELET_SOCKET))

    async def stop(self, *, crash: bool = False) -> None:
        """End all connections; a `crash` leaves kubelet.sock behind, a clean stop removes it."""
        if self._server is None:
            return
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for client in self._clients.values():
            client.channel.close()
        self._clients.clear()
        self._server.close()
        await self._server.wait_closed()
        await asyncio.sleep(0)  # transports close one turn of the loop later
        self._server = None
        if not crash:
            (self.directory / KUBELET_SOCKET).unlink()

    async def restart(self, *, crash: bool = False) -> None:
        """Stop and start; what containers hold is kept, as in the kubelet's checkpoint."""
        await self.stop(crash=crash)
        await self.start()

    def hang_up(self, resource: str) -> None:
        """Break the connection to the plugin of `resource`, as after an error on it."""
        self._clients[resource].channel.close()

    async def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until `condition` holds; it is looked at after each change of ours."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: bool(condition()))

    def healthy(self, resource: str) -> int:
        """How many devices of `resource` a pod could be given."""
        return sum(self.devices.get(resource, {}).values())

    async def allocate(
        self, resource: str, count: int, ids: tuple[str, ...] = ()
    ) -> pb.ContainerAllocateResponse:
        """Give `count` healthy devices that nobody holds, or again these `ids`, to a container.

        Raise RuntimeError where the device manager would not ask the plugin; GRPCError with the
        plugin's sentence.
        """
        client = self._clients.get(resource)
        if client is None:
            raise RuntimeError(f"no registered plugin for {resource}")
        held = self.held.setdefault(resource, set())
        if not ids:
            free = (i for i, ok in self.devices[resource].items() if ok and i not in held)
            ids = tuple(i for i, _ in zip(free, range(count), strict=False))
            if len(ids) < count:
                raise RuntimeError(f"requested {count} of {resource}, available {len(ids)}")
        container = pb.ContainerAllocateRequest(devices_ids=ids)
        request = pb.AllocateRequest(container_requests=[container])
        response = await client.stub.Allocate(request)
        if len(response.container_responses) != 1:
            raise RuntimeError("the plugin answered for another number of containers")
        held.update(ids)
        if client.options.pre_start_required:
            await client.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=ids))
        return response.container_responses[0]

    async def Register(  # noqa: N802  name of the wire
        self, stream: Stream[pb.RegisterRequest, pb.Empty]
    ) -> None:
        """Check the request, dial the plugin back, then follow its devices."""
        request = await stream.recv_message()
        assert request
        if self.refusals:
            self.refusals -= 1
            raise await self._refuse("failed to dial device plugin: context deadline exceeded")
        if request.version != VERSION:
            raise await self._refuse(f"requested API version {request.version!r} is not supported")
        if not is_extended_resource(request.resource_name):
            raise await self._refuse(f"the ResourceName {request.resource_name!r} is invalid")
        # An absolute endpoint is looked for below the directory too, so it is not found.
        path = self.directory / request.endpoint.lstrip("/")
        client = await self._dial(path)
        resource = request.resource_name
        self._clients[resource] = client
        await stream.send_message(pb.Empty())
        client.reader = asyncio.create_task(self._read(resource, client))
        self._readers.add(client.reader)
        client.reader.add_done_callback(self._readers.discard)
        self.registrations.append(resource)
        await self._tell()

    async def _dial(self, path: Path) -> _Client:
        channel = Channel(path=str(path))
        stub = DevicePluginStub(channel)
        try:
            options = await stub.GetDevicePluginOptions(pb.Empty(), timeout=_DIAL_SECONDS)
        except (OSError, GRPCError, StreamTerminatedError) as error:
            channel.close()
            raise await self._refuse(f"failed to dial device plugin: {error}") from error
        return _Client(channel, stub, options)

    async def _read(self, resource: str, client: _Client) -> None:
        with suppress(OSError, GRPCError, StreamTerminatedError):
            async with client.stub.ListAndWatch.open() as stream:
                await stream.send_message(pb.Empty(), end=True)
                async for state in stream:
                    devices = {device.ID: device.health == HEALTHY for device in state.devices}
                    self.devices[resource] = devices
                    self.states[resource] = self.states.get(resource, 0) + 1
                    await self._tell()
        # By name, not by client: the device manager does the same.
        current = self._clients.pop(resource, None)
        if current is not None:
            current.channel.close()
            self.devices[resource] = dict.fromkeys(self.devices.get(resource, ()), False)
        await self._tell()

    async def _refuse(self, message: str) -> GRPCError:
        self.refused.append(message)
        await self._tell()
        return GRPCError(Status.UNKNOWN, message)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
