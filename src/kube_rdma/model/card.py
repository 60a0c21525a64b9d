"""Defines what a share can stand for: a card, that is one network function with its RDMA devices.

A Device is what verbs open; a Card is what a scheduler gives away. They differ where one function
carries several devices, or has none yet, such as a virtual function on which Soft-RoCE is made
later. They also differ where the devices are out of sight because the card sits inside a pod. The
module pools/rules/selection makes Cards out of a Survey.
"""

from __future__ import annotations

from typing import NewType

from kube_base.frozen import Frozen, field
from kube_rdma.model.device import Device, PciAddress, PciPosition

CardId = NewType("CardId", str)
"""The id of a card, which outlives renames, moves between namespaces and reboots.

It is the auxiliary device (of a sub-function), else the PCI address, else ``<link>@<netdev>`` of a
soft device without a function below it. A long one is cut (pools/rules/selection).
"""

USER_SPACE = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio"})
"""Drivers that hand a function to a program or a virtual machine: no interface, no RDMA device."""


def is_vfio(driver: str | None) -> bool:
    """Return whether a driver is vfio-pci or a variant such as mlx5_vfio_pci."""
    return driver is not None and "vfio" in driver


class Netdev(Frozen):
    """A network interface of a PCI function, as its network namespace shows it."""

    name: str
    link_type: str  # what netlink calls its encapsulation: "ether", "infiniband"; "" for others
    up: bool  # administratively
    carrier: bool | None  # None: not readable, which the kernel says of an interface that is down
    default_route: bool | None = False  # the node is reached through it; None: not known
    master: str | None = None  # what it is enslaved to: a bond, a bridge, a VRF
    bonded: bool = False  # the master is a bond, on which virtual interfaces stand
    fast_path: bool = False  # of a virtual machine's own interface, which is the master
    representor: bool = False  # stands for a function behind the card's switch (switchdev mode)
    use: Use | None = None  # None: nobody asked, or it is not surely the node's own
    needed: str | None = None  # which address of the node it carries: "the node's InternalIP …"

    @property
    def vital(self) -> bool:
        """Return whether the node is, or may be, reached through this interface."""
        return self.default_route is not False or self.needed is not None


class Use(Frozen):
    """The use that the node makes of an interface; all fields are empty if it is merely up.

    Link-local addresses (fe80::) and their routes do not count, for the kernel makes them.
    """

    addresses: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()  # those of `addresses` that end unless somebody renews them
    routes: tuple[str, ...] = ()  # where they lead
    above: tuple[str, ...] = ()  # interfaces of the node: a bond, a bridge, a vlan
    guests: tuple[str, ...] = ()  # MACs besides its own: of a macvlan, also one inside a pod
    beyond: tuple[str, ...] = ()  # those of `routes` that its own addresses do not bring along
    storage: tuple[str, ...] = ()  # servers of mounted storage that are reached through it


class IommuGroup(Frozen):
    """The IOMMU group of a vfio function, which is the least that a program can own.

    Its file opens every function of the group (vfio_device_get_from_name, drivers/vfio/group.c).
    """

    number: int
    others: tuple[tuple[str, str | None], ...] = ()  # its further devices, each with its driver
    guarded: bool = True  # False: in vfio's no-IOMMU mode the device reaches all memory of the node

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files by which a program opens the group; none if it is not guarded."""
        return (f"/dev/vfio/{self.number}", "/dev/vfio/vfio") if self.guarded else ()


class Function(Frozen):
    """A PCI function of class 02 (network), with or without a driver, interface or RDMA device."""

    position: PciPosition = field(name="seat")  # the name in a bundle
    vendor: int  # 16 bits, 0x15b3
    device: int
    driver: str | None
    # Of the namespace that was read, representors last; none when in a pod.
    netdevs: tuple[Netdev, ...] = ()
    acpi_index: int | None = None  # firmware's number of an onboard card (sysfs acpi_index)
    vf_index: int | None = None  # its number among the virtual functions of its physical one
    group: IommuGroup | None = None  # read only where vfio drives it

    @property
    def own_netdevs(self) -> tuple[Netdev, ...]:
        """Return the function's interfaces without representors of functions behind its switch."""
        return tuple(netdev for netdev in self.netdevs if not netdev.representor)

    @property
    def for_programs(self) -> bool:
        """Return whether the function's driver gives it to a program or a virtual machine."""
        return self.driver in USER_SPACE or is_vfio(self.driver)


class Card(Frozen):
    """A card: a PCI function, a sub-function or a soft device, with its RDMA devices.

    `reasons` is empty exactly when it is usable, also while a pod has it.
    """

    id: CardId
    devices: tuple[Device, ...]
    function: Function | None  # None: an auxiliary or soft device, or a tree without PCI facts
    reasons: tuple[str, ...] = ()
    management: tuple[Device, ...] = ()  # of the subnet manager alone: no program opens them

    @property
    def usable(self) -> bool:
        """Return whether this card can be given to pods, also while one has it."""
        return not self.reasons

    @property
    def name(self) -> str:
        """Return the names of the card's RDMA devices, else its interfaces, else its id."""
        names = [device.name for device in self.devices]
        if not names and self.function:
            names = [netdev.name for netdev in self.function.own_netdevs]
        return "+".join(names) or self.id

    @property
    def position(self) -> PciPosition | None:
        """Return the position of the card's function, else that of a device, else None."""
        if self.function:
            return self.function.position
        return next((device.position for device in self.devices if device.position), None)

    @property
    def numa_node(self) -> int | None:
        """Return the NUMA node of the function, or of the first device if there is no function."""
        if self.function:
            return self.function.position.numa_node
        return self.devices[0].numa_node if self.devices else None

    @property
    def pci(self) -> PciAddress | None:
        """Return the PCI address of the card's position, None without one."""
        return self.position.pci if self.position else None

    @property
    def vfio_paths(self) -> tuple[str, ...]:
        """Return the files by which a program opens the function's IOMMU group; or none."""
        return self.function.group.paths if self.function and self.function.group else ()
