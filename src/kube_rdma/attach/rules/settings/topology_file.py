"""NCCL's topology file: where RDMA devices sit, for those that NCCL does not find by itself.

NCCL asks sysfs which PCI function is an RDMA device's own. A sub-function has an auxiliary device
there and a soft device nothing, so that NCCL puts both at the first processor, far from the GPUs
(src/graph/xml.cc, ncclTopoFillNet). A device that the file names stands where the file has it. All
else is NCCL's to find: GPUs, NVLink, rates of ports, GUIDs.

So the file has each device's function and what NCCL would have read above it, all of it, for
NCCL reads nothing of a function whose device it knows; and every NUMA node, for a processor that
NCCL adds itself counts as another host's beside those of a file (ncclGetSystemId). Elements and
attributes are those of NCCL 2.4 to 2.29 (src/graph/xml.cc, topo.cc).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement

from kube_rdma.model.device import PciAddress
from kube_rdma.model.settings.topology_file import PciFacts, PlacedNet, Processor, TopologyFacts

VERSION = "1"  # NCCL_TOPO_XML_VERSION
LONGEST = 254  # characters of a value that NCCL reads (xmlGetValue, MAX_STR_LEN)
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")  # NCCL knows no escapes
_BRIDGE, _NETWORK = "0x060400", "0x020000"  # where sysfs does not say
_X86 = "x86_64"


def topology_file(nets: Sequence[PlacedNet], facts: TopologyFacts) -> str:
    """The text of the file; none without a device that can be named in it."""
    nets = [net for net in nets if _NAME.fullmatch(net.name)]
    if not nets:
        return ""
    top = Element("system", version=VERSION)
    numa_nodes = {*facts.masks, *(_numa_node(net) for net in nets)}
    cpus = {numa: _cpu(top, numa, facts) for numa in sorted(numa_nodes)}
    for net in sorted(nets, key=lambda net: (net.seat.path if net.seat else (), net.name)):
        above = cpus[_numa_node(net)]
        for pci in _seen_by_nccl(net.seat.path) if net.seat else ():
            above = _pci(above, pci, facts, is_card=net.seat is not None and pci == net.seat.pci)
        nic = above.find("nic")
        SubElement(SubElement(above, "nic") if nic is None else nic, "net", name=net.name)
    return "\n".join(_lines(top)) + "\n"


def _numa_node(net: PlacedNet) -> int:
    numa_node = net.seat.numa_node if net.seat else net.numa_node
    return -1 if numa_node is None else numa_node


def _seen_by_nccl(path: Sequence[PciAddress]) -> Sequence[PciAddress]:
    """From the top down. NCCL goes up two steps at once, so it sees one port of each switch."""
    return path[::-1][::2][::-1]


def _cpu(top: Element, numa: int, facts: TopologyFacts) -> Element:
    cpu = SubElement(top, "cpu", numaid=str(numa))
    mask = facts.masks.get(numa, "")
    if 0 < len(mask) <= LONGEST:
        cpu.set("affinity", mask)
    if facts.processor:
        for name, value in _processor(facts.processor):
            cpu.set(name, value)
    return cpu


def _processor(processor: Processor) -> Iterator[tuple[str, str]]:
    """The family is CPUID's two parts as NCCL has put them together; newer ones take both ways."""
    yield "arch", processor.arch
    if processor.arch == _X86:
        base = min(processor.family, 0xF)
        yield "vendor", processor.vendor
        yield "familyid", str(base + (processor.family - base << 4))
        yield "modelid", str(processor.model)


def _pci(above: Element, pci: PciAddress, facts: TopologyFacts, *, is_card: bool) -> Element:
    for sub in above.findall("pci"):
        if sub.get("busid") == pci:
            return sub
    own = facts.functions.get(pci, PciFacts())
    element = SubElement(above, "pci", busid=pci)
    element.set("class", own.pci_class or (_NETWORK if is_card else _BRIDGE))
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        if value := getattr(own, name):
            element.set(name, value)
    element.set("link_speed", own.link_speed)
    element.set("link_width", str(own.link_width))
    return element


def _lines(element: Element, depth: int = 0) -> Iterable[str]:
    """NCCL's reader takes no declaration, and no blank before the end of an element."""
    words = "".join(f' {name}="{value}"' for name, value in element.items())
    indent = "  " * depth
    if not len(element):
        yield f"{indent}<{element.tag}{words}/>"
        return
    yield f"{indent}<{element.tag}{words}>"
    for sub in element:
        yield from _lines(sub, depth + 1)
    yield f"{indent}</{element.tag}>"
