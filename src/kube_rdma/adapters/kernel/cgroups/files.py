"""The files of the node's control groups, at the place where the agent sees them.

The agent's own /sys/fs/cgroup shows its own group, read-only; the node's is mounted beside it
(docs/agent.md). kube_rdma_testing/kernel/cgroups has the same files in memory, and refuses what the
kernel refuses.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Protocol

HOST_CGROUPS = PurePosixPath("/sys/fs/cgroup")
"""On the node; the agent sees the node's root at another place."""


class CgroupFiles(Protocol):
    """Paths are below the root of the hierarchy, which is ""; all raise OSError."""

    def read(self, path: str) -> str:
        """The text of a file."""

    def write(self, path: str, text: str) -> None:
        """Write a file, in one call of the kernel."""

    def groups(self, path: str) -> tuple[str, ...]:
        """The names of the groups in a group, sorted."""

    def is_group(self, path: str) -> bool:
        """Whether there is such a group."""


class HostCgroups:
    """The real ones."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> str:
        """As CgroupFiles.read."""
        return (self._root / path).read_text()

    def write(self, path: str, text: str) -> None:
        """As CgroupFiles.write; a file that is not there is not made."""
        with (self._root / path).open("r+b", buffering=0) as file:
            file.write(text.encode())

    def groups(self, path: str) -> tuple[str, ...]:
        """As CgroupFiles.groups."""
        return tuple(sorted(one.name for one in (self._root / path).iterdir() if one.is_dir()))

    def is_group(self, path: str) -> bool:
        """As CgroupFiles.is_group."""
        return (self._root / path).is_dir()
