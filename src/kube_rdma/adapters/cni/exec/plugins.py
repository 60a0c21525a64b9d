"""Calling CNI plugins of others: ADD along a list, DEL back along it, CHECK.

    plugins = Plugins(Host(root=Path("/host"), folder=PurePosixPath("/opt/cni/bin"), …))
    result = plugins.add(call, sandbox)

attach/rules/foreign_plugins makes the calls, attach/executor journals them.
What libcni does for a container runtime is done here for one interface. Plugins see the host's
root, and the pod's namespace at the path that the runtime named: they compare it between calls, and
hand it to daemons. Plain functions that block; a program calls them in a thread. The fake host is
kube_rdma_testing/cni/plugins.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.cni import results
from kube_rdma.adapters.cni.exec import protocol
from kube_rdma.adapters.cni.exec.process import PATIENCE, ProcessOutcome, command, run
from kube_rdma.model.attach.attachment import PluginResult, Sandbox
from kube_rdma.model.attach.cni import Verb
from kube_rdma.model.attach.steps import CallPlugin, PluginConf

_KEEPS_RESULTS = (0, 4, 0)  # from here on CHECK and DEL are told what ADD answered


class Binaries(Protocol):
    """The host's folder of CNI binaries; `root` and `folder` are for messages and plugins."""

    root: str
    folder: str

    def names(self) -> tuple[str, ...]:
        """What can be run there, sorted; raise Unavailable when it cannot be read."""

    def inode(self, path: str) -> int | None:
        """Of a file as the plugins see it; None when they see none."""

    def run(self, name: str, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """Run one to its end; raise Refused without it, Unavailable when it gives no answer."""


class Plugins:
    """Calls for the interfaces of pods. Those for one sandbox come one after the other."""

    def __init__(self, binaries: Binaries) -> None:
        self._binaries = binaries

    @property
    def folder(self) -> str:
        """Where the binaries are, as the host names it."""
        return self._binaries.folder

    def installed(self) -> tuple[str, ...]:
        """The plugins that can be called; raise Unavailable when the folder cannot be read."""
        return self._binaries.names()

    def ready(self, call: CallPlugin) -> None:
        """Raise Refused or Unavailable for plugins that this machine cannot run.

        They are asked for their VERSION, which changes nothing: one that cannot be run at ADD could
        not be at DEL either, and would hold the pod forever.
        """
        for plugin in call.plugins:
            outcome = self._run(plugin.type, protocol.asking(self._binaries.folder), b"{}")
            if outcome.code and (error := protocol.not_started(plugin.type, outcome, self._root)):
                raise error

    def add(self, call: CallPlugin, sandbox: Sandbox) -> PluginResult:
        """Make the interface, or have addresses for it; the answer of the last plugin.

        Whatever it raises, delete() has to follow: Refused when the asker must change something,
        Unavailable when a plugin fails.
        """
        netns = self._netns_path(sandbox)
        variables = self._variables(Verb.ADD, call, sandbox, netns)
        previous = None
        for plugin in call.plugins:
            previous = protocol.result(plugin.type, self._call(plugin, variables, previous))
        assert previous is not None  # no list is empty
        if call.addresses:
            previous = protocol.addresses(call.plugins[0].type, previous, call.name, netns)
        return PluginResult(call.name, previous, results.dns_of(previous))

    def check(self, call: CallPlugin, sandbox: Sandbox, result: PluginResult | None) -> None:
        """Ask each whether all is as it made it; raise as add, with what is wrong."""
        if not call.check or not _keeps_results(call):
            return
        variables = self._variables(Verb.CHECK, call, sandbox, self._netns_path(sandbox))
        for plugin in call.plugins:
            self._call(plugin, variables, result.document if result else None)

    def status(self, plugin: PluginConf) -> None:
        """Ask whether it could serve an ADD; raise as add, with why not."""
        self._call(plugin, protocol.asking(self._binaries.folder, Verb.STATUS), None)

    def delete(self, call: CallPlugin, sandbox: Sandbox, result: PluginResult | None) -> None:
        """Take it back, all or what there is of it, also when the pod's namespace is gone.

        Raise as add. It may be called again, and without an ADD.
        """
        visible = self._binaries.inode(sandbox.netns_path) == sandbox.netns_inode
        netns = sandbox.netns_path if visible else ""
        variables = self._variables(Verb.DEL, call, sandbox, netns)
        previous = result.document if result and _keeps_results(call) else None
        for plugin in reversed(call.plugins):
            self._call(plugin, variables, previous)

    def _netns_path(self, sandbox: Sandbox) -> str:
        """The path of the namespace; raise when the plugins do not see it there."""
        path, root = sandbox.netns_path, self._root
        if self._binaries.inode(path) == sandbox.netns_inode:
            return path
        if root == "/":
            raise Unavailable(f"The network namespace {path} is gone.")
        folder = PurePosixPath(path).parent
        if self._binaries.inode(str(folder)) is None:
            raise Refused(
                f"CNI plugins do not see the pod's namespace {path}",
                remedy=f"Mount the host's {folder} at {root}{folder} in the agent's pod, with "
                "mountPropagation: HostToContainer",
            )
        raise Unavailable(
            f"CNI plugins do not see the pod's namespace {path}: it is gone, or the mount at "
            f"{root}{folder} lacks mountPropagation: HostToContainer."
        )

    def _variables(
        self, verb: Verb, call: CallPlugin, sandbox: Sandbox, netns: str
    ) -> dict[str, str]:
        return protocol.environment(verb, sandbox, call.name, netns, self._binaries.folder)

    def _call(
        self, plugin: PluginConf, variables: Mapping[str, str], previous: bytes | None
    ) -> bytes:
        """What it answers; raise with what it says when it fails."""
        outcome = self._run(plugin.type, variables, protocol.config(plugin, previous))
        if outcome.code:
            verb = Verb(variables["CNI_COMMAND"])
            raise protocol.failure(plugin.type, verb, outcome, self._root)
        return outcome.out

    def _run(self, name: str, variables: Mapping[str, str], text: bytes) -> ProcessOutcome:
        try:
            return self._binaries.run(name, variables, text)
        except Unavailable as error:
            raise Unavailable(f"The CNI plugin {name} gives no answer: {error}.") from error

    @property
    def _root(self) -> str:
        return self._binaries.root


class HostPlugins:
    """The real folder. `root` is the host's root as the agent sees it, `folder` is as on the host.

    `inside` says where the agent reaches a path of the host, with its links followed as the host
    would.
    """

    def __init__(
        self,
        root: Path,
        folder: PurePosixPath,
        inside: Callable[[PurePosixPath], Path],
        patience: float = PATIENCE,
    ) -> None:
        self.root, self.folder = str(root), str(folder)
        self._root, self._folder, self._inside = root, folder, inside
        self._patience = patience

    def names(self) -> tuple[str, ...]:
        """As Binaries.names."""
        try:
            file_names = sorted(path.name for path in self._inside(self._folder).iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unavailable(f"{self.folder} cannot be read ({error.strerror}).") from error
        return tuple(name for name in file_names if self._can_run(name))

    def inode(self, path: str) -> int | None:
        """As Binaries.inode."""
        try:
            return self._inside(PurePosixPath(path)).stat().st_ino
        except OSError:
            return None

    def run(self, name: str, environment: Mapping[str, str], text: bytes) -> ProcessOutcome:
        """As Binaries.run."""
        if not self._can_run(name):
            raise not_there(name, self.folder)
        words = command(self._root, Path(self._folder / name))
        try:
            return run(words, environment, text, patience=self._patience)
        except OSError as error:
            raise Unavailable(f"it cannot be started ({error.strerror})") from error

    def _can_run(self, name: str) -> bool:
        path = self._inside(self._folder / name)
        return path.is_file() and os.access(path, os.X_OK)


def not_there(name: str, folder: str) -> Refused:
    """The plugin was taken away since it was planned with."""
    return Refused(
        f"the host has no CNI plugin {name} that can be run",
        remedy=f"Install {name} in {folder} again: only it can take back what it made",
        where=folder,
    )


def _keeps_results(call: CallPlugin) -> bool:
    parts = call.version.split(".")
    return tuple(int(part) for part in parts if part.isdecimal()) >= _KEEPS_RESULTS
