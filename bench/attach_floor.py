"""What an attachment costs at least: its messages and its records, sent and written bare.

Nothing is planned, asked, encoded as JSON, looked at or made up for: the Steps that one ADD has run
go to the kernel on sockets that are open already, and records of the same sizes to the same disk,
in the same order, each with the fsyncs that make it durable. One question is left: a link's index
and MAC, which its addresses and its announcement need.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from socket import socket

from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.kernel import rtnl_write
from kube_rdma.adapters.kernel.announce import arp_announcement, packet_socket
from kube_rdma.adapters.kernel.namespaces import open_inside
from kube_rdma.adapters.kernel.netlink import Netlink
from kube_rdma.adapters.kernel.rtnl import open_rtnl
from kube_rdma.adapters.kernel.rtnl_view import Interface, interface_named
from kube_rdma.adapters.kernel.rtnl_write import Request
from kube_rdma.model.errors import Broken
from kube_rdma.model.step import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    MakeLink,
    SetLink,
    Step,
)

_ARP = 0x0806  # ETH_P_ARP


class Noting(Folder):
    """A folder that notes how large its records are."""

    def __init__(self, path: Path, sizes: list[int]) -> None:
        super().__init__(path)
        self._sizes = sizes

    def write(self, handle: int, content: bytes) -> None:
        """As Folder.write."""
        self._sizes.append(len(content))
        super().write(handle, content)


@dataclass(frozen=True, slots=True)
class Trace:
    """What one ADD did: the Steps that it ran, and the bytes of each record before them."""

    steps: tuple[Step, ...]
    records: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bare:
    """How long it took, in ms; `disk_ms` of them for the records."""

    ms: float
    cpu_ms: float
    disk_ms: float


def run(trace: Trace, namespace: int, disk: Folder) -> Bare:
    """Do what was traced once more, in a new namespace; blocks."""
    with (
        open_rtnl() as node,
        open_inside(namespace, open_rtnl) as pod,
        open_inside(namespace, packet_socket) as packet,
    ):
        wire = _Wire(node, pod, packet, namespace)
        work = time.process_time()
        ticks = [time.perf_counter()]
        for size in trace.records:
            _record(disk, size)
        ticks.append(time.perf_counter())
        for step in trace.steps:
            wire.send(step)
        ticks.append(time.perf_counter())
        disk.rename("floor", "floor.done")  # the record is complete
        disk.fsync_folder()
        ticks.append(time.perf_counter())
        before, sending, after = (b - a for a, b in pairwise(ticks))
        cpu = time.process_time() - work
        return Bare(1000 * (before + sending + after), 1000 * cpu, 1000 * (before + after))


def _record(disk: Folder, size: int) -> None:
    """What makes a record durable (adapters/journal/journal.py)."""
    handle = disk.create(".floor.tmp")
    disk.write(handle, bytes(size))
    disk.fsync(handle)
    disk.close(handle)
    disk.rename(".floor.tmp", "floor")
    disk.fsync_folder()


@dataclass(frozen=True, slots=True)
class _Wire:
    node: Netlink
    pod: Netlink
    packet: socket
    namespace: int
    _found: dict[str, Interface] = field(default_factory=dict)

    def send(self, step: Step) -> None:
        match step:
            case MakeLink():
                _ask(self.node, rtnl_write.make_link(step, self.namespace))
                _ask(self.pod, rtnl_write.mark_link(step))
            case SetLink():
                _ask(self.pod, rtnl_write.set_link(step))
            case AddAddress():
                self._with_index(step.name, lambda at: rtnl_write.add_address(step, at))
            case AddRoute():
                self._with_index(step.name, lambda at: rtnl_write.add_route(step, at))
            case AddRule():
                _ask(self.pod, rtnl_write.add_rule(step))
            case Announce(name, IPv4Address() as address):
                mac = rtnl_write.mac_bytes(self._link(name).seen.mac)
                self.packet.sendto(arp_announcement(mac, address), (name, _ARP))
            case _:
                raise Broken(f"the floor knows no {type(step).__name__}, its figure would be wrong")

    def _with_index(self, name: str, request: Callable[[int], Request]) -> None:
        _ask(self.pod, request(self._link(name).seen.index))

    def _link(self, name: str) -> Interface:
        if name not in self._found:
            link = interface_named(self.pod, name)
            assert link, f"{name} was just made"
            self._found[name] = link
        return self._found[name]


def _ask(netlink: Netlink, request: Request) -> None:
    netlink.ask(request.kind, request.body, more=request.flags)
