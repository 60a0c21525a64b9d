"""What an attachment costs at least: its messages and its records, sent and written bare.

Nothing is planned, asked, encoded as JSON, looked at or made up for: the Steps that one ADD has run
go to the kernel on sockets that are open already, and records of the same sizes to the same disk,
in the same order, synced where the agent did. One question is left: a link's index and MAC, which
its addresses and its announcement need. The wait for a GID is the agent's own, for the kernel
announces none. DEL is what takes the Steps back in the kernel, without a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from socket import socket
from typing import Any

from kube_base.errors import Broken
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.kernel.netlink import rtnl_vf, rtnl_write
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rdma_read import NETLINK_RDMA
from kube_rdma.adapters.kernel.netlink.rdma_write import make_device
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface, interface_named, open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_write import NetlinkRequest
from kube_rdma.adapters.kernel.pod.gids import await_gid
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.adapters.kernel.pod.probe import arp_announcement, packet_socket
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.attach.rules.undo import undo_by_plan
from kube_rdma.model.attach.attachment import Plan
from kube_rdma.model.attach.steps import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    AwaitGid,
    MakeLink,
    MakeRdma,
    SetLink,
    SetSysctl,
    Step,
    TakeLink,
)
from kube_rdma.model.pools import SetFunction

_ARP = 0x0806  # ETH_P_ARP


Act = tuple[str, int]  # on a folder, with the bytes that it wrote


class Noting(Folder):
    """A folder that notes what is done to it."""

    def __init__(self, path: Path, acts: list[Act]) -> None:
        super().__init__(path)
        self._acts = acts

    def write(self, handle: int, content: bytes) -> None:
        """As Folder.write."""
        self._acts.append(("write", len(content)))
        super().write(handle, content)

    def fsync(self, handle: int) -> None:
        """As Folder.fsync."""
        self._acts.append(("fsync", 0))
        super().fsync(handle)

    def rename(self, old: str, new: str) -> None:
        """As Folder.rename."""
        self._acts.append(("rename", 0))
        super().rename(old, new)

    def fsync_folder(self) -> None:
        """As Folder.fsync_folder."""
        self._acts.append(("fsync_folder", 0))
        super().fsync_folder()


@dataclass(frozen=True, slots=True)
class Trace:
    """What one ADD did: the plans that it carried out, and what it did to the journals' folders."""

    plans: tuple[Plan, ...]
    acts: tuple[Act, ...]

    @property
    def parts(self) -> tuple[tuple[Act, ...], tuple[Act, ...]]:
        """Its records, and the rename by which the last is complete."""
        names = [act for act, _ in self.acts]
        last = len(names) - 1 - names[::-1].index("rename")
        return self.acts[:last], self.acts[last:]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All Steps, in their order."""
        return tuple(step for plan in self.plans for step in plan.steps)


@dataclass(frozen=True, slots=True)
class Bare:
    """How long it took, in ms; `disk_ms` of them for the records, `gid_ms` until GIDs came."""

    ms: float
    cpu_ms: float
    disk_ms: float
    gid_ms: float
    del_ms: float = 0.0


def run(trace: Trace, namespace: int, disk: Folder) -> Bare:
    """Do what was traced once more, in a new namespace, and take it back; blocks."""
    with ExitStack() as stack:
        wire = _Wire(
            namespace,
            node=stack.enter_context(open_rtnl()),
            pod=stack.enter_context(open_inside(namespace, open_rtnl)),
            packet=stack.enter_context(open_inside(namespace, packet_socket)),
        )
        if any(isinstance(step, MakeRdma) for step in trace.steps):
            wire.rdma = stack.enter_context(open_inside(namespace, _open_rdma))
        wire.find(trace.steps)
        # All of it in there, where a sysctl is a file like any other.
        try:
            bare = open_inside(namespace, lambda: _timed(trace, wire, disk))
        finally:
            begin = time.perf_counter()
            _take_back(trace, namespace)
        return replace(bare, del_ms=1000 * (time.perf_counter() - begin))


def _timed(trace: Trace, wire: _Wire, disk: Folder) -> Bare:
    work = time.process_time()
    ticks = [time.perf_counter()]
    records, complete = trace.parts
    _act(disk, records)
    ticks.append(time.perf_counter())
    for step in trace.steps:
        wire.send(step)
    ticks.append(time.perf_counter())
    _act(disk, complete)
    ticks.append(time.perf_counter())
    before, sending, after = (b - a for a, b in pairwise(ticks))
    cpu = time.process_time() - work
    whole = before + sending + after
    return Bare(*(1000 * each for each in (whole, cpu, before + after, wire.waited)))


def _open_rdma() -> Netlink:
    return Netlink(NETLINK_RDMA)


def _take_back(trace: Trace, namespace: int) -> None:
    """A card is needed again, and so is the name of a soft device."""
    with open_pod(namespace) as pod:
        for _, act in undo_by_plan(trace.plans):
            pod.undo(act)


def _act(disk: Folder, acts: tuple[Act, ...]) -> None:
    """Do the same to this folder, record by record (adapters/journal/journal.py)."""
    handle = None
    for act, size in acts:
        match act:
            case "write":
                handle = disk.create(".floor.tmp")
                disk.write(handle, bytes(size))
            case "fsync" if handle is not None:
                disk.fsync(handle)
            case "rename" if handle is not None:
                disk.close(handle)
                disk.rename(".floor.tmp", "floor")
                handle = None
            case "rename":
                disk.rename("floor", "floor.done")
            case "fsync_folder":
                disk.fsync_folder()


@dataclass
class _Wire:
    """Sockets that are open, and what each Step is on them."""

    namespace: int
    node: Netlink
    pod: Netlink
    packet: socket
    rdma: Netlink | None = None  # the pod's
    waited: float = 0.0

    def __post_init__(self) -> None:
        self._indexes: dict[str, int] = {}  # of links on the node
        self._links: dict[str, Interface] = {}
        self._ways: dict[type[Step], Callable[[Any], None]] = {
            MakeLink: self._make,
            TakeLink: self._take,
            SetFunction: self._set_function,
            SetSysctl: self._set_sysctl,
            SetLink: lambda step: _ask(self.pod, rtnl_write.set_link(step)),
            AddAddress: lambda step: self._on(step, rtnl_write.add_address),
            AddRoute: lambda step: self._on(step, rtnl_write.add_route),
            AddRule: lambda step: _ask(self.pod, rtnl_write.add_rule(step)),
            MakeRdma: self._make_rdma,
            AwaitGid: self._await_gid,
            Announce: self._announce,
        }

    def find(self, steps: tuple[Step, ...]) -> None:
        """Where the links are that will be taken."""
        for step in steps:
            if isinstance(step, TakeLink):
                link = interface_named(self.node, step.link.name)
                assert link, f"{step.link.name} came back"
                self._indexes[step.name] = link.seen.index

    def send(self, step: Step) -> None:
        if type(step) not in self._ways:
            raise Broken(f"the floor knows no {type(step).__name__}, its figure would be wrong")
        self._ways[type(step)](step)

    def _make(self, step: MakeLink) -> None:
        _ask(self.node, rtnl_write.make_link(step, self.namespace))
        _ask(self.pod, rtnl_write.mark_link(step))

    def _take(self, step: TakeLink) -> None:
        index = self._indexes[step.name]
        _ask(self.node, rtnl_write.take_link(step, index, self.namespace))

    def _set_function(self, step: SetFunction) -> None:
        above, number = step.place.physical.index, step.place.number
        for change in rtnl_vf.changes(above, number, step.wanted, step.previous):
            _ask(self.node, change.request)

    def _set_sysctl(self, step: SetSysctl) -> None:
        Path("/proc/sys", step.path).write_text(step.value)

    def _make_rdma(self, step: MakeRdma) -> None:
        assert self.rdma
        make_device(self.rdma, step)

    def _await_gid(self, step: AwaitGid) -> None:
        begin = time.perf_counter()
        await_gid(step)
        self.waited += time.perf_counter() - begin

    def _announce(self, step: Announce) -> None:
        assert isinstance(step.address, IPv4Address)
        mac = rtnl_write.mac_bytes(self._link(step.name).seen.mac)
        self.packet.sendto(arp_announcement(mac, step.address), (step.name, _ARP))

    def _on(
        self, step: AddAddress | AddRoute, request: Callable[[Any, int], NetlinkRequest]
    ) -> None:
        _ask(self.pod, request(step, self._link(step.name).seen.index))

    def _link(self, name: str) -> Interface:
        if name not in self._links:
            link = interface_named(self.pod, name)
            assert link, f"{name} was just made"
            self._links[name] = link
        return self._links[name]


def _ask(netlink: Netlink, request: NetlinkRequest) -> None:
    netlink.ask(request.kind, request.body, more=request.flags)
