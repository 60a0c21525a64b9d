"""The kubelet's door for a driver of dynamic resource allocation: one socket in plugins_registry.

    plugins_registry ─ GetInfo ─► DRAPlugin ─► NodePrepareResources, NodeUnprepareResources
                               └► DRAResourceHealth ─► NodeWatchResources (claim_plugin.py)

The kubelet finds the socket, and again whenever it starts (pkg/kubelet/pluginmanager), so a kubelet
that restarts registers the driver by itself; a socket that somebody removed is made anew. The
kubelet calls once for a claim, however many pods share it; a claim that failed it asks for again.
Decides nothing: the answers are those of the functions that the program handed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog
from grpclib.server import Server, Stream

from kube_base.backoff import LONGEST, full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.kubelet.folders import Identity, identity, watching
from kube_rdma.adapters.kubelet.proto import dra_health_v1_pb2 as v1
from kube_rdma.adapters.kubelet.proto import dra_health_v1alpha1_pb2 as v1alpha1
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as registration
from kube_rdma.adapters.kubelet.proto.dra_health_v1_grpc import DRAResourceHealthBase as V1Base
from kube_rdma.adapters.kubelet.proto.dra_health_v1alpha1_grpc import (
    DRAResourceHealthBase as V1Alpha1Base,
)
from kube_rdma.adapters.kubelet.proto.dra_v1_grpc import DRAPluginBase
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationBase
from kube_rdma.adapters.kubelet.rpc import Requests
from kube_rdma.model.claims.claim import ClaimName, PreparedDevice
from kube_rdma.model.claims.devices import DeviceHealth

# The health of devices that claims hold, as a stream to the kubelet (KEP-4680).

SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
REPEAT_SECONDS = 10.0
LONGEST_MESSAGE = 1024  # bytes, ResourceHealthMessageMaxLength of core/v1: the kubelet cuts runes


class ClaimHealth:
    """The devices of one driver as they are now. `clock` is the wall clock, `repeat` for tests."""

    def __init__(
        self, clock: Callable[[], float] = time.time, repeat: float = REPEAT_SECONDS
    ) -> None:
        self._clock = clock
        self._repeat = repeat
        self._devices: tuple[DeviceHealth, ...] | None = None  # None: nobody has looked yet
        self._changed = asyncio.Event()

    def publish(self, devices: Sequence[DeviceHealth]) -> None:
        """Tell all devices from now on; every stream hears of a change at once."""
        if (listed := tuple(devices)) != self._devices:
            self._devices = listed
            # Each state has its own event, so that no stream can miss one or clear another's.
            self._changed.set()
            self._changed = asyncio.Event()

    def services(self, driver: str) -> tuple[_V1, _V1Alpha1]:
        """What has to stand on the driver's socket."""
        return _V1(driver, self), _V1Alpha1(driver, self)

    async def send(self, stream: Stream[Any, Any], wire: ModuleType) -> None:
        """Send all devices now, at each change and again in between, until the stream ends."""
        while True:
            changed = self._changed
            if self._devices is not None:
                await stream.send_message(self._message(wire, self._devices))
            try:
                async with asyncio.timeout(self._repeat):
                    await changed.wait()
            except TimeoutError:
                continue

    def _message(self, wire: ModuleType, devices: Sequence[DeviceHealth]) -> object:
        now = int(self._clock())
        return wire.NodeWatchResourcesResponse(
            devices=[
                wire.DeviceHealth(
                    device=wire.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
                    health=_status(wire, one.healthy),
                    last_updated_time=now,
                    message=shortened(one.message),
                )
                for one in devices
            ]
        )


class _V1(V1Base):
    """The service of Kubernetes 1.37 and later."""

    def __init__(self, driver: str, health: ClaimHealth) -> None:
        self._requests = Requests(driver)
        self._health = health

    async def NodeWatchResources(  # noqa: N802  names of the wire
        self, stream: Stream[v1.NodeWatchResourcesRequest, v1.NodeWatchResourcesResponse]
    ) -> None:
        """Tell how the devices are until the kubelet hangs up."""
        await self._requests.receive(stream)
        await self._health.send(stream, v1)


class _V1Alpha1(V1Alpha1Base):
    """The service of Kubernetes 1.34 to 1.36."""

    def __init__(self, driver: str, health: ClaimHealth) -> None:
        self._requests = Requests(driver)
        self._health = health

    async def NodeWatchResources(  # noqa: N802
        self,
        stream: Stream[v1alpha1.NodeWatchResourcesRequest, v1alpha1.NodeWatchResourcesResponse],
    ) -> None:
        """Tell how the devices are until the kubelet hangs up."""
        await self._requests.receive(stream)
        await self._health.send(stream, v1alpha1)


def shortened(message: str) -> str:
    """The message within what the kubelet keeps, cut between characters."""
    content = message.encode()
    if len(content) <= LONGEST_MESSAGE:
        return message
    return content[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."


def _status(wire: ModuleType, healthy: bool | None) -> int:
    if healthy is None:
        return int(wire.UNKNOWN)
    return int(wire.HEALTHY if healthy else wire.UNHEALTHY)


TYPE = "DRAPlugin"  # what the kubelet calls plugins of this kind
SERVICE = "v1.DRAPlugin"  # k8s.io/kubelet/pkg/apis/dra/v1/types.go; Kubernetes 1.34 and later

log = structlog.get_logger()


class ClaimHandlers(Frozen):
    """Who answers for a claim; each raises KubeError, which the kubelet shows as an Event."""

    prepare: Callable[[ClaimName], Awaitable[Sequence[PreparedDevice]]]
    unprepare: Callable[[ClaimName], Awaitable[None]]


class ClaimPlugin:
    """One driver on one node; `folder` is the kubelet's plugins_registry.

    Without `health` the kubelet is told nothing of devices, and says so of none.
    """

    def __init__(
        self, folder: Path, driver: str, answers: ClaimHandlers, health: ClaimHealth | None = None
    ) -> None:
        self._folder = folder
        self._socket = folder / f"{driver}.sock"
        services = (SERVICE, *(SERVICES if health else ()))
        self._services = (
            _DriverInfo(driver, services),
            _ClaimService(driver, answers),
            *(health.services(driver) if health else ()),
        )

    async def run(self) -> None:
        """Serve until cancelled, then remove the socket; raise Refused where it cannot be made."""
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            since = clock()
            await self._serve()
            log.warning("socket removed", socket=str(self._socket))
            # Two drivers of one name would else fight at full speed.
            failures = 0 if clock() - since > LONGEST else failures + 1
            await asyncio.sleep(full_jitter(failures))

    async def _serve(self) -> None:
        """Serve until the socket is not there any more, or another one is."""
        server = Server(self._services)
        try:
            # asyncio removes a socket that an earlier process left under this name.
            await server.start(path=str(self._socket))
        except OSError as error:
            raise Refused(
                f"the socket cannot be made ({error.strerror or error})",
                remedy="Mount the kubelet's plugins_registry writable and run as uid 0",
                where=str(self._socket),
            ) from error
        own = identity(self._socket)
        try:
            await self._while_there(own)
        finally:
            if own and identity(self._socket) == own:
                self._socket.unlink(missing_ok=True)
            server.close()

    async def _while_there(self, own: Identity | None) -> None:
        with watching(self._folder, (self._socket.name,)) as changes:
            while own and identity(self._socket) == own:
                await anext(changes)


class _DriverInfo(RegistrationBase):
    """Who the driver is, for the plugin watcher."""

    def __init__(self, driver: str, services: Sequence[str]) -> None:
        self._driver = driver
        self._versions = services
        self._requests = Requests(driver)

    async def GetInfo(  # noqa: N802  names of the wire
        self, stream: Stream[registration.InfoRequest, registration.PluginInfo]
    ) -> None:
        """Name the driver; without an endpoint the kubelet calls the socket that it asked."""
        await self._requests.receive(stream)
        answer = registration.PluginInfo(
            type=TYPE, name=self._driver, supported_versions=self._versions
        )
        await stream.send_message(answer)

    async def NotifyRegistrationStatus(  # noqa: N802
        self,
        stream: Stream[registration.RegistrationStatus, registration.RegistrationStatusResponse],
    ) -> None:
        """Hear whether the kubelet accepted the driver; a failed registration it tries again."""
        status = await self._requests.receive(stream)
        if status.plugin_registered:
            log.info("registered", driver=self._driver)
        else:
            log.warning("registration failed", driver=self._driver, reason=status.error)
        await stream.send_message(registration.RegistrationStatusResponse())


class _ClaimService(DRAPluginBase):
    """What the kubelet asks for pods."""

    def __init__(self, driver: str, answers: ClaimHandlers) -> None:
        self._answers = answers
        self._requests = Requests(driver)

    async def NodePrepareResources(  # noqa: N802
        self, stream: Stream[pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse]
    ) -> None:
        """Prepare each claim; one that fails holds up no other."""
        request = await self._requests.receive(stream)
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            try:
                devices = await self._answers.prepare(_name(claim))
            except Exception as error:  # noqa: BLE001  of one claim
                answer.claims[claim.uid].error = _why(claim, error)
            else:
                answer.claims[claim.uid].devices.extend(map(_device, devices))
        await stream.send_message(answer)

    async def NodeUnprepareResources(  # noqa: N802
        self, stream: Stream[pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse]
    ) -> None:
        """Give back what claims held; each claim has an entry in the answer."""
        request = await self._requests.receive(stream)
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            try:
                await self._answers.unprepare(_name(claim))
                answer.claims[claim.uid].SetInParent()
            except Exception as error:  # noqa: BLE001  of one claim
                answer.claims[claim.uid].error = _why(claim, error)
        await stream.send_message(answer)


def _why(claim: pb.Claim, error: Exception) -> str:
    """What the kubelet shows as an Event of the pod."""
    is_meant = isinstance(error, KubeError)
    return str(error) if is_meant else object_failed("ResourceClaim", _name(claim), error)


def _name(claim: pb.Claim) -> ClaimName:
    return ClaimName(claim.namespace, claim.name, claim.uid)


def _device(device: PreparedDevice) -> pb.Device:
    return pb.Device(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi,
        share_id=device.share,
    )
