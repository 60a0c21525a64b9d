"""The fake kubelet's plugin watcher: finds sockets in plugins_registry and asks for their plugins.

Follows pkg/kubelet/pluginmanager of Kubernetes 1.36. A socket is registered once, when it appears
or when the kubelet starts, and tried again until that works. A lost connection changes nothing. A
new socket under an old name is unregistered and registered again. Names that begin with a dot are
skipped. The real one looks every second and waits longer after each failure.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from asyncinotify import Inotify, Mask
from grpclib import GRPCError
from grpclib.client import Channel
from grpclib.exceptions import StreamTerminatedError

from kube_rdma.adapters.kubelet.folders import identity
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationStub

_AGAIN_SECONDS = 0.05
_INFO_SECONDS = 1.0
_NOTIFY_SECONDS = 5.0


class Manager(Protocol):
    """A protocol of managers, such as the device manager, that serve one type of plugin."""

    async def connect(self, resource: str, path: Path, versions: list[str]) -> None:
        """Connect to a plugin; raise RuntimeError when the manager refuses it."""

    async def disconnect(self, resource: str) -> None:
        """Drop the plugin of this name."""


class FakeRegistry:
    """A fake of the kubelet's plugin watcher, which watches a folder from `start` to `stop`."""

    def __init__(self, folder: Path, manager: Manager) -> None:
        self._folder = folder
        self._manager = manager
        self._registered: dict[Path, str] = {}  # resource by socket
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._inotify: Inotify | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register the plugins whose sockets are in the folder, and watch it for more."""
        self._inotify = Inotify()
        self._inotify.add_watch(
            self._folder, Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
        )
        for path in self._folder.iterdir():
            self._look(path)
        self._watcher = asyncio.create_task(self._watch(self._inotify))

    async def stop(self) -> None:
        """Stop watching and forget all plugins; their sockets stay."""
        tasks = [*self._tasks.values(), *([self._watcher] if self._watcher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._registered.clear()
        if self._inotify:
            self._inotify.close()
        self._inotify = self._watcher = None

    async def _watch(self, inotify: Inotify) -> None:
        async for event in inotify:
            if event.name is not None:
                self._look(self._folder / event.name)

    def _look(self, path: Path) -> None:
        """Start handling a socket that appeared or vanished, and cancel its earlier handling."""
        if path.name.startswith("."):
            return
        if path in self._tasks:
            self._tasks[path].cancel()
        self._tasks[path] = asyncio.create_task(self._settle(path))

    async def _settle(self, path: Path) -> None:
        if path in self._registered:
            await self._manager.disconnect(self._registered.pop(path))
        while identity(path):
            if await self._register(path):
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _register(self, path: Path) -> bool:
        channel = Channel(path=str(path))
        stub = RegistrationStub(channel)
        try:
            info = await stub.GetInfo(pb.InfoRequest(), timeout=_INFO_SECONDS)
            if info.type == "DRAPlugin":  # taken, and never asked for a claim
                await self._notify(stub, "")
                return True
            if info.type != "DevicePlugin":
                await self._notify(stub, f"no handler registered for plugin type: {info.type}")
                return False
            socket = Path(info.endpoint) if info.endpoint else path
            try:
                await self._manager.connect(info.name, socket, list(info.supported_versions))
            except RuntimeError as error:
                await self._notify(stub, f"plugin registration failed with err: {error}")
                return False
            self._registered[path] = info.name
            await self._notify(stub, "")
        except (OSError, GRPCError, StreamTerminatedError):
            if path in self._registered:
                await self._manager.disconnect(self._registered.pop(path))
            return False
        finally:
            channel.close()
        return True

    async def _notify(self, stub: RegistrationStub, error: str) -> None:
        status = pb.RegistrationStatus(plugin_registered=not error, error=error)
        await stub.NotifyRegistrationStatus(status, timeout=_NOTIFY_SECONDS)
