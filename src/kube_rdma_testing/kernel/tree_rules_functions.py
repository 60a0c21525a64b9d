"""What no kernel can show of network functions and their interfaces: the fake kernel's refusals.

It continues tree_rules.py with facts of drivers/pci and net/core, and one limit of the fake: an
RDMA device's function has the interfaces of its ports only (no representors).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kube_rdma.adapters.kernel.sysfs.netdev import LINK_TYPES
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import Device, LinkLayer, PciAddress

_NETDEV = re.compile(r"[^/\s:%]{1,15}")  # IFNAMSIZ is 16 with the final NUL
_LINK_TYPES = {LinkLayer.ETHERNET: "ether", LinkLayer.INFINIBAND: "infiniband"}


def function_complaints(devices: Sequence[Device], functions: Sequence[Function]) -> Iterator[str]:
    """Yield the reasons for which no kernel shows these functions, one sentence each."""
    by_address = {function.position.pci: function for function in functions}
    if [f.position.pci for f in functions] != sorted(by_address):
        yield "a survey lists its functions by address, without doubles"
    names = Counter(netdev.name for function in functions for netdev in function.netdevs)
    yield from (f"interface {name} is there {n} times" for name, n in names.items() if n > 1)
    for function in functions:
        yield from _function(function)
        yield from _virtual(function, by_address)
    for device in devices:
        yield from _on_function(device, by_address, set(names))


def _function(function: Function) -> Iterator[str]:
    where = f"function {function.position.pci}"
    if not (0 <= function.vendor < 1 << 16 and 0 <= function.device < 1 << 16):
        yield f"{where}: vendor and device have 16 bits"
    if function.acpi_index is not None and not 0 <= function.acpi_index < 1 << 32:
        yield f"{where}: the firmware's number has 32 bits"
    if function.driver is None and function.netdevs:
        yield f"{where}: an interface comes with a driver"
    if [n.name for n in function.netdevs] != sorted(n.name for n in function.netdevs):
        yield f"{where}: a survey lists its interfaces by name"
    for netdev in function.netdevs:
        yield from _netdev(f"{where}: {netdev.name}", netdev)


def _netdev(where: str, netdev: Netdev) -> Iterator[str]:
    if not _NETDEV.fullmatch(netdev.name):
        yield f"{where} is not a name of an interface"
    if netdev.link_type not in {*LINK_TYPES.values(), ""}:
        yield f"{where}: no link type is called {netdev.link_type}"
    if netdev.up is (netdev.carrier is None):
        yield f"{where}: the carrier of an interface can be read exactly when it is up"
    if netdev.default_route and not netdev.up:
        yield f"{where}: routes go with the interface that is set down"
    if netdev.bonded and not netdev.master:
        yield f"{where}: what is in a bond is enslaved to it"
    if netdev.fast_path and (netdev.bonded or not netdev.master):
        yield f"{where}: the master of a fast path is no bond"
    if netdev.use is not None:
        yield f"{where}: sysfs does not say what an interface is used for"


def _virtual(function: Function, by_address: dict[PciAddress, Function]) -> Iterator[str]:
    """Yield an error where a card and its virtual functions contradict each other."""
    own, physical = function.position, function.position.physical_function
    missing = [name for name in own.virtual_functions if name not in by_address]
    if missing:
        yield f"function {own.pci}: its virtual function {missing[0]} is of class 02 as well"
    virtual = [by_address[name] for name in own.virtual_functions if name in by_address]
    if any(vf.vendor != function.vendor or vf.device != virtual[0].device for vf in virtual):
        yield f"function {own.pci}: its virtual functions have its vendor and one device id"
    for index, name in enumerate(own.virtual_functions):
        if name in by_address and by_address[name].vf_index != index:
            yield f"function {name}: it is number {index} of {own.pci}"
    if physical is None and function.vf_index is not None:
        yield f"function {own.pci}: only virtual functions are numbered"
    if physical is not None and function.acpi_index is not None:
        yield f"function {own.pci}: the firmware numbers no virtual functions"
    if physical is not None and physical not in by_address:
        yield f"function {own.pci}: its card {physical} is of class 02 as well"


def _on_function(
    device: Device, by_address: dict[PciAddress, Function], names: set[str]
) -> Iterator[str]:
    """Yield an error where a device has another driver or other interfaces than its function.

    Yield one too where these interfaces differ in link layer or bond.
    """
    ports = {port.netdev: port for port in device.ports if port.netdev}
    function = by_address.get(device.position.pci) if device.position else None
    if function is None or device.auxiliary:
        yield from (f"{device.name}: {name} is another's" for name in ports if name in names)
        return
    netdevs = {netdev.name: netdev for netdev in function.netdevs}
    if not ports.keys() <= netdevs.keys():
        yield f"{device.name}: its function {function.position.pci} has other interfaces"
        return
    if not device.is_soft:
        if device.driver != function.driver:
            yield f"{device.name}: its function has the driver {function.driver}"
        if tuple(netdevs) != tuple(sorted(ports)):
            yield f"{device.name}: the fake writes no interfaces beside those of its ports"
    for name, port in ports.items():
        if _LINK_TYPES.get(port.link_layer, "ether") != netdevs[name].link_type:
            yield f"{device.name}: {name} is of another link layer"
        if port.bond != (netdevs[name].master if netdevs[name].bonded else None):
            yield f"{device.name}: {name} is in another bond"
