"""Reads and sets what a pod may take of each RDMA device: the rdma controller of control groups.

The files are `rdma.max` and `rdma.current` of the pod's group (Linux Documentation/admin-guide/
cgroup-v2.rst, "RDMA"; kernel/cgroup/rdma.c). A line is `rxe0 hca_handle=2 hca_object=max`. Both
files have a line for every device that the controller counts, in all network namespaces. What a
process makes is counted in its group and in all groups above; beyond a limit verbs fail with
EAGAIN. The limits of a device end when it is unregistered, as by a restart of its driver.

The kubelet does not write these files. The kubelet and runc switch every controller on in groups
that they make (opencontainers/cgroups v0.0.6 fs2/create.go). Where the rdma controller is off it is
switched on here, from the root down to the pod's parent.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.model.pools import DeviceLimits, DeviceUse, RdmaLimits

HOST_CGROUPS = PurePosixPath("/sys/fs/cgroup")
"""The folder of cgroups on the node; the agent sees the node's root at another place."""


class HostCgroups:
    """The files of the node's control groups. Methods that read or write raise OSError.

    Paths are relative to `root`, whose own path is "".
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> str:
        """Return the text of a file of a cgroup."""
        return (self._root / path).read_text()

    def write(self, path: str, text: str) -> None:
        """Write a text to an existing file of a cgroup, in one system call."""
        with (self._root / path).open("r+b", buffering=0) as file:
            file.write(text.encode())

    def groups(self, path: str) -> tuple[str, ...]:
        """Return the names of the cgroups inside of one, sorted."""
        return tuple(sorted(one.name for one in (self._root / path).iterdir() if one.is_dir()))

    def is_group(self, path: str) -> bool:
        """Return whether a cgroup exists."""
        return (self._root / path).is_dir()


# Where the group of a pod is.

_CLASSES = ("burstable", "besteffort")
_SLICE = ".slice"
_DEPTH = 4  # groups above kubepods: a node in a container has two or three
_OTHERS = frozenset({"system.slice", "user.slice", "init.scope"})


def places(kubepods: str, uid: str) -> tuple[str, ...]:
    """Return the possible paths of a pod's cgroup below the cgroup `kubepods`."""
    if not kubepods.endswith(_SLICE):
        return tuple(
            f"{above}/pod{uid}" for above in (kubepods, *(f"{kubepods}/{one}" for one in _CLASSES))
        )
    stem, pod = kubepods.rpartition("/")[2].removesuffix(_SLICE), uid.replace("-", "_")
    classes = ((f"{kubepods}/{stem}-{one}{_SLICE}", f"{stem}-{one}") for one in _CLASSES)
    parents = ((kubepods, stem), *classes)
    return tuple(f"{above}/{prefix}-pod{pod}{_SLICE}" for above, prefix in parents)


def _kubepods(files: HostCgroups) -> tuple[str, ...]:
    """Return the paths of cgroups named kubepods, up to four levels deep, the uppermost first."""
    level, places_of_it = [""], []
    for _ in range(_DEPTH):
        below = [
            f"{above}/{name}".lstrip("/")
            for above in level
            for name in _groups(files, above)
            if name not in _OTHERS
        ]
        places_of_it += [path for path in below if _is_kubepods(path.rpartition("/")[2])]
        level = [path for path in below if not _is_kubepods(path.rpartition("/")[2])]
    return tuple(places_of_it)


def _is_kubepods(name: str) -> bool:
    return name in ("kubepods", f"kubepods{_SLICE}") or name.endswith(f"-kubepods{_SLICE}")


def _groups(files: HostCgroups, path: str) -> tuple[str, ...]:
    """Return the names of the cgroups inside of one; none if it cannot be listed."""
    try:
        return files.groups(path)
    except OSError:
        return ()


# The rdma controller in that group.

CONTROLLER = "rdma"
_HANDLES, _OBJECTS, _NO_LIMIT = "hca_handle", "hca_object", "max"
_REMOVE = "remove rdmaLimits from the pools of this node"


class RdmaGroup(Frozen):
    """RDMA limits and usage of a pod's cgroup; empty where the controller is off or it is gone."""

    limits: tuple[DeviceLimits, ...]
    current: tuple[DeviceUse, ...]


class RdmaGroups:
    """The cgroups of a node's pods and their RDMA limits; pods are found by uid."""

    def __init__(self, files: HostCgroups) -> None:
        self._files = files

    def find(self, uid: str) -> str:
        """Return the path of a pod's cgroup; raise Unavailable if it has none."""
        for kubepods in _kubepods(self._files):
            for place in places(kubepods, uid):
                if self._files.is_group(place):
                    return place
        raise Unavailable(
            f"The node has no control group of the pod with uid {uid}: the kubelet makes one for "
            "each pod, unless its configuration says cgroupsPerQOS: false."
        )

    def read(self, group: str) -> RdmaGroup:
        """Return RDMA limits and usage of a cgroup; raise Unavailable where they cannot be read."""
        try:
            return RdmaGroup(
                tuple(read_limits(self._files.read(f"{group}/rdma.max"))),
                tuple(read_current(self._files.read(f"{group}/rdma.current"))),
            )
        except FileNotFoundError:
            return RdmaGroup((), ())
        except OSError as error:
            raise _unreadable(group, error) from error

    def write(self, group: str, wanted: Sequence[DeviceLimits]) -> None:
        """Write RDMA limits to a cgroup; skip devices that are gone.

        Raise Unavailable where they cannot be written.
        """
        for limits in wanted:
            try:
                self._files.write(f"{group}/rdma.max", line(limits))
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise _unreadable(group, error) from error

    def switch_on(self, uid: str) -> str:
        """Switch the RDMA controller on down to a pod's cgroup, and return the cgroup's path.

        Raise Refused where the node cannot limit, Unavailable where it cannot be done now.
        """
        try:
            controllers = self._files.read("cgroup.controllers").split()
        except FileNotFoundError:
            raise Refused(
                "this node has cgroup v1, in which pods have no limits of RDMA objects",
                remedy=f"Boot it with cgroup v2, or {_REMOVE}",
            ) from None
        except OSError as error:
            raise _unreadable("the root group", error) from error
        if CONTROLLER not in controllers:
            raise Refused(
                "the kernel of this node has no rdma controller of control groups",
                remedy=f"Take a kernel with CONFIG_CGROUP_RDMA, or {_REMOVE}",
            )
        group = self.find(uid)
        above = ""
        for name in group.split("/"):
            self._switch_on(above)
            above = f"{above}/{name}".lstrip("/")
        return group

    def _switch_on(self, group: str) -> None:
        """Switch the RDMA controller on for the cgroups below this one."""
        path = f"{group}/cgroup.subtree_control".lstrip("/")
        try:
            if CONTROLLER not in self._files.read(path).split():
                self._files.write(path, f"+{CONTROLLER}")
        except OSError as error:
            raise Unavailable(
                f"The rdma controller cannot be switched on in /sys/fs/cgroup/{group} of the node "
                f"({error.strerror})."
            ) from error


def line(limits: DeviceLimits) -> str:
    """Return the line of rdma.max that sets a device's limits."""
    handles, objects = limits.limits.handles, limits.limits.objects
    return f"{limits.device} {_HANDLES}={_written(handles)} {_OBJECTS}={_written(objects)}"


def read_limits(text: str) -> Iterator[DeviceLimits]:
    """Yield the limits of each device in the text of rdma.max."""
    for device, pairs in _lines(text):
        yield DeviceLimits(device, RdmaLimits(pairs.get(_HANDLES), pairs.get(_OBJECTS)))


def read_current(text: str) -> Iterator[DeviceUse]:
    """Yield the usage of each device in the text of rdma.current."""
    for device, pairs in _lines(text):
        yield DeviceUse(device, pairs.get(_HANDLES) or 0, pairs.get(_OBJECTS) or 0)


def _lines(text: str) -> Iterator[tuple[str, dict[str, int | None]]]:
    """Yield each device of a text with its numbers by name; None is no limit."""
    for words in map(str.split, text.splitlines()):
        if words:
            yield words[0], dict(_pairs(words[1:]))


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    for name, _, value in (word.partition("=") for word in words):
        if value == _NO_LIMIT:
            yield name, None
        elif value.isascii() and value.isdecimal():
            yield name, int(value)


def _written(number: int | None) -> str:
    return _NO_LIMIT if number is None else str(number)


def _unreadable(group: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"The limits of RDMA objects of {group} cannot be read or written ({error.strerror})."
    )
