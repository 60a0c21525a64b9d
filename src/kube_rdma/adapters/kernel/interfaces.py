"""Decides which network interface belongs to which RDMA device and port; nothing else does.

sysfs/devices.py and netlink/rdma_read.py ask here with what they read. Interfaces of one PCI
function are more than one where it has several ports (dev_port), where an IPoIB child stands beside
its parent, and in switchdev mode, where each virtual function and sub-function has a representor.
An RDMA device without interfaces of its own has those that its GIDs name: of eRDMA another
function's, of a multi-PF card (Documentation/networking/multi-pf-netdev.rst) the first function's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.model.card import Netdev
from kube_rdma.model.device import CharKind, Device, Port

# What devlink makes of a port's flavour: of a physical one p0 or p0s1, of a function behind the
# switch pf0, pf0vf1, pf0sf88, with c1 in front on another host (__devlink_port_phys_port_name_get,
# net/devlink/port.c). Bare numbers are mlx5's before Linux 5.1; pf0hpf is NVIDIA's own driver's.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(hpf|vf\d+|sf\d+)?")


def is_representor(port_name: str | None, switch: str | None) -> bool:
    """Decide whether an interface stands for a function behind a card's switch.

    `port_name` and `switch` are sysfs's phys_port_name and phys_switch_id. Traffic of RDMA never
    goes through such an interface, and it has no GIDs.
    """
    name = port_name or ""
    return bool(_REPRESENTOR.fullmatch(name) or (switch and name.isdecimal()))


def of_port(
    port: Port, ports: int, beside: Sequence[Netdev], dev_port: Callable[[str], int | None]
) -> Netdev | None:
    """Return that of the interfaces `beside` a device which is this port's; None without one.

    A device with one port owns every interface beside it (bnxt_en counts dev_port per card, not
    per function); with several `ports` dev_port, from 0, tells them apart. Of the rest the GID
    table names the right one.
    """
    own = [one for one in beside if not one.representor]
    if ports > 1:
        own = [one for one in own if (dev_port(one.name) or 0) == port.number - 1]
    named = {gid.netdev for gid in port.gids}
    return next((one for one in own if one.name in named), own[0] if own else None)


def as_named(port: Port, name: str, known: Mapping[str, Netdev]) -> Port:
    """Return a port of hardware with the interface that RDMA netlink calls `name`.

    The kernel's word counts, but for what stands above or beside the interface in the same bond or
    virtual NIC: of a bond it names the bond or the active slave, and of Azure's MANA the virtual
    machine's own interface. `known` are interfaces of functions, by name.
    """
    named, own = known.get(name), known.get(port.netdev or "")
    above = {name, named.master if named else None} - {None}
    if port.netdev == name or {port.bond, own.master if own else None} & above:
        return port
    return replace(
        port,
        netdev=name,
        bond=named.master if named and named.bonded else None,
        representor=named is not None and named.representor,
    )


def is_management(device: Device, every: Iterable[Device]) -> bool:
    """Decide whether only the subnet manager uses a device: its sibling has uverbs, it has umad.

    RDMA netlink says so since Linux 6.11 (RDMA_DEVICE_TYPE_SMI). The kernel never gives such a
    device uverbs (ib_add_sub_device, drivers/infiniband/core/device.c).
    """
    kinds = {char.kind for char in device.char_devices}
    if device.pci is None or device.auxiliary or CharKind.UVERBS in kinds or not kinds:
        return False
    beside = (one for one in every if one.pci == device.pci and not one.auxiliary)
    return any(char.kind is CharKind.UVERBS for one in beside for char in one.char_devices)
