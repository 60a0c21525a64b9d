"""Addresses that virtual functions have from the beginning: a MAC, on InfiniBand the GUIDs.

On InfiniBand the link of the card too, for mlx5 makes functions whose link is down.

Called by functions.py when functions are made and no driver is bound to them yet. A driver finds
what the physical function has for its own; where that has nothing, some choose another MAC after
each boot (igb), and a function of mlx5 has no node GUID then, which RDMA CM and every InfiniBand
fabric need (mlx5_eswitch_set_vport_mac, mlx5_modify_hca_vport_context). An address follows from
that of the physical function and the number of the virtual one, so it is the same after a reboot.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface, interfaces
from kube_rdma.adapters.kernel.netlink.rtnl_vf import set_function
from kube_rdma.adapters.kernel.pod.errors import INFINIBAND
from kube_rdma.model.functions.function import SetFunctions
from kube_rdma.model.functions.step import FunctionPlace, FunctionSettings, LinkState, SetFunction
from kube_rdma.model.link import PlannedHostLink

_MAC, _GUID = 6, 8  # octets
_PORT = 23  # characters of the GUID at the end of an IPoIB interface's address


def give_addresses(act: SetFunctions, numbers: Sequence[int]) -> None:
    """Tell the physical function the addresses of its virtual ones of these numbers.

    Raise Refused for what its driver does not take, Unavailable when it has no interface here.
    """
    with open_rtnl() as node:
        tell(node, act, numbers)


def tell(node: Netlink, act: SetFunctions, numbers: Sequence[int]) -> None:
    """As give_addresses, on the node's socket."""
    above = _interface(node, act)
    for number in numbers:
        place = FunctionPlace(
            PlannedHostLink(above.seen.index, above.seen.name), act.physical, number
        )
        set_function(node, SetFunction(place, settings(above, number), FunctionSettings()))


def settings(above: Interface, number: int) -> FunctionSettings:
    """What the virtual function of this number has for its own."""
    if above.hardware == INFINIBAND:
        guid = made_of(above.seen.mac[-_PORT:], number, _GUID)
        return FunctionSettings(link_state=LinkState.AUTO, node_guid=guid, port_guid=guid)
    return FunctionSettings(mac=made_of(above.permanent_mac or above.seen.mac, number, _MAC))


def made_of(own: str, number: int, octets: int) -> str:
    """An address of one interface, marked as given by who runs the network and not by a vendor."""
    address = bytearray(blake2b(f"{own.lower()}/{number}".encode(), digest_size=octets).digest())
    address[0] = address[0] & 0xFC | 0x02
    return address.hex(":")


def _interface(node: Netlink, act: SetFunctions) -> Interface:
    """By its function; where the kernel does not say that (before 5.14), by its name."""
    candidates = [one for one in interfaces(node) if not one.seen.virtual]
    for interface in candidates:
        if interface.seen.pci == act.physical:
            return interface
    for interface in candidates:
        if interface.seen.pci is None and interface.seen.name == act.name:
            return interface
    raise Unavailable(f"{act.name} has no interface here, so the addresses cannot be set.")
