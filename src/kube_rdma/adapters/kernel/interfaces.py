"""Decides which network interface belongs to which RDMA device and port.

sysfs/devices.py and link_view.py ask here with what they read. A PCI function has more than one
interface where it has several ports (dev_port), or an IPoIB child stands beside its parent. So it
has in switchdev mode, where each virtual function and sub-function has a representor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.model.card import Netdev
from kube_rdma.model.device import CharKind, Device, Port, PortState

# What devlink makes of a port's flavour: of a physical one p0 or p0s1, of a function behind the
# switch pf0, pf0vf1, pf0sf88, with c1 in front on another host (__devlink_port_phys_port_name_get,
# net/devlink/port.c). Bare numbers are mlx5's before Linux 5.1; pf0hpf is NVIDIA's own driver's.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(hpf|vf\d+|sf\d+)?")


def is_representor(port_name: str | None, switch: str | None) -> bool:
    """Decide whether an interface represents a function behind the card's switch.

    `port_name` and `switch` are sysfs's phys_port_name and phys_switch_id. Traffic of RDMA never
    goes through such an interface, and it has no GIDs.
    """
    name = port_name or ""
    return bool(_REPRESENTOR.fullmatch(name) or (switch and name.isdecimal()))


def of_ports(
    ports: Sequence[Port],
    beside: Sequence[Netdev],
    merged: Sequence[Netdev],
    dev_port: Callable[[str], int],
    *,
    switchdev: bool,
) -> dict[int, Netdev]:
    """Return the network interfaces of RDMA ports by port number, without ports that have none.

    `beside` are the interfaces of the device's function, `merged` those of functions of its card
    that have no RDMA device. A device with one port owns every interface beside it (bnxt_en counts
    dev_port per card, not per function). With several ports, dev_port distinguishes interfaces,
    from 0. Of several candidates for a port the first that its GID table names counts, else the
    first. In `switchdev` mode several ports are those of the switch.
    """
    own = [one for one in beside if not one.representor]
    if len(ports) > 1 and switchdev:
        return _of_switch(ports, (*own[:1], *merged))
    several = len(ports) > 1
    found = {}
    for port in ports:
        named = {gid.netdev for gid in port.gids}
        mine = [
            *(one for one in own if not several or dev_port(one.name) == port.number - 1),
            *(one for one in merged if one.name in named),
        ]
        if mine:
            found[port.number] = next((one for one in mine if one.name in named), mine[0])
    return found


def _of_switch(ports: Sequence[Port], uplinks: Sequence[Netdev]) -> dict[int, Netdev]:
    """Return the uplinks, by port number, of a device with a port for each vport of its switch.

    A function's uplink is its last vport (mlx5_esw_vports_init, eswitch.c of mlx5). A device of
    several functions has the vports of all (multiport eswitch), or lacks the uplinks of all but the
    first function (VF-LAG). Before Linux 5.9 the uplink was port 1 (mlx5_ib_vport_rep_load,
    ib_rep.c).
    """
    count, every = len(ports), len(uplinks)
    if not every:
        return {}
    whole = count % every == 0
    size = count // every if whole else (count + every - 1) // every
    link, first, last = bool(uplinks[0].carrier), ports[0], ports[size - 1]
    if (first.state is PortState.ACTIVE) == link != (last.state is PortState.ACTIVE):
        return {first.number: uplinks[0]}
    places = range(size - 1, count, size) if whole else (size - 1,)
    return {ports[at].number: one for at, one in zip(places, uplinks, strict=False)}


def as_named(
    device: Device, names: Mapping[int, str], known: Mapping[str, Netdev]
) -> tuple[Port, ...]:
    """Return ports with the interfaces that RDMA netlink names, which override those of sysfs.

    Where both interfaces are in one bond or virtual NIC, that of sysfs stays. Netlink names the
    bond or its active slave, and of Azure's MANA the virtual machine's own interface. For IPoIB
    netlink names none; the interface of sysfs stays, unless netlink names it for another port.
    `known` are interfaces of functions, by name.
    """

    def joined(one: Netdev | None) -> str | None:
        return one.master if one and (one.bonded or one.fast_path) else None

    def named(port: Port) -> Port:
        name = names.get(port.number)
        if name is None:
            other = port.netdev in names.values()
            found = replace(port, netdev=None, bond=None, representor=device.switchdev)
            return found if other else port
        one, own = known.get(name), known.get(port.netdev or "")
        above = {name, joined(one)} - {None}
        if port.netdev == name or {port.bond, joined(own)} & above:
            return port
        bond = one.master if one and one.bonded else None
        behind = one.representor if one else port.representor
        return replace(port, netdev=name, bond=bond, representor=behind)

    return tuple(map(named, device.ports))


def is_management(device: Device, every: Iterable[Device]) -> bool:
    """Decide whether only the subnet manager uses a device: it has no uverbs, one beside it has.

    RDMA netlink says so since Linux 6.11 (RDMA_DEVICE_TYPE_SMI). The kernel never gives such a
    device uverbs (ib_add_sub_device, drivers/infiniband/core/device.c).
    """
    kinds = {char.kind for char in device.char_devices}
    if device.pci is None or device.auxiliary or CharKind.UVERBS in kinds or not kinds:
        return False
    beside = (one for one in every if one.pci == device.pci and not one.auxiliary)
    return any(char.kind is CharKind.UVERBS for one in beside for char in one.char_devices)
