"""Reads the counters of RDMA devices from the files of a sysfs: the node's, or that of a pod.

Each scrape asks for them, so each path is walked once and files are read by descriptors of folders.
A folder of counters is listed when it is new, and again after LISTED_LOOKS rounds. What a driver
does not have, what it refuses to say and what vanishes on the way costs its own value and nothing
else. Which series follow is metrics/rules' business; names and units of files are those of
Documentation/ABI/stable/sysfs-class-infiniband. The states of InfiniBand ports, which the kernel
does not announce, can be read alone.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_base.os_files import closed_after
from kube_rdma.adapters.kernel.sysfs.devices import DEVICES, port_states
from kube_rdma.adapters.kernel.sysfs.files import PAGE, read_each
from kube_rdma.adapters.kernel.sysfs.pci import pci_address, pcie_link, pcie_rate
from kube_rdma.adapters.kernel.sysfs.pod import mount_inside
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.device import PciAddress, PcieLink, PhysicalState, PortState
from kube_rdma.model.metrics import CounterReadings, DeviceCounters, PodPlaceCounters, PortCounters

MOST_FILES = 256  # of a folder of counters; the longest of a driver of today has below 100
LISTED_LOOKS = 16  # rounds, after which the names of counters are listed again
GID_TABLES = 2  # read anew in one look: each has up to 1024 files

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NUMBER_BYTES = 64  # more than a counter of 64 bits has, and than what stands for none
# Kernels before 4.5 have the counters of 64 bits in the first of them.
_FOLDERS = ("counters_ext", "counters", "hw_counters")
_STATES = ("state", "phys_state", "rate")
_DESCRIPTIONS = ("board_id", "fw_ver", "hca_type")
_LINK = tuple(
    f"{end}_link_{what}"
    for end in ("device/current", "device/max", "device/../max")
    for what in ("width", "speed")
)
# The errors of a kernel that has no such counter, or has the device no more.
_SILENT = frozenset(
    {errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.EACCES, errno.EPERM}
)
_NOT_AVAILABLE = b"N/A (no PMA)"  # of kernels before 4.10, drivers/infiniband/core/sysfs.c
_COUNTER = re.compile(r"\w{1,64}", re.ASCII)
_NUMBER = re.compile(rb"\d{1,20}")
_STATE = re.compile(rb"(\d{1,3}): ")
_RATE = re.compile(rb"(\d{1,6}(?:\.\d{1,6})?) Gb/sec")
_UNUSED_GID = b":".join([b"0000"] * 8)
_LIMIT = 1 << 64

PortName = tuple[str, int]  # device and port


class CounterFiles:
    """A reader of RDMA devices' counters below one sysfs root; keep one for all rounds."""

    def __init__(self, root: Path, *, gid_tables: int = GID_TABLES) -> None:
        """Count the GIDs of at most `gid_tables` tables in each round."""
        self._root = root
        self._tables = gid_tables
        self._gids: dict[PortName, int] = {}
        self._turns: dict[PortName, int] = {}  # when a table was read last
        self._looks = 0
        self._folders: _KnownFolders = {}

    def read(self, devices: Collection[str] | None = None) -> CounterReadings:
        """Read the counters of all devices and ports now; none where the kernel has no RDMA.

        If `devices` are named, no others are read. Counts of GIDs are of earlier rounds. The tables
        that have waited longest are counted for the next round.
        """
        try:
            root = os.open(self._root, _FOLDER)
        except OSError:
            return CounterReadings()
        with closed_after(root):
            reader = _CounterReader(self._folders if self._looks % LISTED_LOOKS else {}, devices)
            readings = reader.all_devices(root, self._gids.get)
            self._folders = reader.seen
            self._count_gids(root, readings)
        return readings

    def _count_gids(self, root: int, readings: CounterReadings) -> None:
        """Count the used GIDs of the ports that have waited longest, for the next round."""
        self._looks += 1
        ports = [(device.name, port.number) for device in readings.devices for port in device.ports]
        self._turns = {port: self._turns.get(port, 0) for port in ports}
        self._gids = {port: count for port, count in self._gids.items() if port in self._turns}
        for port in sorted(ports, key=self._turns.__getitem__)[: self._tables]:
            self._turns[port] = self._looks
            count = count_gids(root, port)
            if count is not None:
                self._gids[port] = count


def count_gids(root: int, port: PortName) -> int | None:
    """Return the number of used entries of a port's GID table; None without a table."""
    with _Folder(f"{DEVICES}/{port[0]}/ports/{port[1]}/gids", root) as table:
        if table is None:
            return None
        entries = _CounterReader({}).texts(_names(table), table)
        return sum(entry not in {b"", _UNUSED_GID} for entry in entries)


def as_number(data: bytes) -> int | None:
    """Return the 64-bit counter in a file's bytes, None if they hold none."""
    if not _NUMBER.fullmatch(data):
        return None
    value = int(data)
    return value if value < _LIMIT else None


class _KnownFolder(Struct):
    """The counter files of a folder, with their last contents and the values parsed from them."""

    identity: tuple[int, int, int]
    names: tuple[str, ...]
    said: Sequence[bytes | int]
    values: list[int | None]
    numbers: Mapping[str, int] = {}  # the values that there are
    unread: int = 0

    def hear(self, said: Sequence[bytes | int]) -> None:
        """Store the files' present contents; parse only those that changed."""
        for place, now in enumerate(said):
            if now != self.said[place]:
                self.values[place] = as_number(now.strip()) if isinstance(now, bytes) else None
        self.said = said
        pairs = zip(self.names, self.values, strict=True)
        self.numbers = {file: value for file, value in pairs if value is not None}
        missing = (now for now, value in zip(said, self.values, strict=True) if value is None)
        self.unread = sum(_is_unread(now) for now in missing)


_KnownFolders = dict[str, _KnownFolder]
"""The known folders by their paths below the folder of devices."""


def _is_unread(said: bytes | int) -> bool:
    """Decide whether a file without a number should have had one."""
    if isinstance(said, int):
        return said not in _SILENT
    return said.strip() not in (b"", _NOT_AVAILABLE)


class _CounterReader:
    """A reader for one round; `unread` counts failed values, `seen` has the folders read."""

    def __init__(self, earlier: _KnownFolders, only: Collection[str] | None = None) -> None:
        self.unread = 0
        self.seen: _KnownFolders = {}
        self._folders, self._only = earlier, only

    def all_devices(self, root: int, gids: Callable[[PortName], int | None]) -> CounterReadings:
        """Return the counters of the devices below the sysfs whose root is open."""
        with _Folder(DEVICES, root) as devices:
            names = sorted(n for n in _names(devices) if self._only is None or n in self._only)
            read = tuple(self._device(devices, name, gids) for name in names if name.isprintable())
        return CounterReadings(tuple(device for device in read if device), self.unread)

    def texts(self, paths: Iterable[str], folder: int) -> list[bytes]:
        """Return the stripped contents of files; empty where a file cannot be read."""
        said = read_each(paths, folder, PAGE)
        self.unread += sum(isinstance(one, int) and one not in _SILENT for one in said)
        return [one.strip() if isinstance(one, bytes) else b"" for one in said]

    def _device(
        self, devices: int | None, name: str, gids: Callable[[PortName], int | None]
    ) -> DeviceCounters | None:
        """Return the counters of one device, None if it has gone meanwhile."""
        with _Folder(name, devices) as folder:
            if folder is None:
                return None
            with _Folder("ports", folder) as ports:
                listed = self._listed(name, ports).names if ports is not None else ()
                numbers = sorted(int(one) for one in listed if one.isdecimal())
                read = tuple(self._port(ports, (name, number), gids) for number in numbers)
            pci = _pci_of(folder)
            board, firmware, adapter = map(_shown, self.texts(_DESCRIPTIONS, folder))
            return DeviceCounters(
                name,
                tuple(port for port in read if port),
                board=board,
                firmware=firmware,
                adapter=adapter,
                pci=pci,
                pcie=self._pcie(folder, pci) if pci else None,
            )

    def _pcie(self, device: int, pci: PciAddress) -> PcieLink | None:
        """Return a card's PCIe link; None for a virtual function, or if too little is known."""
        with suppress(OSError):
            os.stat("device/physfn", dir_fd=device)
            return None  # a virtual function has no link of its own
        said = [*map(_shown, self.texts(_LINK, device))]
        now, *ends = (pcie_rate(*said[end : end + 2]) for end in range(0, len(said), 2))
        return pcie_link(pci, now, ends)

    def _port(
        self, ports: int | None, port: PortName, gids: Callable[[PortName], int | None]
    ) -> PortCounters | None:
        with _Folder(str(port[1]), ports) as folder:
            if folder is None:
                return None
            texts = zip(self.texts(_STATES, folder), (_STATE, _STATE, _RATE), strict=True)
            state, physical, rate = (self._match(*each) for each in texts)
            older, counters, hardware = (self._counters(n, folder, port) for n in _FOLDERS)
            return PortCounters(
                port[1],
                state=int(state) if state else None,
                physical_state=int(physical) if physical else None,
                rate_gbps=float(rate) if rate else None,
                counters={**older, **counters},
                hw_counters=hardware,
                gids=gids(port),
            )

    def _counters(self, name: str, above: int, port: PortName) -> Mapping[str, int]:
        with _Folder(name, above) as folder:
            if folder is None:
                return {}
            listed = self._listed(f"{port[0]}/{port[1]}/{name}", folder)
            said = read_each(listed.names, folder, _NUMBER_BYTES)
            if said != listed.said:
                listed.hear(said)
            self.unread += listed.unread
            return listed.numbers

    def _listed(self, path: str, folder: int) -> _KnownFolder:
        """Return the counter files of a folder, from the last round if it is still the same folder.

        No two folders of a sysfs ever have the same inode number (fs/kernfs/dir.c). Before Linux
        5.14 drivers made the files after the folder could be seen, so names are listed again later.
        """
        stat = os.fstat(folder)
        identity = (stat.st_dev, stat.st_ino, stat.st_mtime_ns)
        listed = self._folders.get(path)
        if not listed or listed.identity != identity:
            names = tuple(sorted(filter(_COUNTER.fullmatch, _names(folder)))[:MOST_FILES])
            listed = _KnownFolder(identity, names, [b""] * len(names), [None] * len(names))
        self.seen[path] = listed
        return listed

    def _match(self, text: bytes, pattern: re.Pattern[bytes]) -> bytes | None:
        match = pattern.match(text)
        self.unread += bool(text and not match)
        return match[1] if match else None


def _shown(text: bytes) -> str:
    shown = text.decode("ascii", "replace")[:128]
    return shown if shown.isprintable() else ""


class _Folder:
    """A context that opens a folder of sysfs and yields its descriptor; None without a folder."""

    def __init__(self, path: str, above: int | None) -> None:
        self._path, self._above = path, above

    def __enter__(self) -> int | None:
        try:
            above = self._above
            self._open = None if above is None else os.open(self._path, _FOLDER, dir_fd=above)
        except OSError:
            self._open = None
        return self._open

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            os.close(self._open)


def _names(folder: int | None) -> list[str]:
    try:
        return os.listdir(folder) if folder is not None else []  # noqa: PTH208  a descriptor
    except OSError:
        return []


def _pci_of(device: int) -> PciAddress | None:
    """Return the PCI function of an open device; None for soft devices and other buses."""
    try:
        place = os.readlink("device", dir_fd=device)
    except OSError:
        return None
    return pci_address(place.rpartition("/")[2])


# Devices that were moved into pods: their counters are read inside of the pods' namespaces.

Mount = Callable[[int], int]
"""A function that takes a namespace's descriptor, and returns that of its sysfs' root."""


def read_inside(
    sandboxes: Iterable[Sandbox], mount: Mount = mount_inside
) -> tuple[tuple[PodPlaceCounters, ...], int]:
    """Return counters in the sandboxes' namespaces, and how many of these could not be read.

    A namespace that is gone, or whose path leads to a later one, counts in neither: its pod ended.
    """
    read, failures = [], 0
    for sandbox in sandboxes:
        try:
            namespace = os.open(sandbox.netns_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            failures += Path(sandbox.netns_path).exists()
            continue
        try:
            with closed_after(namespace):
                if os.fstat(namespace).st_ino == sandbox.netns_inode:
                    with closed_after(mount(namespace)) as root:
                        counters = _CounterReader({}).all_devices(root, lambda _: None)
                    read.append(PodPlaceCounters(sandbox.netns_inode, counters))
        except (OSError, KubeError):
            failures += 1
    return tuple(read), failures


# The states of ports, read again and nothing else.


class PortReading(Frozen):
    """The logical and physical state of one RDMA port; UNKNOWN if the port is gone."""

    device: str
    number: int
    state: PortState
    physical_state: PhysicalState


def read_states(root: Path, ports: Iterable[tuple[str, int]]) -> tuple[PortReading, ...]:
    """Return the states of `ports` (device name and port number) below `root`, in their order.

    It reads two files a port, and never raises for what the tree holds or lacks.
    """
    tree = SysfsTree(root)
    return tuple(
        PortReading(device, number, *port_states(tree, f"{DEVICES}/{device}/ports/{number}"))
        for device, number in ports
    )
