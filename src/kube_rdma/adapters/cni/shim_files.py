"""Keeps files by which agent and shim know of each other's work while the agent is away.

The agent keeps an empty file for every pod of its node that asks something of kube-rdma, and for
every namespace with a prepared claim. Where the runtime does not tell what a pod asks for, the shim
lets chained ADDs of other pods pass while the agent is away. The shim keeps an empty file for every
DEL that was not answered; an agent that is back carries it out. Names alone say everything, so no
write can be torn (docs/decisions/0008-shim.md). Times of the agent's files tell a restarted agent
since when something holds.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from kube_base.os_files import needed
from kube_rdma.model.attach.cni import CniAttachment
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName

ASKING = Path("/var/lib/kube-rdma/asking")  # on disk: a node starts its pods before the agent
CLAIMED = Path("/var/lib/kube-rdma/claimed")  # likewise, and as long as claims are prepared
MISSED = Path("/run/kube-rdma/missed")  # in memory: after a boot, no sandbox is left to delete

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_POD = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class AskingPods:
    """The list on disk of pods that the shim holds back while the agent is away.

    Pods are listed by namespace and name, not by UID: static pods have another UID in the API than
    at the runtime. A pod of the same name that is made meanwhile is taken to ask for the
    same as its predecessor.
    """

    def __init__(self, path: Path = ASKING) -> None:
        self.path = path

    def keep(self, pods: frozenset[PodName]) -> None:
        """List these pods, and remove all others from disk; raise Unavailable if that fails."""
        kept = self.present()
        with _used(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for pod in sorted(pods - kept, key=str):
                # Anything else is no name that Kubernetes gives, and would be a path.
                if _NAMESPACE.fullmatch(pod.namespace) and _POD.fullmatch(pod.name):
                    folder = self.path / pod.namespace
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    (folder / pod.name).touch(mode=0o600)
            for pod in sorted(kept - pods, key=str):
                (self.path / pod.namespace / pod.name).unlink(missing_ok=True)
                with suppress(OSError):  # others of the namespace are still there
                    (self.path / pod.namespace).rmdir()

    def since(self, pod: PodName) -> int | None:
        """Return since when a pod is listed, in nanoseconds of the wall clock.

        Return None if it is not listed. Raise Unavailable when the file cannot be looked at.
        """
        return _made(self.path / pod.namespace / pod.name)

    def present(self) -> frozenset[PodName]:
        """Return the listed pods; raise Unavailable when the folder cannot be read."""
        with _used(self.path):
            return frozenset(PodName(file.parent.name, file.name) for file in self.path.glob("*/*"))


class ClaimedNamespaces:
    """Namespaces whose pods the shim holds back while the agent is away.

    A namespace is listed while a claim of it is prepared on the node. No annotation tells which pod
    has the claim, and for a second pod of a claim the kubelet calls no driver.
    """

    def __init__(self, path: Path = CLAIMED) -> None:
        self.path = path

    def keep(self, namespaces: frozenset[str]) -> None:
        """List these namespaces, and remove all others; raise Unavailable if that fails."""
        with _used(self.path):
            kept = {each.name for each in self.path.iterdir()} if self.path.is_dir() else set()
            if kept == namespaces:
                return
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in filter(_NAMESPACE.fullmatch, namespaces - kept):
                (self.path / name).touch(mode=0o600)
            for name in kept - namespaces:
                (self.path / name).unlink(missing_ok=True)


class Mark:
    """A moment that survives a restart of the agent: the time of an empty file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self) -> None:
        """Create the file of the mark unless it exists; raise Unavailable if that fails."""
        with _used(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.path.touch(mode=0o600, exist_ok=False)

    def clear(self) -> None:
        """Remove the mark. Raise Unavailable if the file cannot be removed."""
        with _used(self.path):
            self.path.unlink(missing_ok=True)

    def since(self) -> int | None:
        """Return the file's time in nanoseconds of the wall clock; None without a mark."""
        return _made(self.path)


class MissedDeletes:
    """The calls of DEL that the agent did not answer, one file for each."""

    def __init__(self, path: Path = MISSED) -> None:
        """Make the folder, without which the shim keeps no DEL; raise Unavailable if that fails."""
        self.path = path
        with _used(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def present(self) -> tuple[CniAttachment, ...]:
        """Return all missed DELs, sorted by name; raise Unavailable for an unreadable folder."""
        with _used(self.path):
            names = sorted(path.name for path in self.path.iterdir())
        return tuple(
            CniAttachment(ContainerId(container), InterfaceName(interface))
            for container, _, interface in [name.partition("@") for name in names]
        )

    def forget(self, attachment: CniAttachment) -> None:
        """Remove the file of a DEL that is done; raise Unavailable if that fails."""
        with _used(self.path):
            path = self.path / f"{attachment.container}@{attachment.interface}"
            path.unlink(missing_ok=True)


def _made(path: Path) -> int | None:
    with _used(path), suppress(FileNotFoundError):
        return path.stat().st_mtime_ns
    return None


def _used(path: Path) -> AbstractContextManager[None]:
    """Return a context that raises Unavailable for an OSError of its block."""
    return needed(path, "used", "it has to be the host's folder, writable and with room")
