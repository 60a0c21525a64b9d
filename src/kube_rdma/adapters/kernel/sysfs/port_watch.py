"""The states of InfiniBand ports, read again and nothing else.

A RoCE port follows its interface, of which netlink/rtnl_events.py hears. Of an InfiniBand port the
kernel announces nothing to user space but through a verbs context (ibv_get_async_event), so the
agent reads these two files of each on a timer while it has such ports, and takes a new Survey when
they differ from the last one's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.sysfs.devices import DEVICES, port_states
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.device import PhysicalState, PortState


class PortReading(Frozen):
    """The states of one port; UNKNOWN of a port that is not there any more."""

    device: str
    number: int
    state: PortState
    physical_state: PhysicalState


def read_states(root: Path, ports: Iterable[tuple[str, int]]) -> tuple[PortReading, ...]:
    """The states of `ports` (device name and port number) below the sysfs `root`, in their order.

    Two files a port; never raises for what the tree holds or lacks.
    """
    tree = SysfsTree(root)
    return tuple(
        PortReading(device, number, *port_states(tree, f"{DEVICES}/{device}/ports/{number}"))
        for device, number in ports
    )
