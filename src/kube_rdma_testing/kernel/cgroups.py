"""Control groups in memory, with the rdma controller: what kernel/cgroup/{cgroup,rdma}.c do.

A group has rdma.max and rdma.current only where its parent has the controller in
cgroup.subtree_control. What the kernel refuses is refused here, with its errno. A controller that
the group itself lacks cannot be enabled for its children (ENOENT), and none can while the group has
processes (EBUSY). A line of rdma.max may be malformed (EINVAL) or name an unknown device (ENODEV).
An object beyond a limit of the group or of one above it is refused too (EAGAIN).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

_NO_LIMIT = 2**31 - 1  # S32_MAX
_KINDS = ("hca_handle", "hca_object")
_ALL = "cpuset cpu io memory hugetlb pids rdma misc"


@dataclass
class _Group:
    """A fake control group, with limits and current use by device and kind of object."""

    enabled: set[str] = field(default_factory=set)
    processes: bool = False
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    current: dict[tuple[str, str], int] = field(default_factory=dict)


class FakeCgroups:
    """The fake control groups of a node; with `v1` the hierarchy of cgroup v2 is not mounted."""

    def __init__(self, controllers: str = _ALL, *, v1: bool = False) -> None:
        self.devices: list[str] = []
        self.writes: list[tuple[str, str]] = []
        self._controllers = frozenset(controllers.split())
        self._groups: dict[str, _Group] = {"": _Group()}
        self._v1 = v1

    def make(self, path: str, *, delegated: bool = True, processes: bool = False) -> None:
        """Make a group and every group above it that does not exist.

        With `delegated` all controllers are enabled above it. With `processes` there are processes
        in it.
        """
        above = ""
        for name in path.split("/"):
            if delegated:
                self._groups[above].enabled |= self._has(above)
            above = f"{above}/{name}".lstrip("/")
            self._groups.setdefault(above, _Group())
        self._groups[path].processes = processes

    def end(self, path: str) -> None:
        """Remove a group."""
        del self._groups[path]

    def register(self, device: str) -> None:
        """Add an RDMA device."""
        self.devices.append(device)

    def unregister(self, device: str) -> None:
        """Remove an RDMA device, its limits and its charges (rdmacg_unregister_device)."""
        self.devices.remove(device)
        for group in self._groups.values():
            for kind in _KINDS:
                group.limits.pop((device, kind), None)
                group.current.pop((device, kind), None)

    def charge(self, path: str, device: str, kind: str = "hca_object") -> None:
        """Charge a group and all above it for one object; raise OSError (EAGAIN) if one is full."""
        groups = [self._groups[one] for one in self._above(path) if self._is_limited(one)]
        key = device, kind
        if any(one.current.get(key, 0) >= one.limits.get(key, _NO_LIMIT) for one in groups):
            raise _error(errno.EAGAIN)
        for group in groups:
            group.current[key] = group.current.get(key, 0) + 1

    def uncharge(self, path: str, device: str, kind: str, count: int) -> None:
        """Take `count` objects off a group and off all above it."""
        for group in map(self._groups.__getitem__, self._above(path)):
            if (device, kind) in group.current:
                group.current[device, kind] -= count

    def read(self, path: str) -> str:
        """Return the text of a file, as HostCgroups.read does."""
        folder, name = self._file(path)
        group = self._groups[folder]
        if name == "cgroup.controllers":
            return " ".join(sorted(self._has(folder))) + "\n"
        if name == "cgroup.subtree_control":
            return " ".join(sorted(group.enabled)) + "\n"
        if name == "rdma.max":
            return self._table(group.limits, _NO_LIMIT)
        return self._table(group.current, 0)

    def write(self, path: str, text: str) -> None:
        """Write a text to a file, as HostCgroups.write does."""
        folder, name = self._file(path)
        self.writes.append((path, text))
        if name == "cgroup.subtree_control":
            self._enable(folder, text)
        elif name == "rdma.max":
            self._limit(self._groups[folder], text)
        else:
            raise _error(errno.EACCES)

    def groups(self, path: str) -> tuple[str, ...]:
        """Return the names of a group's child groups; raise OSError (ENOENT) without the group."""
        if path not in self._groups:
            raise _error(errno.ENOENT)
        above = (one.rpartition("/") for one in self._groups if one)
        return tuple(sorted(name for folder, _, name in above if folder == path))

    def is_group(self, path: str) -> bool:
        """Return whether a group exists at the path."""
        return path in self._groups

    def _file(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        has = {"cgroup.controllers", "cgroup.subtree_control"}
        if folder in self._groups and self._is_limited(folder):
            has |= {"rdma.max", "rdma.current"}
        if self._v1 or folder not in self._groups or name not in has:
            raise _error(errno.ENOENT)
        return folder, name

    def _has(self, path: str) -> set[str]:
        """Return the controllers that a group has, which its parent passes on."""
        return set(self._groups[path.rpartition("/")[0]].enabled if path else self._controllers)

    def _is_limited(self, path: str) -> bool:
        return bool(path) and "rdma" in self._has(path)

    def _above(self, path: str) -> list[str]:
        parts = path.split("/")
        return ["/".join(parts[: n + 1]) for n in range(len(parts))]

    def _enable(self, path: str, text: str) -> None:
        wanted = {word.removeprefix("+") for word in text.split() if word.startswith("+")}
        if not wanted <= self._has(path):
            raise _error(errno.ENOENT)
        if path and self._groups[path].processes:
            raise _error(errno.EBUSY)
        self._groups[path].enabled |= wanted

    def _limit(self, group: _Group, text: str) -> None:
        device, *pairs = text.split() or [""]
        limits = {}
        for kind, sign, value in (pair.partition("=") for pair in pairs):
            if kind not in _KINDS or not sign or not (value == "max" or value.isdecimal()):
                raise _error(errno.EINVAL)
            limits[device, kind] = _NO_LIMIT if value == "max" else int(value)
        if not limits:
            raise _error(errno.EINVAL)
        if device not in self.devices:
            raise _error(errno.ENODEV)
        group.limits |= limits

    def _table(self, numbers: dict[tuple[str, str], int], default: int) -> str:
        """Return a table with a line for each device, which ends in a blank like the kernel's."""
        lines = []
        for device in self.devices:
            values = ((kind, numbers.get((device, kind), default)) for kind in _KINDS)
            words = (f"{k}={'max' if n == _NO_LIMIT else n}" for k, n in values)
            lines.append(f"{device} {' '.join(words)} \n")
        return "".join(lines)


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
