"""Makes and removes soft RDMA devices, and moves RDMA devices: RDMA netlink, the writing half.

pod/steps.py calls it. Numbers come from include/uapi/rdma/rdma_netlink.h. In
drivers/infiniband/core, nldev.c (nldev_newlink, nldev_dellink, nldev_set_doit) and device.c
(ib_device_set_netns_put) carry requests out. A soft device is made in the namespace of the socket,
on the interface of that namespace.

A device that moves gets its device nodes anew, with the lowest numbers that are free
(ib_uverbs_add_one, drivers/infiniband/core/uverbs_main.c). Devices that moved at the same time
could get each other's, so one moves at a time.
"""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.kernel import locks
from kube_rdma.adapters.kernel.link_view import LinkDevice
from kube_rdma.adapters.kernel.netlink import rdma_read
from kube_rdma.adapters.kernel.netlink.codec import Attribute, Netlink, encode_attributes
from kube_rdma.adapters.kernel.pod.errors import errno_of, judged, no_device, rdma_taken, unmovable
from kube_rdma.adapters.kernel.pod.gids import DEVICES
from kube_rdma.model.attach.steps import GiveBackRdma, MakeRdma, MoveRdma, RemoveRdma, RestoreRdma
from kube_rdma.model.device import PciAddress

_SET, _NEWLINK, _DELLINK = 2, 3, 4  # enum rdma_nldev_command
_LINK_TYPE, _NET_NS_FD = 65, 68  # enum rdma_nldev_attr
_TAKEN = frozenset({errno.EEXIST, errno.ENFILE})  # the interface has one; the name is another's
_PORTS = rdma_read.NLDEV | rdma_read.Command.PORT_GET
_U32 = struct.Struct("=I")
_END_PATIENCE, _PAUSE = 5.0, 0.02  # seconds


def devices(netlink: Netlink) -> tuple[LinkDevice, ...]:
    """Return the namespace's RDMA devices with ports; interfaces of other namespaces are None."""
    rdma_devices = []
    for device in _listed(netlink):
        try:
            ports = netlink.ask(_PORTS, rdma_read.by_index(device), dump=True)
        except Unavailable as error:
            if errno_of(error) is None:
                raise
            continue  # it went between the two questions
        rdma_devices.append(replace(device, ports=tuple(map(rdma_read.decode_port, ports))))
    return tuple(rdma_devices)


def netdev_of(device: LinkDevice) -> str | None:
    """Return the interface below a device, None if the asker's namespace shows none."""
    return next((port.netdev for port in device.ports if port.netdev), None)


def new_device(step: MakeRdma | RestoreRdma) -> bytes:
    """Return the body of NEWLINK that makes a soft RDMA device."""
    return encode_attributes(
        [
            Attribute(rdma_read.Attr.DEV_NAME, step.name.encode() + b"\0"),
            Attribute(_LINK_TYPE, step.kind.encode() + b"\0"),
            Attribute(rdma_read.Attr.NDEV_NAME, _interface(step).encode() + b"\0"),
        ]
    )


def make_device(
    netlink: Netlink, step: MakeRdma | RestoreRdma, patience: float = _END_PATIENCE
) -> None:
    """Make a soft RDMA device in the namespace of `netlink`, unless it exists.

    A device whose interface has ended keeps its name for a moment (ib_unregister_work), without an
    interface or not shown at all. Its end is awaited for `patience` seconds. Raise Refused when the
    interface or the name is taken. Raise as errors.judged for another refusal.
    """
    on, deadline = _interface(step), time.monotonic() + patience
    while True:
        try:
            netlink.ask(rdma_read.NLDEV | _NEWLINK, new_device(step))
        except Unavailable as error:
            if errno_of(error) not in _TAKEN:
                raise judged(f"the soft RDMA device {step.name} on {on}", error) from error
            present = [(device.name, netdev_of(device)) for device in devices(netlink)]
            if (step.name, on) in present:
                return
            others = [name for name, netdev in present if netdev == on]
            stays = others or any(name == step.name and netdev for name, netdev in present)
            if stays or time.monotonic() >= deadline:
                raise rdma_taken(step.name, on, others[0] if others else None) from error
            time.sleep(_PAUSE)
        else:
            return


class PodRdma(Frozen):
    """RDMA devices of the node and of one pod, by a socket in the namespace of each.

    `pci_of` returns the function on which a device sits, wherever it is. A device may have another
    name once its driver was bound anew, and its old name may be another's. `devices` is the
    node's /sys/class/infiniband, whose lock makes one device of the node move at a time.
    """

    node: Netlink
    pod: Netlink
    pci_of: Callable[[str], PciAddress | None]
    devices: Path = DEVICES
    patience: float = 30.0  # seconds to wait while others move; a device of mlx5 takes below one

    def move(self, step: MoveRdma, namespace: int) -> None:
        """Move an RDMA device from the node into the pod; do nothing if it was moved already."""
        with self._alone(step.device):
            here = self.find(self.node, step)
            if here is None:
                if self.find(self.pod, step) is None:
                    raise no_device(step.device)
                return
            _move(self.node, here, namespace)

    def remove(self, undo: RemoveRdma) -> None:
        """Remove a soft RDMA device from the pod; do nothing if it or its interface is gone."""
        for device in devices(self.pod):
            if device.name != undo.name or not netdev_of(device):
                continue
            try:
                self.pod.ask(rdma_read.NLDEV | _DELLINK, rdma_read.by_index(device))
            except Unavailable as error:
                if any(one.name == device.name for one in _listed(self.pod)):
                    raise judged(f"removing the RDMA device {device.name}", error) from error

    def give_back(self, undo: GiveBackRdma, namespace: int) -> None:
        """Move an RDMA device from the pod back to the node; do nothing if the node has it."""
        with self._alone(undo.device):
            if self.find(self.node, undo):
                return
            device = self.find(self.pod, undo)
            if device is None:
                raise no_device(undo.device)
            _move(self.pod, device, namespace)

    def find(self, netlink: Netlink, act: MoveRdma | GiveBackRdma) -> LinkDevice | None:
        """Return an RDMA device, by its PCI function if the act has one, else by its name.

        Return None if there is none.
        """
        rdma_devices = _listed(netlink)
        named = next((one for one in rdma_devices if one.name == act.device), None)
        if act.pci is None or (named and self.pci_of(named.name) in (act.pci, None)):
            return named
        return next((one for one in rdma_devices if self.pci_of(one.name) == act.pci), None)

    def inside(self, pci: PciAddress) -> LinkDevice | None:
        """Return the RDMA device of a PCI function in the pod; None without one."""
        return next((one for one in _listed(self.pod) if self.pci_of(one.name) == pci), None)

    def _alone(self, device: str) -> AbstractContextManager[None]:
        """Lock the device folder; raise Unavailable if it is missing or locked for too long."""
        busy = (
            f"other RDMA devices of this node have moved for {self.patience:g} s, {device} waits "
            "for them; it is tried again"
        )
        return locks.locked(self.devices, self.patience, busy, no_device(device))


def _interface(step: MakeRdma | RestoreRdma) -> str:
    return step.on if isinstance(step, MakeRdma) else step.link.name


def _listed(netlink: Netlink) -> tuple[LinkDevice, ...]:
    """Return the RDMA devices of a namespace, without their ports."""
    payloads = netlink.ask(rdma_read.NLDEV | rdma_read.Command.GET, dump=True)
    return tuple(map(rdma_read.decode_device, payloads))


def _move(netlink: Netlink, device: LinkDevice, namespace: int) -> None:
    to = encode_attributes([Attribute(_NET_NS_FD, _U32.pack(namespace))])
    try:
        netlink.ask(rdma_read.NLDEV | _SET, rdma_read.by_index(device) + to)
    except Unavailable as error:
        if errno_of(error) == errno.EOPNOTSUPP:
            raise unmovable(device.name) from error
        raise judged(f"moving the RDMA device {device.name}", error) from error
