"""Reads what decides how data goes between card and GPU: ACS of PCIe ports, domains of an IOMMU.

The doctor asks for them; no survey has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.sysfs.pci import FUNCTIONS
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.model.device import PciAddress
from kube_rdma.model.doctor import ObservedBridge, ObservedDomain

_CONVENTIONAL, _WHOLE = 256, 4096  # bytes; PCI_CFG_SPACE_SIZE, PCI_CFG_SPACE_EXP_SIZE
_EXTENDED = 0x100  # where extended capabilities begin
_ACS, _ACS_CONTROL = 0x0D, 0x06  # PCI_EXT_CAP_ID_ACS, PCI_ACS_CTRL (uapi/linux/pci_regs.h)
_MOST = (_WHOLE - _EXTENDED) // 8  # capabilities; the list of a broken device may be a circle
_HEADER, _REGISTER = struct.Struct("<I"), struct.Struct("<H")


def read_bridges(
    ports: Iterable[PciAddress], sysfs: SysfsRoot | None = None
) -> tuple[ObservedBridge, ...]:
    """Return the ACS Control registers of these ports; raise Unavailable if one is unreadable."""
    tree = SysfsTree(sysfs)
    bridges = []
    for pci in ports:
        config = tree.data(f"{FUNCTIONS}/{pci}/config")
        control = acs_control(config) if config else None
        if control is None:
            raise Unavailable(
                f"the configuration of PCIe port {pci} cannot be read as a whole, which takes "
                "CAP_SYS_ADMIN"
            )
        bridges.append(ObservedBridge(pci, control))
    return tuple(bridges)


def acs_control(config: bytes) -> int | None:
    """Return ACS Control in a PCI configuration, 0 without ACS; None if it is cut short."""
    if len(config) == _CONVENTIONAL:
        return 0
    if len(config) < _WHOLE:
        return None
    at = next((at for number, at in _capabilities(config) if number == _ACS), None)
    if at is None or at + _ACS_CONTROL + _REGISTER.size > _WHOLE:
        return 0
    return int(_REGISTER.unpack_from(config, at + _ACS_CONTROL)[0])


def read_domains(
    functions: Iterable[PciAddress], sysfs: SysfsRoot | None = None
) -> tuple[ObservedDomain, ...]:
    """Return the IOMMU domain types of these functions; raise Unavailable if one is unknown.

    A function without a group has no IOMMU in front of it.
    """
    tree = SysfsTree(sysfs)
    if not tree.holds("kernel/iommu_groups"):
        raise Unavailable("/sys/kernel/iommu_groups is not there")
    domains = []
    for pci in functions:
        group = tree.link(f"{FUNCTIONS}/{pci}/iommu_group")
        if group is None:
            continue
        kind = tree.text(f"kernel/iommu_groups/{group}/type", required=False)
        if kind is None:
            raise Unavailable(f"the kernel does not tell the type of IOMMU group {group}")
        domains.append(ObservedDomain(pci, kind))
    return tuple(domains)


def _capabilities(config: bytes) -> Iterator[tuple[int, int]]:
    """Yield number and offset of each extended capability in a PCI configuration."""
    at = _EXTENDED
    for _ in range(_MOST):
        header = int(_HEADER.unpack_from(config, at)[0])
        yield header & 0xFFFF, at
        at = header >> 20 & 0xFFC
        if at < _EXTENDED:
            return
