"""Where this host's runtime looks for CNI, and the host's other CNI plugins in that place.

Part of attach/node_networks. The runtime itself is asked, in each round of the
keeper: an upgrade may move the folders, and an agent sees only as much of the host as its manifest
mounts. One that says nothing, as CRI-O, is judged by its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.cni.conf.places import CniPlaces, find, inside, places
from kube_rdma.adapters.cni.exec.plugins import HostPlugins
from kube_rdma.adapters.cni.exec.process import ProcessOutcome
from kube_rdma.adapters.runtime.cri import read_runtime


class HostPlaces:
    """One per agent; also the folder of plugins that adapters/cni/exec calls, where it is now."""

    def __init__(self, host: Path, runtime: Path) -> None:
        self._host = host
        self._runtime = runtime
        self._runtime_places: CniPlaces | None = None
        self._now: CniPlaces | None = None
        self.root, self.folder = str(host), ""

    @property
    def now(self) -> CniPlaces:
        """As they were found last; raise Refused when that was never possible."""
        return self._now or find(self._host)

    async def find(self) -> CniPlaces:
        """Look again; raise Refused. While the runtime is away, what it said last holds."""
        try:
            runtime = await read_runtime(self._runtime)
        except Unavailable:
            runtime = None
        if runtime and runtime.cni_conf:
            source = f"{runtime.name} on {self._runtime}"
            self._runtime_places = places(runtime.cni_conf, runtime.cni_binaries, source)
        self._now = self._runtime_places or find(self._host)
        self.folder = str(self._now.binaries)
        return self._now

    def names(self) -> tuple[str, ...]:
        """As Binaries.names of cni_exec."""
        return self._plugins.names()

    def inode(self, path: str) -> int | None:
        """As Binaries.inode."""
        return self._plugins.inode(path)

    def run(self, name: str, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """As Binaries.run."""
        return self._plugins.run(name, environment, text)

    @property
    def _plugins(self) -> HostPlugins:
        return HostPlugins(self._host, self.now.binaries, partial(inside, self._host))
