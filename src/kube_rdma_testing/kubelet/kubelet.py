"""A kubelet for tests: a real gRPC server that treats plugins as the device manager does.

Follows pkg/kubelet/cm/devicemanager of Kubernetes 1.36, also where plugins suffer from it. On its
start it removes every socket of the directory. When a ListAndWatch ends, it drops whichever client
the resource has by then, even a newer one. Devices of a client that is gone turn unhealthy. Options
are what the plugin answers to GetDevicePluginOptions, whatever it registered. The contract tests
that use it run on a real kubelet as well.
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
from grpclib.server import Stream

from kube_rdma.adapters.kubelet.device_plugin import VERSION
from kube_rdma.adapters.kubelet.folders import (
    DEVICE_PLUGINS,
    KUBELET_SOCKET,
    PLUGINS_REGISTRY,
    POD_RESOURCES,
)
from kube_rdma.adapters.kubelet.folders import NAME as CHECKPOINT
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import (
    DevicePluginStub,
    RegistrationBase,
)
from kube_rdma_testing.kubelet.devices import ContainerPlace, Devices, Question, choose
from kube_rdma_testing.kubelet.pod_resources import FakePodResources
from kube_rdma_testing.kubelet.registry import FakeRegistry
from kube_rdma_testing.socket_server import SocketServer

_DIAL_SECONDS = 10.0
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")


def is_extended_resource(name: str) -> bool:
    """Return whether the kubelet accepts `name` as an extended resource of a plugin."""
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
    """A registered device plugin: its connection, its options, and the task that reads its list."""

    channel: Channel
    stub: DevicePluginStub
    options: pb.DevicePluginOptions
    reader: asyncio.Task[None] | None = None


class FakeKubelet(RegistrationBase):
    """A fake kubelet: ``async with FakeKubelet(directory) as kubelet``; `until` awaits a condition.

    `directory` is device-plugins; with a `root` it also serves pod-resources and watches
    plugins_registry there. The first `refusals` registrations fail, as when the kubelet cannot dial
    back in time.
    """

    def __init__(self, directory: Path, *, root: Path | None = None, refusals: int = 0) -> None:
        self.directory = directory
        self.refusals = refusals
        self.registrations: list[str] = []  # resources, in the order of their registrations
        self.refused: list[str] = []  # the errors of refused registrations
        self.states: dict[str, int] = {}  # resource -> lists received
        self.started: list[ContainerPlace] = []  # containers, in the order of their starts
        self.store = Devices()
        self.pod_resources = FakePodResources(self.store)
        self._root = root
        self._registry = FakeRegistry(root / PLUGINS_REGISTRY, self) if root else None
        self._clients: dict[str, _Client] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._servers: dict[Path, SocketServer] = {}
        self._changed = asyncio.Condition()
        self._pods = 0

    @classmethod
    def at(cls, root: Path, *, refusals: int = 0) -> Self:
        """Return a fake kubelet with all its folders below `root`, which are made."""
        for name in (DEVICE_PLUGINS, PLUGINS_REGISTRY, POD_RESOURCES):
            (root / name).mkdir(exist_ok=True)
        return cls(root / DEVICE_PLUGINS, root=root, refusals=refusals)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def devices(self) -> dict[str, dict[str, bool]]:
        """Return by resource and id whether each known device is healthy."""
        return self.store.devices

    async def start(self) -> None:
        """Remove every socket of the directory and listen, without any registered plugin."""
        self.store.restart()
        for path in self.directory.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        await self._serve(self.directory, self)
        if self._root and self._registry:
            await self._serve(self._root / POD_RESOURCES, self.pod_resources)
            await self._registry.start()

    async def _serve(self, folder: Path, service: RegistrationBase | FakePodResources) -> None:
        server = SocketServer([service])
        await server.listen(folder / KUBELET_SOCKET)
        self._servers[folder / KUBELET_SOCKET] = server

    async def stop(self, *, crash: bool = False) -> None:
        """End all connections; a `crash` leaves its sockets behind, a clean stop removes them."""
        if self._registry:
            await self._registry.stop()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for client in self._clients.values():
            client.channel.close()
        self._clients.clear()
        for server in self._servers.values():
            await server.end()
        await asyncio.sleep(0)  # transports close one turn of the loop later
        for path in self._servers:
            if not crash:
                path.unlink()
        self._servers.clear()

    async def restart(self, *, crash: bool = False, silent: bool = False) -> None:
        """Stop and start the kubelet; containers keep their devices, as in its checkpoint.

        The pod resources of a `silent` one list no pod until a test adds it to
        `pod_resources.heard`.
        """
        await self.stop(crash=crash)
        if silent:
            self.pod_resources.heard = set()
        await self.start()

    def hang_up(self, resource: str) -> None:
        """Break the connection to the plugin of `resource`, as after an error."""
        self._clients[resource].channel.close()

    def forget(self, resource: str) -> None:
        """Drop the client of `resource` while its lists are still read.

        This happens when another plugin of that name is deregistered while this one is being
        connected. disconnectClient then finds no connection to close, and connectClient makes one.
        """
        del self._clients[resource]

    async def until(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Wait until `condition` holds; it is checked when plugins come, go or send a list.

        Raise TimeoutError after `seconds`; None means no limit.
        """
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: bool(condition()))

    def healthy(self, resource: str) -> int:
        """Return how many healthy devices of `resource` there are, allocated or not."""
        return len(self.store.healthy(resource))

    def held(self, resource: str) -> set[str]:
        """Return the devices of `resource` that containers hold."""
        return self.store.held(resource)

    async def allocate(
        self,
        resource: str,
        count: int,
        ids: tuple[str, ...] = (),
        *,
        place: ContainerPlace | None = None,
    ) -> pb.ContainerAllocateResponse:
        """Admit a container: choose `count` devices for it, or take these `ids`, and Allocate them.

        Without a `place` it is in a new pod. Raise RuntimeError where the device manager refuses,
        and GRPCError where the plugin does. A real pod has then failed for good.
        """
        self._pods += 1
        place = place or ContainerPlace(f"pod-{self._pods}")

        async def prefer(question: Question) -> tuple[str, ...]:
            return await self._prefer(resource, question)

        names = ids or await choose(self.store, resource, place, count, prefer)
        container = pb.ContainerAllocateRequest(devices_ids=names)
        request = pb.AllocateRequest(container_requests=[container])
        response = await self._client(resource).stub.Allocate(request)
        if len(response.container_responses) != 1:
            raise RuntimeError("the plugin answered for another number of containers")
        self.store.holdings[place, resource] = names
        self.write_checkpoint()
        return response.container_responses[0]

    async def _prefer(self, resource: str, question: Question) -> tuple[str, ...]:
        client = self._client(resource)
        if not client.options.get_preferred_allocation_available:
            return ()
        container = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=question.available,
            must_include_deviceIDs=question.must,
            allocation_size=question.size,
        )
        request = pb.PreferredAllocationRequest(container_requests=[container])
        answer = await client.stub.GetPreferredAllocation(request)
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def start_container(self, place: ContainerPlace) -> None:
        """Create and start an admitted container, at first or as a restart.

        Raise RuntimeError if a plugin is gone, and GRPCError if it refuses PreStartContainer. The
        container is then not created, and the real kubelet tries again and again.
        """
        for (holder, resource), names in self.store.holdings.items():
            if holder == place and self._client(resource).options.pre_start_required:
                request = pb.PreStartContainerRequest(devices_ids=names)
                await self._client(resource).stub.PreStartContainer(request)
        self.started.append(place)

    def remove_pod(self, pod: str, namespace: str = "default") -> None:
        """Release the devices of the pod's containers; the checkpoint changes only when written."""
        for place, resource in list(self.store.holdings):
            if (place.namespace, place.pod) == (namespace, pod):
                del self.store.holdings[place, resource]

    def write_checkpoint(self) -> None:
        """Write the checkpoint file: the devices that containers hold, and healthy ones."""
        new = self.directory / f".{CHECKPOINT}"
        new.write_text(self.store.checkpoint())
        new.replace(self.directory / CHECKPOINT)

    def _client(self, resource: str) -> _Client:
        if resource not in self._clients:
            raise RuntimeError(f"the endpoint of {resource} has been stopped")
        return self._clients[resource]

    async def Register(  # noqa: N802  name of the wire
        self, stream: Stream[pb.RegisterRequest, pb.Empty]
    ) -> None:
        """Register a plugin: check its request, connect to it, and follow its devices."""
        request = await stream.recv_message()
        assert request
        # An absolute endpoint is looked for below the directory too, so it is not found.
        path = self.directory / request.endpoint.lstrip("/")
        try:
            await self.connect(request.resource_name, path, [request.version])
        except RuntimeError as error:
            raise GRPCError(Status.UNKNOWN, str(error)) from error
        await stream.send_message(pb.Empty())

    async def connect(self, resource: str, path: Path, versions: list[str]) -> None:
        """Connect to a plugin and follow its devices; raise RuntimeError when it is refused."""
        if self.refusals:
            self.refusals -= 1
            raise await self._refuse("failed to dial device plugin: context deadline exceeded")
        if VERSION not in versions:
            raise await self._refuse(f"requested API version {versions} is not supported")
        if not is_extended_resource(resource):
            raise await self._refuse(f"the ResourceName {resource!r} is invalid")
        client = await self._dial(path)
        self._clients[resource] = client
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
        except BaseException:
            channel.close()
            raise
        return _Client(channel, stub, options)

    async def _read(self, resource: str, client: _Client) -> None:
        try:
            with suppress(OSError, GRPCError, StreamTerminatedError):
                async with client.stub.ListAndWatch.open() as stream:
                    await stream.send_message(pb.Empty(), end=True)
                    async for state in stream:
                        self.store.receive(resource, state)
                        self.write_checkpoint()
                        self.states[resource] = self.states.get(resource, 0) + 1
                        await self._tell()
        finally:
            client.channel.close()
        await self.disconnect(resource)

    async def disconnect(self, resource: str) -> None:
        """Drop the client of `resource` by its name, as the device manager does."""
        current = self._clients.pop(resource, None)
        if current is not None:
            current.channel.close()
            self.store.lose(resource)
        await self._tell()

    async def _refuse(self, message: str) -> RuntimeError:
        self.refused.append(message)
        await self._tell()
        return RuntimeError(message)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
