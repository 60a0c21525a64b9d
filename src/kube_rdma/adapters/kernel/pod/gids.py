"""Waits for GIDs, and counts them: an attachment is done when verbs can use its address.

The kernel makes GIDs in a work queue some time after the address (drivers/infiniband/core/
roce_gid_mgmt.c), and announces them as events of verbs alone. So the table in sysfs is read again
and again, for a bounded time. Format: Documentation/ABI/stable/sysfs-class-infiniband. sysfs/pod.py
says which sysfs it is.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv6Address
from pathlib import Path

from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.pod.errors import no_device, no_gid, table_full
from kube_rdma.adapters.kernel.sysfs.files import read_file
from kube_rdma.model.attach.attachment import GidTable
from kube_rdma.model.attach.steps import AwaitGid
from kube_rdma.model.device import GidType, PciAddress
from kube_rdma.model.ipam import Address, gid_of

DEVICES = Path("/sys/class/infiniband")
PATIENCE = 3.0  # seconds; a GID comes within 0.2 s on an emulated machine
_FIRST_PAUSE, _LAST_PAUSE, _GROWTH = 0.005, 0.05, 1.5  # seconds
_EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
_GAP = 16  # empty entries in a row that usually end a table
_VERSIONS = 2  # of RoCE at most, each has its entry of an address
_EVERY = 4  # every fourth look reads the table to its end all the same


class GidEntry(Frozen):
    """A used entry of an RDMA device's GID table, with the name of its interface."""

    value: str
    type: str
    netdev: str | None


def listed(devices: Path, device: str) -> tuple[tuple[str, Address], ...]:
    """Return the RoCE v2 GIDs of a device, as pairs of interface and address."""
    gids: list[tuple[str, Address]] = []
    for port in _ports(devices / device):
        for entry in _entries(port, gap=None):
            if entry.type == GidType.ROCE_V2 and entry.netdev:
                with suppress(ValueError):  # a text that is no GID is none that anybody asks for
                    gid = IPv6Address(entry.value)
                    gids.append((entry.netdev, gid.ipv4_mapped or gid))
    return tuple(gids)


def gid_table(device: str, devices: Path = DEVICES) -> GidTable:
    """Return the usage of a device's fullest GID table; raise Unavailable without the device."""
    tables = []
    for port in _ports(devices / device):
        types = [entry.type for entry in _entries(port, gap=None)]
        versions = 2 if GidType.IB_OR_ROCE_V1 in types else 1
        tables.append(GidTable(device, len(_numbers(port)), len(types), versions))
    if not tables:
        raise no_device(device)
    return max(tables, key=lambda table: table.used)


def crowded(wanted: Mapping[str, int], devices: Path = DEVICES) -> tuple[GidTable, ...]:
    """Return the GID tables that may be too full; `wanted` has numbers of new addresses by device.

    The kernel fills a table from its beginning, so a look at its end is enough for most.
    """
    return tuple(
        gid_table(device, devices)
        for device, addresses in wanted.items()
        if not all(_has_room(port, _VERSIONS * addresses) for port in _ports(devices / device))
    )


def _has_room(port: Path, entries: int) -> bool:
    for index in sorted(map(int, _numbers(port)), reverse=True):
        if entries <= 0:
            break
        entries -= _gid(port, index) == _EMPTY
    return entries <= 0


def pci_of(devices: Path, device: str) -> PciAddress | None:
    """Return the PCI function of an RDMA device; None for one that is not on a function itself."""
    try:
        return PciAddress((devices / device / "device").resolve(strict=True).name)
    except (OSError, ValueError):
        return None


def await_gid(step: AwaitGid, devices: Path = DEVICES, patience: float = PATIENCE) -> None:
    """Wait until a device lists a GID; raise an error after `patience` seconds.

    Raise Refused when the table is full, Unavailable when the GID does not come or the device goes.
    """
    deadline = time.monotonic() + patience
    pause, looks = _FIRST_PAUSE, 0
    while True:
        looks += 1
        late = time.monotonic() >= deadline
        if _listed(step, devices, gap=None if late or looks % _EVERY == 0 else _GAP):
            return
        if late:
            for port in _ports(devices / step.device):
                size = len(_numbers(port))
                if size and sum(1 for _ in _entries(port, size)) == size:
                    raise table_full(step.device, step.address, size, size)
            raise no_gid(step.device, step.address, step.on, patience)
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LAST_PAUSE)


def _listed(step: AwaitGid, devices: Path, gap: int | None) -> bool:
    wanted = GidEntry(gid_of(step.address), GidType.ROCE_V2, step.on)
    ports = _ports(devices / step.device)
    if not ports:
        raise no_device(step.device)
    return any(wanted in _entries(port, gap) for port in ports)


def _ports(device: Path) -> tuple[Path, ...]:
    try:
        return tuple(sorted((device / "ports").iterdir()))
    except OSError:
        return ()


def _numbers(port: Path) -> list[str]:
    try:
        return os.listdir(port / "gids")  # noqa: PTH208  # only the names
    except OSError:
        return []


def _entries(port: Path, gap: int | None) -> Iterator[GidEntry]:
    """Yield used entries of a GID table.

    Stop after `gap` empty ones in a row, if `gap` is given.
    """
    empty, index = 0, 0
    while gap is None or empty < gap:
        value = _gid(port, index)
        if value is None:
            return
        if value == _EMPTY:
            empty += 1
        else:
            empty = 0
            kind = _read(f"{port}/gid_attrs/types/{index}") or ""
            yield GidEntry(value, kind, _read(f"{port}/gid_attrs/ndevs/{index}"))
        index += 1


def _gid(port: Path, index: int) -> str | None:
    """Return the GID of an entry, _EMPTY for an unused one; None behind the end of the table.

    Before Linux 4.19 the kernel refuses to read an unused entry with EINVAL.
    """
    try:
        return read_file(f"{port}/gids/{index}").decode(errors="replace").strip()
    except OSError as error:
        return _EMPTY if error.errno == errno.EINVAL else None


def _read(path: str) -> str | None:
    """Return the text of a file; None if it cannot be read, as of an unused entry."""
    try:
        return read_file(path).decode(errors="replace").strip()
    except OSError:
        return None
