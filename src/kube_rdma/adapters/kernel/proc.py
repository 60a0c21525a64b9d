"""Reads /proc for the doctor: modules, neighbours, and the limits and rights of a process.

The survey is read from sysfs and netlink instead. Most functions raise Unavailable for a file that
cannot be read: what was not seen must not look as if it were absent.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.os_files import readable
from kube_base.plain_text import plain
from kube_rdma.model.doctor import ObservedNeighbour

_LONGEST = 1 << 20  # bytes of a file
_COMPLETE = 0x2  # ATF_COM in the flags of /proc/net/arp (include/uapi/linux/if_arp.h)
_IPC_LOCK = 1 << 14  # CAP_IPC_LOCK (include/uapi/linux/capability.h)
_UNLIMITED = -1
_PINNED = re.compile(r"VmPin:\s*(\d{1,15}) kB")
_CONTAINER = re.compile(r"([0-9a-f]{64})(?:\.scope)?$")
_FLAGS = re.compile(r"0x[0-9a-fA-F]{1,8}")
_MEMLOCK = re.compile(r"Max locked memory\s+(unlimited|[0-9]{1,20})\s")


def read_modules(proc: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> tuple[str, ...]:
    """Return the names of kernel modules, loaded or visible as built in.

    A built-in module may not show here, so its absence proves little. Raise Unavailable when they
    cannot be read.
    """
    loaded = {line.partition(" ")[0] for line in _read(proc / "modules").splitlines()}
    with readable(sysfs / "module"):
        loaded |= {path.name for path in (sysfs / "module").iterdir()}
    return tuple(sorted(loaded - {""}))


def read_neighbours(proc: Path = Path("/proc")) -> tuple[ObservedNeighbour, ...]:
    """Return the IPv4 neighbours (ARP table) of this network namespace.

    Raise Unavailable when they cannot be read.
    """
    rows = [line.split() for line in _read(proc / "net/arp").splitlines()[1:]]
    return tuple(
        ObservedNeighbour(row[5], row[0], bool(int(row[2], 16) & _COMPLETE))
        for row in rows
        if len(row) == 6 and _FLAGS.fullmatch(row[2])
    )


def read_settings(
    paths: tuple[str, ...], proc: Path = Path("/proc")
) -> tuple[tuple[str, str], ...]:
    """Return the values of these sysctls, without those that do not exist or cannot be read."""
    settings = []
    for path in paths:
        with suppress(Unavailable):
            settings.append((path, _read(proc / "sys" / path).strip()))
    return tuple(settings)


def read_hypervisor(proc: Path = Path("/proc")) -> bool:
    """Return whether this is a virtual machine, by a flag of x86 processors.

    The flag is X86_FEATURE_HYPERVISOR, arch/x86/include/asm/cpufeatures.h. Raise Unavailable for
    other processors, and when it cannot be read.
    """
    for line in _read(proc / "cpuinfo").splitlines():
        name, _, words = line.partition(":")
        if name.strip() == "flags":
            return "hypervisor" in words.split()
    raise Unavailable("the processor does not tell whether this is a virtual machine")


def memlock(pid: int, proc: Path = Path("/proc")) -> int:
    """Return a process's soft limit of locked memory in bytes, -1 without limit.

    Raise Unavailable when the process has ended or the limit cannot be read.
    """
    for line in _read(proc / str(pid) / "limits").splitlines():
        if match := _MEMLOCK.match(f"{line} "):
            return _UNLIMITED if match[1] == "unlimited" else int(match[1])
    raise Unavailable(f"{proc}/{pid}/limits says nothing of locked memory")


def user_and_lock(pid: int, proc: Path = Path("/proc")) -> tuple[int, bool]:
    """Return the effective uid of a process, and whether CAP_IPC_LOCK is in force.

    Raise Unavailable when the process has ended or they cannot be read.
    """
    fields = dict(
        line.split(":", 1) for line in _read(proc / str(pid) / "status").splitlines() if ":" in line
    )
    try:
        return int(fields["Uid"].split()[1]), bool(int(fields["CapEff"], 16) & _IPC_LOCK)
    except (KeyError, ValueError, IndexError) as error:
        raise Unavailable(f"{proc}/{pid}/status has no uid or capabilities") from error


def variables(pid: int, proc: Path = Path("/proc")) -> tuple[tuple[str, str], ...]:
    """Return the environment of a process as it started.

    Raise Unavailable when the process has ended or it cannot be read.
    """
    pairs = (part.partition("=") for part in _read(proc / str(pid) / "environ").split("\0"))
    return tuple((name, value) for name, equals, value in pairs if equals)


def pinned(pid: int, proc: Path = Path("/proc")) -> int:
    """Return how many bytes of memory a process has pinned (VmPin).

    Raise Unavailable when the process has ended or the kernel does not say.
    """
    for line in _read(proc / str(pid) / "status").splitlines():
        if match := _PINNED.fullmatch(line):
            return int(match[1]) * 1024
    raise Unavailable(f"{proc}/{pid}/status says nothing of pinned memory")


def program(pid: int, proc: Path = Path("/proc")) -> str:
    """Return the name of a process or a thread, "" if it has ended or cannot be read."""
    try:
        return plain(_read(proc / str(pid) / "comm").strip())
    except Unavailable:
        return ""


def processes_of(uid: str, proc: Path = Path("/proc")) -> dict[str, tuple[int, ...]]:
    """Return the process ids of a pod's containers, by container id.

    Without the host's process namespace there are none.
    """
    pids: dict[str, list[int]] = {}
    for pid in sorted(int(path.name) for path in proc.iterdir() if path.name.isdigit()):
        if container := container_of(pid, uid, proc):
            pids.setdefault(container, []).append(pid)
    return {container: tuple(of) for container, of in pids.items()}


def container_of(pid: int, uid: str, proc: Path = Path("/proc")) -> str:
    """Return the id of the container of a process or thread; "" if it is not of the pod `uid`.

    The cgroup of a container ends in its id, and has the uid of its pod above, with underscores
    under systemd.
    """
    marks = (f"pod{uid}", f"pod{uid.replace('-', '_')}")
    try:
        lines = _read(proc / str(pid) / "cgroup").splitlines()
    except Unavailable:
        return ""  # it has ended
    for line in lines:
        match = _CONTAINER.search(line)
        if match and any(mark in line for mark in marks):
            return match[1]
    return ""


def _read(path: Path) -> str:
    with readable(path), path.open("rb") as file:
        return file.read(_LONGEST).decode(errors="replace")
