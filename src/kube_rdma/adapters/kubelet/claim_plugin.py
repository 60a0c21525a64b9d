"""Serves the kubelet's API of dynamic resource allocation: one socket in plugins_registry.

    plugins_registry ─ GetInfo ─► DRAPlugin ─► NodePrepareResources, NodeUnprepareResources
                               └► DRAResourceHealth ─► NodeWatchResources

The kubelet finds the socket, and again whenever it starts (pkg/kubelet/pluginmanager). So a kubelet
that restarts registers the driver by itself. A socket that somebody removed is made anew. The
kubelet calls once for a claim, however many pods share it. It calls again for a claim that failed,
and may after its own restart. The handlers that the agent hands in decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog
from grpclib.server import Server, Stream

from kube_base.backoff import LONGEST, full_jitter, has_happened
from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.kubelet.folders import identity, watching
from kube_rdma.adapters.kubelet.proto import dra_health_v1_pb2 as v1
from kube_rdma.adapters.kubelet.proto import dra_health_v1alpha1_pb2 as v1alpha1
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.dra_health_v1_grpc import DRAResourceHealthBase as V1Base
from kube_rdma.adapters.kubelet.proto.dra_health_v1alpha1_grpc import (
    DRAResourceHealthBase as V1Alpha1Base,
)
from kube_rdma.adapters.kubelet.proto.dra_v1_grpc import DRAPluginBase
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_pb2 import RegistrationStatus
from kube_rdma.adapters.kubelet.rpc import PluginRegistration, Requests, connected, listen
from kube_rdma.model.claims.claim import ClaimName, PreparedDevice
from kube_rdma.model.claims.devices import DeviceHealth

# Health of the devices that claims hold, as a stream to the kubelet (KEP-4680).

SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
# After so many seconds the kubelet calls a device Unknown, in place of 30 (since Kubernetes 1.36,
# where health is no longer alpha). A stream that ends clears all at once (cm/dra/manager.go).
TIMEOUT_SECONDS = 300
REPEAT_SECONDS = TIMEOUT_SECONDS / 3
_HEALTH = {None: v1.UNKNOWN, True: v1.HEALTHY, False: v1.UNHEALTHY}  # v1alpha1 has the same
LONGEST_MESSAGE = 1024  # bytes, ResourceHealthMessageMaxLength of core/v1: the kubelet cuts runes


class ClaimHealth:
    """The present health of one driver's devices, for the kubelet's streams."""

    def __init__(
        self, clock: Callable[[], float] = time.time, repeat: float = REPEAT_SECONDS
    ) -> None:
        self._clock = clock
        self._repeat = repeat
        self._devices: tuple[DeviceHealth, ...] | None = None  # None: nothing was published yet
        self._changed = asyncio.Event()

    def publish(self, devices: Sequence[DeviceHealth]) -> None:
        """Set the health of all devices to report; every open stream sends a change at once."""
        if (listed := tuple(devices)) != self._devices:
            self._devices = listed
            # Each state has its own event, so that no stream can miss one or clear another's.
            self._changed.set()
            self._changed = asyncio.Event()

    def services(self, driver: str) -> tuple[_V1, _V1Alpha1]:
        """Return the gRPC services that are served on the driver's socket."""
        return _V1(driver, self), _V1Alpha1(driver, self)

    async def send(self, stream: Stream[Any, Any], wire: ModuleType) -> None:
        """Send the health of all devices now, at each change and at intervals, until cancelled.

        `wire` has the messages of the API version. Nothing is sent before the first `publish`.
        """
        while True:
            changed = self._changed
            if self._devices is not None:
                now = int(self._clock())
                answer = wire.NodeWatchResourcesResponse()
                for one in self._devices:
                    answer.devices.add(
                        device=wire.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
                        health=_HEALTH[one.healthy],
                        last_updated_time=now,
                        health_check_timeout_seconds=TIMEOUT_SECONDS,
                        message=shortened(one.message),
                    )
                await stream.send_message(answer)
            await has_happened(changed, self._repeat)


class _HealthService:
    """The DRA health service in either version; both versions have the same messages."""

    wire: ModuleType

    def __init__(self, driver: str, health: ClaimHealth) -> None:
        self._requests = Requests(driver)
        self._health = health

    async def NodeWatchResources(  # noqa: N802  names of the wire
        self, stream: Stream[Any, Any]
    ) -> None:
        """Stream the health of all devices until the kubelet ends the call."""
        await self._requests.receive(stream)
        await self._health.send(stream, self.wire)


class _V1(_HealthService, V1Base):
    """The DRA health service of Kubernetes 1.37 and later."""

    wire = v1


class _V1Alpha1(_HealthService, V1Alpha1Base):
    """The DRA health service of Kubernetes 1.34 to 1.36."""

    wire = v1alpha1


def shortened(message: str) -> str:
    """Return a message cut to the length that the kubelet keeps, between characters."""
    content = message.encode()
    if len(content) <= LONGEST_MESSAGE:
        return message
    return content[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."


# The driver's socket, and the claims that the kubelet has prepared.

TYPE = "DRAPlugin"  # what the kubelet calls plugins of this kind
SERVICE = "v1.DRAPlugin"  # k8s.io/kubelet/pkg/apis/dra/v1/types.go; Kubernetes 1.34 and later

log = structlog.get_logger()


class ClaimHandlers(Frozen):
    """The handlers for claims; each may raise KubeError, which the kubelet shows as an Event."""

    prepare: Callable[[ClaimName], Awaitable[Sequence[PreparedDevice]]]
    unprepare: Callable[[ClaimName], Awaitable[None]]


class ClaimPlugin:
    """The server of one DRA driver on one node; `folder` is the kubelet's plugins_registry.

    Without `health` the kubelet gets no health of devices.
    """

    def __init__(
        self, folder: Path, driver: str, handlers: ClaimHandlers, health: ClaimHealth | None = None
    ) -> None:
        self._folder = folder
        self._socket = folder / f"{driver}.sock"
        services = (SERVICE, *(SERVICES if health else ()))
        self._services = (
            PluginRegistration(TYPE, driver, services, partial(_note_registration, driver)),
            _ClaimService(driver, handlers),
            *(health.services(driver) if health else ()),
        )

    async def run(self) -> None:
        """Serve the kubelet until cancelled, then remove the socket.

        Raise Refused when the socket cannot be made or its folder not be watched. Raise Unavailable
        when the folder is removed, or no inotify instance is left.
        """
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
        """Serve until the socket is removed or replaced."""
        server = Server(self._services)
        await listen(server, self._socket)
        own = identity(self._socket)
        try:
            with watching(self._folder, (self._socket.name,)) as changes:
                while own and identity(self._socket) == own:
                    await anext(changes)
        finally:
            if own and identity(self._socket) == own:
                self._socket.unlink(missing_ok=True)
            await connected()
            server.close()


def _note_registration(driver: str, status: RegistrationStatus) -> None:
    if status.plugin_registered:
        log.info("registered", driver=driver)
    else:
        log.warning("registration failed", driver=driver, reason=status.error)


class _ClaimService(DRAPluginBase):
    """The DRAPlugin service, which the kubelet calls for the claims of pods."""

    def __init__(self, driver: str, handlers: ClaimHandlers) -> None:
        self._handlers = handlers
        self._requests = Requests(driver)

    async def NodePrepareResources(  # noqa: N802
        self, stream: Stream[pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse]
    ) -> None:
        """Prepare each claim of the call; a failed one does not affect the others."""
        request = await self._requests.receive(stream)
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            try:
                devices = await self._handlers.prepare(_name(claim))
            except Exception as error:  # noqa: BLE001  of one claim
                answer.claims[claim.uid].error = _why(claim, error)
            else:
                answer.claims[claim.uid].devices.extend(map(_device, devices))
        await stream.send_message(answer)

    async def NodeUnprepareResources(  # noqa: N802
        self, stream: Stream[pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse]
    ) -> None:
        """Unprepare each claim of the call, and answer for each one."""
        request = await self._requests.receive(stream)
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            try:
                await self._handlers.unprepare(_name(claim))
                answer.claims[claim.uid].SetInParent()
            except Exception as error:  # noqa: BLE001  of one claim
                answer.claims[claim.uid].error = _why(claim, error)
        await stream.send_message(answer)


def _why(claim: pb.Claim, error: Exception) -> str:
    """Return the sentence about a failed claim that the kubelet shows as an Event of the pod."""
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
