"""Serves one resource by the kubelet's device plugin API, and keeps it registered.

    Offer ─► PoolService (ListAndWatch, Allocate, …) on a socket of its own ─► kubelet

DevicePlugin registers by a call to kubelet.sock in ``device-plugins``: the kubelet listens there,
and dials the plugin's socket back. A kubelet that starts removes every socket of the folder and
makes a new kubelet.sock. WatchedPlugin is found by the kubelet in ``plugins_registry``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import structlog
from grpclib import GRPCError, Status
from grpclib.server import Server, Stream

from kube_base.backoff import LONGEST, full_jitter, has_happened
from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.grpc_calls import CallFailed, answered, calling
from kube_rdma.adapters.kubelet.folders import KUBELET_SOCKET, Folders, Identity, identity, watching
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_grpc
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_pb2 import RegistrationStatus
from kube_rdma.adapters.kubelet.rpc import PluginRegistration, Requests, connected, listen
from kube_rdma.model.pools import Grant, Offer, Share, ShareId

# The wire: model values as messages of the device plugin API, KubeErrors as gRPC status.

VERSION = "v1beta1"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

# Read and write; never m, with which a container could make device nodes of other cards.
PERMISSIONS = "rw"

# The kubelet shows the message in the pod's event, whatever the status is.
STATUS: tuple[tuple[type[KubeError], Status], ...] = (
    (Refused, Status.FAILED_PRECONDITION),
    (Unavailable, Status.UNAVAILABLE),
    (Broken, Status.INTERNAL),
)


def options(offer: Offer) -> pb.DevicePluginOptions:
    """Return which optional calls of the device plugin API the kubelet should make."""
    return pb.DevicePluginOptions(
        pre_start_required=offer.gated, get_preferred_allocation_available=offer.prefers
    )


def device_list(offer: Offer) -> pb.ListAndWatchResponse:
    """Return the message that lists the shares of `offer` as devices."""
    return pb.ListAndWatchResponse(devices=[_device(share) for share in offer.shares])


def _device(share: Share) -> pb.Device:
    device = pb.Device(ID=share.id, health=HEALTHY if share.healthy else UNHEALTHY)
    if share.numa_nodes:
        nodes = [pb.NUMANode(ID=node) for node in share.numa_nodes]
        device.topology.CopyFrom(pb.TopologyInfo(nodes=nodes))
    return device


def container_response(grant: Grant) -> pb.ContainerAllocateResponse:
    """Return the answer to Allocate for one container: device nodes, variables, mounts, CDI names.

    A CDI device that does not exist yet may be named: nothing looks it up before the container is
    created (KEP-4009).
    """
    answer = pb.ContainerAllocateResponse(envs=dict(grant.env))
    for path in grant.char_paths:
        answer.devices.add(container_path=path, host_path=path, permissions=PERMISSIONS)
    for one in grant.mounts:
        answer.mounts.add(
            container_path=one.container_path, host_path=one.host_path, read_only=True
        )
    for name in grant.cdi:
        answer.cdi_devices.add(name=name)
    return answer


@contextmanager
def errors() -> Iterator[None]:
    """Raise a gRPC error in place of a KubeError of the block, with the same sentence."""
    try:
        yield
    except KubeError as error:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        raise GRPCError(status, str(error)) from error


# The service that the kubelet calls: lists the shares of one resource and answers for them.


class Choice(Frozen):
    """The question of GetPreferredAllocation for one container: `size` shares out of `available`.

    Shares of `must` are given in any case; the kubelet names them among the available ones.
    """

    available: tuple[ShareId, ...]
    must: tuple[ShareId, ...]
    size: int


class PluginHandlers(Frozen):
    """The handlers of the kubelet's calls about one resource; each may raise KubeError."""

    allocate: Callable[[Sequence[ShareId]], Awaitable[Grant]]
    # Needed where the Offer says `prefers` and `gated`.
    prefer: Callable[[Choice], Awaitable[Sequence[ShareId]]] | None = None
    start: Callable[[Sequence[ShareId]], Awaitable[None]] | None = None


class PoolService(deviceplugin_v1beta1_grpc.DevicePluginBase):
    """The DevicePlugin gRPC service of one resource, on one socket.

    `unwatched` is called when the last ListAndWatch ends, with the seconds that it was open.
    """

    def __init__(
        self, offer: Offer, handlers: PluginHandlers, unwatched: Callable[[float], None]
    ) -> None:
        self._offer = offer
        self._handlers = handlers
        self._unwatched = unwatched
        self._requests = Requests(offer.resource)
        self._watchers = 0
        self._ending = False
        self._withdrawn = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def watched(self) -> bool:
        """Return whether a ListAndWatch is open."""
        return self._watchers > 0

    def publish(self, offer: Offer, *, again: bool = False) -> None:
        """Replace the offer; open ListAndWatch calls get it if a share changed, or with `again`."""
        previous, self._offer = self._offer, offer
        if again or offer.shares != previous.shares:
            self._wake()

    async def end(self, *, withdrawn: bool) -> None:
        """End every ListAndWatch cleanly, so that the kubelet closes the connection.

        Else the kubelet would hold on to a connection whose server merely went silent.
        `withdrawn` means that this server does not register again; then the last list is an empty
        one. The end alone is not enough when two plugins of one name change places. The kubelet can
        then forget the client of a list that it goes on reading (runClient in
        pkg/kubelet/cm/devicemanager). The shares of that list would stay allocatable after its end,
        for good.
        """
        self._withdrawn = withdrawn
        self._ending = True
        self._wake()
        await self._idle.wait()

    def _wake(self) -> None:
        # Each state has its own event, so that no watcher can miss one or clear another's.
        self._changed.set()
        self._changed = asyncio.Event()

    async def GetDevicePluginOptions(  # noqa: N802  names of the wire
        self, stream: Stream[pb.Empty, pb.DevicePluginOptions]
    ) -> None:
        """Tell the kubelet which of the optional calls it should make."""
        await self._requests.receive(stream)
        await stream.send_message(options(self._offer))

    async def ListAndWatch(  # noqa: N802
        self, stream: Stream[pb.Empty, pb.ListAndWatchResponse]
    ) -> None:
        """Send all shares now and whenever one changed, until the kubelet or the server ends it."""
        await self._requests.receive(stream)
        clock = asyncio.get_running_loop().time
        since = clock()
        self._watchers += 1
        self._idle.clear()
        try:
            while not self._ending:
                changed = self._changed
                await stream.send_message(device_list(self._offer))
                await changed.wait()
            if self._withdrawn:
                await stream.send_message(pb.ListAndWatchResponse())
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._idle.set()
                self._unwatched(clock() - since)

    async def Allocate(  # noqa: N802
        self, stream: Stream[pb.AllocateRequest, pb.AllocateResponse]
    ) -> None:
        """Answer for each container of the request; if one fails, refuse all with its error."""
        request = await self._requests.receive(stream)
        answer = pb.AllocateResponse()
        for container in request.container_requests:
            with errors():
                grant = await self._handlers.allocate(_ids(container.devices_ids))
            answer.container_responses.append(container_response(grant))
        await stream.send_message(answer)

    async def GetPreferredAllocation(  # noqa: N802
        self, stream: Stream[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse]
    ) -> None:
        """Answer for each container which of the available shares it should get."""
        request = await self._requests.receive(stream)
        if self._handlers.prefer is None:
            raise _not_offered("GetPreferredAllocation")
        answer = pb.PreferredAllocationResponse()
        for container in request.container_requests:
            choice = Choice(
                _ids(container.available_deviceIDs),
                _ids(container.must_include_deviceIDs),
                container.allocation_size,
            )
            with errors():
                chosen = await self._handlers.prefer(choice)
            answer.container_responses.add(deviceIDs=chosen)
        await stream.send_message(answer)

    async def PreStartContainer(  # noqa: N802
        self, stream: Stream[pb.PreStartContainerRequest, pb.PreStartContainerResponse]
    ) -> None:
        """Let the container with these shares start, or answer why it cannot yet.

        The kubelet asks before every start, names no pod, and tries a refused container again.
        """
        request = await self._requests.receive(stream)
        if self._handlers.start is None:
            raise _not_offered("PreStartContainer")
        with errors():
            await self._handlers.start(_ids(request.devices_ids))
        await stream.send_message(pb.PreStartContainerResponse())


def _ids(names: Sequence[str]) -> tuple[ShareId, ...]:
    return tuple(ShareId(name) for name in names)


def _not_offered(call: str) -> GRPCError:
    return GRPCError(Status.UNIMPLEMENTED, f"{call} is not among the options of this plugin")


# The socket, kept whatever happens to it: what both ways of registration share.

_CLOSE_SECONDS = 2.0  # of each of the two waits of a stop: for lists to end, for the hang-up


class _RunningServer(Frozen):
    """A gRPC server with the socket that it listens on."""

    server: Server
    service: PoolService
    socket: Identity | None  # None when it was removed at once


class PluginServer(ABC):
    """The server of one resource of this node. `run` serves it; `publish` replaces its offer."""

    def __init__(self, directory: Path, offer: Offer, handlers: PluginHandlers) -> None:
        # A domain has no underscore, so no two resources share a socket.
        self._socket = directory / f"kube-rdma-{offer.resource.replace('/', '_')}.sock"
        self._directory = directory
        self._log = structlog.get_logger().bind(resource=offer.resource)
        self._handlers = handlers
        self._offer = offer
        self._wake = asyncio.Event()
        self._running: _RunningServer | None = None
        self._introduced: object = None  # the server that the kubelet took
        # The one that is being closed, perhaps by a call that was cancelled.
        self._ending: _RunningServer | None = None
        self._lost = False  # the last ListAndWatch on the socket has ended
        self._anew = False
        self._failures = 0
        self._retry_at = 0.0  # loop time before which nothing is tried

    @property
    def offer(self) -> Offer:
        """Return the offer as it was last published."""
        return self._offer

    @property
    def is_registered(self) -> bool:
        """Return whether the kubelet has registered the resource, as far as is known."""
        return self._running is not None and self._running is self._introduced and not self._lost

    def publish(self, offer: Offer, *, again: bool = False) -> None:
        """Replace the offer of this resource; the list is sent if it changed, or with `again`.

        Which calls the kubelet makes is settled at registration, so a change of these registers
        again.
        """
        previous, self._offer = self._offer, offer
        if self._running and options(previous) == options(offer):
            self._running.service.publish(offer, again=again)
        elif self._running:
            self.register_again()

    def register_again(self) -> None:
        """Plan a new registration with the kubelet, as after it did not take an offer."""
        self._anew = True
        self._wake.set()

    async def run(self) -> None:
        """Serve until cancelled, then remove the socket.

        Raise Refused when the kubelet's folder cannot be watched, Unavailable when no inotify
        instance is left. In an exception group raise Refused when the folder cannot be written to,
        and Unavailable when the folder vanishes.
        """
        with watching(self._directory, self._watched_names()) as changes:
            async with asyncio.TaskGroup() as tasks:

                async def follow() -> None:
                    async for _ in changes:
                        self._wake.set()

                tasks.create_task(follow())
                try:
                    while True:
                        self._wake.clear()
                        await has_happened(self._wake, await self._settle())
                finally:
                    await self._end()

    def _watched_names(self) -> Sequence[str]:
        """Return the names of files whose creation or removal has to wake the server."""
        return (self._socket.name,)

    @abstractmethod
    async def _settle(self) -> float | None:
        """Start, register or end the server as needed; return seconds to the next try, or None."""

    async def _mind_the_socket(self) -> None:
        """Close the server if its socket was removed or replaced, or to register again."""
        if self._anew:
            await self._close()
        if self._running and (
            not self._running.socket or identity(self._socket) != self._running.socket
        ):
            self._log.warning("socket removed", socket=str(self._socket))
            await self._close()
            self._set_back()  # two plugins of one resource would else fight at full speed

    async def _serve(self, *further: PluginRegistration) -> None:
        service = PoolService(
            self._offer, self._handlers, lambda seconds: self._left(service, seconds)
        )
        server = Server([service, *further])
        await listen(server, self._socket)
        self._running = _RunningServer(server, service, identity(self._socket))

    async def _close(self, *, for_good: bool = False) -> None:
        """Stop the server, and remove its socket unless another process has replaced it."""
        self._ending, self._running = self._ending or self._running, None
        self._lost = self._anew = False
        if (running := self._ending) is None:
            return
        if running.socket and identity(self._socket) == running.socket:
            self._socket.unlink(missing_ok=True)
        await connected()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await running.service.end(withdrawn=for_good)
        running.server.close()
        with suppress(TimeoutError):  # from Python 3.12 on it waits for the other side to hang up
            async with asyncio.timeout(_CLOSE_SECONDS):
                await running.server.wait_closed()
        self._ending = None

    async def _end(self) -> None:
        """Close the server for good, even if cancelled meanwhile."""
        closing = asyncio.ensure_future(self._close(for_good=True))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    def _left(self, service: PoolService, seconds: float) -> None:
        """Plan a new registration, after the kubelet's ListAndWatch has ended."""
        if self._running is None or self._running.service is not service:
            return  # it was ended on this side
        self._lost = True
        if seconds > LONGEST:
            self._failures = 0  # it was no failure to register
        self._set_back()
        self._wake.set()

    def _set_back(self) -> None:
        self._retry_at = asyncio.get_running_loop().time() + full_jitter(self._failures)
        self._failures += 1

    def _pause(self) -> float:
        """Return the seconds until the next try; 0 or less means now."""
        return self._retry_at - asyncio.get_running_loop().time()


# Registered in ``device-plugins``, by a call to the kubelet.

_REGISTER_SECONDS = 15.0  # the kubelet dials back within this call, for up to 10 s


class DevicePlugin(PluginServer):
    """A server of one resource that registers itself by a call to the kubelet."""

    def __init__(self, directory: Path, offer: Offer, handlers: PluginHandlers) -> None:
        super().__init__(directory, offer, handlers)
        self._kubelet = directory / KUBELET_SOCKET
        self._seen: Identity | None = None  # the kubelet's socket at the last look

    async def run(self) -> None:
        """Serve until cancelled; raise as every PluginServer does."""
        if identity(self._kubelet) is None:
            self._log.info("waiting for the kubelet", socket=str(self._kubelet))
        await super().run()

    def _watched_names(self) -> Sequence[str]:
        return (KUBELET_SOCKET, self._socket.name)

    async def _settle(self) -> float | None:
        kubelet = identity(self._kubelet)
        if kubelet != self._seen:
            # A kubelet came, went or was replaced: all starts from nothing.
            if kubelet is None:
                self._log.warning("the kubelet is gone", socket=str(self._kubelet))
            elif self._seen or self._running:
                self._log.info("the kubelet is back")
            self._seen = kubelet
            self._failures = 0
            self._retry_at = 0.0
            if kubelet is not None:
                await self._close()  # it has removed the socket and knows nothing of the plugin
        if kubelet is None:
            return None
        await self._mind_the_socket()
        if self.is_registered:
            return None
        if (pause := self._pause()) > 0:
            return pause
        if self._running is None:
            await self._serve()
        await self._register()
        return None if self.is_registered else self._pause()

    async def _register(self) -> None:
        request = pb.RegisterRequest(
            version=VERSION,
            endpoint=self._socket.name,
            resource_name=self._offer.resource,
            options=options(self._offer),
        )
        self._lost = False
        try:
            with calling(self._kubelet) as channel:
                stub = deviceplugin_v1beta1_grpc.RegistrationStub(channel)
                await answered(stub.Register(request, timeout=_REGISTER_SECONDS))
        except CallFailed as failure:
            self._set_back()
            seconds = round(self._pause(), 1)
            self._log.warning(
                "registration failed, trying again", reason=failure.reason, seconds=seconds
            )
        else:
            self._introduced = self._running
            self._log.info("registered", shares=len(self._offer.shares), socket=str(self._socket))


# Registered in ``plugins_registry``, where the kubelet finds it.

TYPE = "DevicePlugin"  # what the kubelet calls plugins of this kind


class WatchedPlugin(PluginServer):
    """A server of one resource that the kubelet finds by its socket."""

    async def _settle(self) -> float | None:
        await self._mind_the_socket()
        if self._running and not self._lost:
            return None
        if (pause := self._pause()) > 0:
            return pause
        if self._running and self._running.service.watched:
            self._lost = False
            return None  # a kubelet that started has found it meanwhile
        await self._close()
        await self._serve(
            PluginRegistration(TYPE, self.offer.resource, [VERSION], self._note_registration)
        )
        return None

    def _note_registration(self, status: RegistrationStatus) -> None:
        if status.plugin_registered:
            self._introduced = self._running
            self._log.info("registered", shares=len(self._offer.shares), socket=str(self._socket))
        else:
            self._log.warning("registration failed, the kubelet tries again", reason=status.error)


# The two ways to be known to a kubelet.


class Registry(StrEnum):
    """The kubelet's folder in which a device plugin's socket is.

    With DEVICE_PLUGINS the agent calls the kubelet, of any version. With PLUGINS_REGISTRY the
    kubelet finds the agent, since Kubernetes 1.13.
    """

    DEVICE_PLUGINS = "device-plugins"
    PLUGINS_REGISTRY = "plugins_registry"


def serve(
    registry: Registry, folders: Folders, offer: Offer, handlers: PluginHandlers
) -> PluginServer:
    """Return a server of `offer`, not yet running.

    Raise Refused for PLUGINS_REGISTRY when the kubelet's folder of that name is not there.
    """
    if registry is Registry.DEVICE_PLUGINS:
        return DevicePlugin(folders.device_plugins, offer, handlers)
    if folders.plugins_registry is None:
        remedy = "Mount the host's folder of that name (hostPath), or register in device-plugins"
        raise Refused("the kubelet's plugins_registry is not there", remedy=remedy)
    return WatchedPlugin(folders.plugins_registry, offer, handlers)
