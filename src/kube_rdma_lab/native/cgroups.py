"""Control groups of native nodes: a folder per lab and node, below the group of `lab up`.

A node gets a cgroup namespace rooted in its own folders, so kubelet and runtime find groups as on a
machine of their own. Namespaces end with their processes, these folders do not. So the supervisor
writes their names down before it makes them (JOURNAL), and removes them when it ends. After a kill
the next `up` or `down` does. Both versions are served, as the host has them mounted:

    v1   a hierarchy per controller; a folder in each below our own
    v2   one hierarchy; the nearest group at or above our own whose controllers can be passed down,
         for a group that holds processes cannot (Documentation/admin-guide/cgroup-v2.rst)
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Broken, Refused

ROOT = Path("/sys/fs/cgroup")
JOURNAL = "cgroups"  # in the lab's folder: one line per folder
NEEDED = frozenset({"cpu", "cpuset", "memory", "pids"})
V2_PASSED = ("cpu", "cpuset", "io", "memory", "pids", "hugetlb")
EMPTY_SECONDS = 20.0  # for killed processes to leave their group
_REMEDY = "Use a topology of machines, or give this machine all of them (mount | grep cgroup)"


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy of control groups: mount point, controllers and this process's group.

    `controllers` are the mounted ones of v1; a v2 hierarchy has none here and lists them in a file.
    """

    mount: Path
    controllers: tuple[str, ...]
    own: Path

    @property
    def is_v2(self) -> bool:
        """Return whether this is the unified hierarchy of control groups version 2."""
        return not self.controllers

    @property
    def mount_line(self) -> str:
        """Return a mount's line for node/native/init: file system, options, mount point."""
        if self.is_v2:
            return f"cgroup2 defaults {self.mount}\n"
        named = self.controllers[0].startswith("name=")
        options = ",".join(("none", *self.controllers) if named else self.controllers)
        return f"cgroup {options} {self.mount}\n"


def read(mountinfo: str, own: str) -> tuple[Hierarchy, ...]:
    """Return the hierarchies of /proc/self/mountinfo that have a line in /proc/self/cgroup.

    A v2 hierarchy that is not mounted at ROOT, as on a hybrid machine beside v1, is left out.
    """
    groups: dict[frozenset[str], str] = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        groups[frozenset(filter(None, names.split(",")))] = path
    return tuple(_hierarchies(mountinfo, groups))


def _hierarchies(mountinfo: str, groups: dict[frozenset[str], str]) -> Iterator[Hierarchy]:
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        root, mount = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2" and Path(mount) == ROOT and frozenset() in groups:
            yield Hierarchy(ROOT, (), _below(Path(mount), root, groups[frozenset()]))
        elif kind == "cgroup":
            given = set(options.split(","))
            for names in (names for names in groups if names and names <= given):
                own = _below(Path(mount), root, groups[names])
                yield Hierarchy(Path(mount), tuple(sorted(names)), own)


def _below(mount: Path, root: str, group: str) -> Path:
    """Return the folder of a group in a mount, which may show only what is below its `root`."""
    inside = group.removeprefix(root if root != "/" else "").lstrip("/")
    return mount / inside


def of_this_machine() -> tuple[Hierarchy, ...]:
    """Return this process's hierarchies; raise Refused if a controller for nodes is missing."""
    proc = Path("/proc/self")
    hierarchies = read((proc / "mountinfo").read_text(), (proc / "cgroup").read_text())
    names = {name for hierarchy in hierarchies for name in hierarchy.controllers}
    for hierarchy in hierarchies:
        if hierarchy.is_v2:
            names |= set((hierarchy.mount / "cgroup.controllers").read_text().split())
    if lacking := sorted(NEEDED - names):
        raise Refused(
            f"this machine shows no control groups for {', '.join(lacking)}", remedy=_REMEDY
        )
    return hierarchies


def place(hierarchy: Hierarchy, name: str) -> Path:
    """Return the path at which a group called `name` can be made.

    A v2 group above it is made to pass its controllers down; raise Refused if none can.
    """
    if not hierarchy.is_v2:
        return hierarchy.own / name
    above = hierarchy.own
    while not _passes_down(above):
        if above == hierarchy.mount:
            raise Refused(
                f"the control groups below {hierarchy.mount} cannot be divided: it holds processes",
                remedy="Use a topology of machines, or run outside of a container",
            )
        above = above.parent
    return above / name


def make(folder: Path, *, is_v2: bool) -> None:
    """Make a control group with CPUs, memory and controllers, so that groups can be made in it."""
    folder.mkdir(exist_ok=True)
    if is_v2:
        _passes_down(folder)
    elif (folder / "cpuset.cpus").exists():
        # A new group of v1 has no processors, and takes no process before it does.
        (folder / "cgroup.clone_children").write_text("1")
        for name in ("cpuset.cpus", "cpuset.mems"):
            (folder / name).write_text((folder.parent / name).read_text())


def _passes_down(folder: Path) -> bool:
    """Make a v2 group pass controllers to groups in it; return False if it cannot.

    It cannot if it lacks one of NEEDED or holds processes.
    """
    have = (folder / "cgroup.controllers").read_text().split()
    if not set(have) >= NEEDED:
        return False
    wanted = " ".join(f"+{name}" for name in V2_PASSED if name in have)
    try:
        (folder / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def check() -> None:
    """Make and remove a group in each hierarchy, as a test.

    Raise Refused if a controller is missing or cannot be passed down.
    """
    for hierarchy in of_this_machine():
        folder = place(hierarchy, f"kube-rdma-check-{os.getpid()}")
        make(folder, is_v2=hierarchy.is_v2)
        remove(folder)


def make_all(home: Path, nodes: Sequence[str]) -> None:
    """Make the groups of a lab's native nodes; `home` is the lab's folder.

    Writes `cgroups` (what to mount) and `cgroup.procs` (what to enter) into nodes/NODE/files, where
    node/native/init finds them.
    """
    if not nodes:
        return
    hierarchies = of_this_machine()
    folders = [place(each, f"kube-rdma-lab-{home.name}") for each in hierarchies]
    (home / JOURNAL).write_text("".join(f"{folder}\n" for folder in folders))
    for hierarchy, folder in zip(hierarchies, folders, strict=True):
        for path in (folder, *(folder / node for node in nodes)):
            make(path, is_v2=hierarchy.is_v2)
    for node in nodes:
        files = home / "nodes" / node / "files"
        (files / "cgroups").write_text("".join(each.mount_line for each in hierarchies))
        entries = "".join(f"{folder / node / 'cgroup.procs'}\n" for folder in folders)
        (files / "cgroup.procs").write_text(entries)


def remove_all(home: Path) -> None:
    """Remove the groups that the journal in `home` names; raise as `remove` does."""
    with suppress(FileNotFoundError):
        for line in (home / JOURNAL).read_text().splitlines():
            remove(Path(line))


def remove(folder: Path) -> None:
    """Remove a group and all below it, once their processes are gone.

    Raise Broken when one stays for EMPTY_SECONDS.
    """
    deadline = time.monotonic() + EMPTY_SECONDS
    for path, _, _ in os.walk(folder, topdown=False):
        while not _gone(Path(path)):
            if time.monotonic() > deadline:
                raise Broken(f"processes stay in the control group {path}")
            time.sleep(0.02)


def _gone(group: Path) -> bool:
    """Remove one control group; return False while it has processes."""
    try:
        group.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
