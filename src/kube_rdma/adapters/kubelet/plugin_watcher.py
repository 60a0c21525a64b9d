"""Keeps one resource registered in ``plugins_registry``, where the kubelet finds it.

The kubelet's plugin watcher sees the socket there, asks who is behind it (GetInfo), connects as to
any device plugin and says how that went. It looks at the folder again when it starts, so the socket
stays while it is away. But a connection that it lost it never makes again until the socket is a new
one (pkg/kubelet/pluginmanager), so it is made anew then.
"""

from __future__ import annotations

from grpclib.server import Stream

from kube_rdma.adapters.kubelet import wire
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationBase
from kube_rdma.adapters.kubelet.resource_server import Served
from kube_rdma.adapters.kubelet.rpc import Requests

TYPE = "DevicePlugin"  # what the kubelet calls plugins of this kind


class WatchedPlugin(Served):
    """One resource of this node, registered by a socket that the kubelet watches for."""

    async def _settle(self) -> float | None:
        await self._mind_the_socket()
        if self._stall and not self._lost:
            return None
        if (pause := self._pause()) > 0:
            return pause
        if self._stall and self._stall.service.watched:
            self._lost = False
            return None  # a kubelet that started has found it meanwhile
        await self._close()
        await self._serve(_Registration(self))
        return None

    def note_registration(self, *, registered: bool, error: str) -> None:
        """The kubelet says how the registration went; a failed one it tries again by itself."""
        if registered:
            self.registered.set()
            self._log.info("registered", shares=len(self._offer.shares), socket=str(self._socket))
        else:
            self._log.warning("registration failed, the kubelet tries again", reason=error)


class _Registration(RegistrationBase):
    """Who the plugin is, for the plugin watcher."""

    def __init__(self, plugin: WatchedPlugin) -> None:
        self._plugin = plugin
        self._requests = Requests(plugin.offer.resource)

    async def GetInfo(  # noqa: N802  names of the wire
        self, stream: Stream[pb.InfoRequest, pb.PluginInfo]
    ) -> None:
        """Name the resource.

        No endpoint: the kubelet then takes the socket that it asked, under the path that it has on
        the host and not in the agent's mount namespace.
        """
        await self._requests.receive(stream)
        await stream.send_message(
            pb.PluginInfo(
                type=TYPE, name=self._plugin.offer.resource, supported_versions=[wire.VERSION]
            )
        )

    async def NotifyRegistrationStatus(  # noqa: N802
        self, stream: Stream[pb.RegistrationStatus, pb.RegistrationStatusResponse]
    ) -> None:
        """Hear whether the kubelet accepted the plugin."""
        status = await self._requests.receive(stream)
        self._plugin.note_registration(registered=status.plugin_registered, error=status.error)
        await stream.send_message(pb.RegistrationStatusResponse())
