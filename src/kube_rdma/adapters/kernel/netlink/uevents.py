"""What changes on the node, told by the kernel: the agent's reason to take a new Survey.

An event says that something happened, not what is true now: whoever receives one looks again. That
is why a lost event (the socket overflowed) is an event as well, and why nothing here is parsed
beyond what tells RDMA apart. Format: lib/kobject_uevent.c; nothing is polled.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.netlink.multicast import Listener

_NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h
_KERNEL_GROUP = 1  # group 2 carries what udev sends on

SUBSYSTEMS = frozenset({"infiniband", "infiniband_verbs", "infiniband_mad", "net"})
_RDMA_CM = "infiniband/rdma_cm"

LOST = "lost"  # not an action of the kernel: events were dropped, anything may have changed


class Uevent(Frozen):
    """One announcement: `action` is the kernel's word (add, remove, change, move …) or LOST."""

    action: str
    subsystem: str = ""
    devpath: str = ""
    properties: tuple[tuple[str, str], ...] = ()


def decode(datagram: bytes, sender: int) -> Uevent | None:
    """An event about RDMA or interfaces; None for any other, and for what the kernel did not send.

    `sender` is the netlink port it came from: 0 is the kernel, and only the kernel is believed.
    """
    if sender != 0:
        return None
    _, *lines = datagram.decode(errors="replace").split("\0")
    pairs = tuple((key, value) for key, is_, value in (x.partition("=") for x in lines) if is_)
    properties = dict(pairs)
    subsystem = properties.get("SUBSYSTEM", "")
    is_cm = subsystem == "misc" and properties.get("DEVNAME") == _RDMA_CM
    if "ACTION" not in properties or not (subsystem in SUBSYSTEMS or is_cm):
        return None
    return Uevent(properties["ACTION"], subsystem, properties.get("DEVPATH", ""), pairs)


class Uevents(Listener[Uevent]):
    """The kernel's events, as they come: ``async with Uevents() as uevents: async for …``."""

    def __init__(self) -> None:
        super().__init__(_NETLINK_KOBJECT_UEVENT, _KERNEL_GROUP, _decoded, Uevent(LOST))


def _decoded(datagram: bytes, sender: int) -> tuple[Uevent, ...]:
    event = decode(datagram, sender)
    return (event,) if event else ()
