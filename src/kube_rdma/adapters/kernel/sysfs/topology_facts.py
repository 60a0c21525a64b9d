"""Reads what NCCL's topology file says of PCI functions, links and processors.

It is called when a topology file is made, not by the survey. The kernel writes the files in
drivers/pci/pci-sysfs.c, drivers/base/node.c (cpumap) and arch/x86/kernel/cpu/proc.c (cpuinfo). NCCL
reads the same ones (src/graph/xml.cc, ncclTopoGetXmlFromSys, ncclTopoGetXmlFromCpu).
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kube_rdma.adapters.kernel.sysfs.pci import FUNCTIONS
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.model.device import PciAddress
from kube_rdma.model.settings import PciFacts, PlacedNet, Processor, TopologyFacts

_CPUINFO = Path("/proc/cpuinfo")
_NODES = "devices/system/node"
_NODE = re.compile(r"node(\d+)")
_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s.*")
_IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")
_UNKNOWN = 255  # lanes; PCIE_LNK_WIDTH_UNKNOWN of include/linux/pci.h
_ARCHES = {"x86_64": "x86_64", "aarch64": "arm64", "ppc64le": "ppc64"}


def facts_of(nets: Iterable[PlacedNet], sysfs: SysfsRoot | None = None) -> TopologyFacts:
    """Return facts for NCCL's topology: of PCI functions up to these devices, and of processors.

    A recorded tree has no processors. What cannot be read is left out, as NCCL does it.
    """
    tree = SysfsTree(sysfs)
    functions: dict[PciAddress, PciFacts] = {}
    for position in (net.position for net in nets if net.position):
        for above, pci in zip((None, *position.path), position.path, strict=False):
            if pci not in functions:
                functions[pci] = _function(tree, pci, above)
    if sysfs is not None:
        return TopologyFacts(functions)
    masks = {
        int(match[1]): tree.text(f"{_NODES}/{match[0]}/cpumap", required=False) or ""
        for match in map(_NODE.fullmatch, tree.names(_NODES, required=False))
        if match
    }
    return TopologyFacts(functions, masks, read_processor())


def read_processor(cpuinfo: Path = _CPUINFO, machine: str | None = None) -> Processor | None:
    """Return facts of the first processor; None for an architecture unknown to NCCL."""
    arch = _ARCHES.get(machine or platform.machine())
    if arch is None:
        return None
    facts: dict[str, str] = {}
    with suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    numbers = (facts.get(key, "") for key in ("cpu family", "model"))
    family, model = (int(text) if text.isdecimal() else 0 for text in numbers)
    return Processor(arch, facts.get("vendor_id", ""), family, model)


def _function(tree: SysfsTree, pci: PciAddress, above: PciAddress | None) -> PciFacts:
    def text(name: str, of: PciAddress = pci) -> str:
        return tree.text(f"{FUNCTIONS}/{of}/{name}", required=False) or ""

    ends = (pci,) if above is None else (pci, above)
    speeds = [text("max_link_speed", of) for of in ends]
    rated = [(float(match[1]), match[0]) for speed in speeds if (match := _SPEED.fullmatch(speed))]
    widths = [text("max_link_width", of) for of in ends]
    lanes = [int(width) for width in widths if width.isdecimal() and 0 < int(width) < _UNKNOWN]
    ids = {name: text(name) for name in _IDS}
    return PciFacts(
        text("class"),
        **ids,
        link_speed=min(rated)[1] if rated else "",
        link_width=min(lanes, default=0),
    )
