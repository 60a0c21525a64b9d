"""The command line of a node as a QEMU machine: its processors, memory, disks, cards and ghosts.

machine.py runs it. The other kind of machine is user_mode_machine.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kube_rdma_lab.build.parts import MachineParts
from kube_rdma_lab.console import LOUDNESS
from kube_rdma_lab.network import tap
from kube_rdma_lab.topology import RDMA_MTU, NicKind, NodeSpec

# What costs an emulated processor much and gives a lab nothing.
FRUGAL = (
    "numa_balancing=disable transparent_hugepage=never init_on_alloc=0 nowatchdog audit=0 psi=0"
    " randomize_kstack_offset=off no5lvl"
    # The kubelet reads every controller's tree every two seconds; no pod of a lab uses these.
    " cgroup_disable=io,hugetlb,misc"
    # On a busy host the kernel takes a late timer for a broken one: it panics, or drops the TSC.
    " no_timer_check tsc=reliable"
)
KERNEL_ARGUMENTS = f"console=ttyS0 {LOUDNESS} panic=-1 mitigations=off net.ifnames=0 {FRUGAL}"
# Bus numbers of the two sockets' PCIe roots; the gap leaves room for what hangs below.
BUS_NUMBERS = {0: 32, 1: 64}
UPLINKS = 100  # chassis of the switches' ports start behind those of all functions
NIC_DEVICES = {
    NicKind.VIRTIO: f"virtio-net-pci,host_mtu={RDMA_MTU}",
    NicKind.IGB: "igb",
}


def numa(node: NodeSpec) -> list[str]:
    """Return options that split memory and processors evenly over the node's NUMA nodes."""
    share = node.memory_mib // node.numa_nodes
    argv: list[str] = []
    for number in range(node.numa_nodes):
        argv += ["-object", f"memory-backend-ram,id=mem{number},size={share}M"]
        argv += ["-numa", f"node,nodeid={number},cpus={number},memdev=mem{number}"]
    return argv


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device for QEMU: options, NUMA node, and the number of its switch (0: none).

    `backend` are the options of the host's end of a card, its tap.
    """

    options: str
    numa_node: int
    switch: int = 0
    backend: tuple[str, ...] = ()


def functions(node: NodeSpec) -> list[PciDevice]:
    """Return a node's cards, then its ghosts (stand-ins for GPUs), as QEMU devices."""
    cards = []
    for position, nic in enumerate(node.nics, start=1):
        options = f"{NIC_DEVICES[nic.kind]},netdev=net{position},mac={node.mac(position)},romfile="
        backend = ("-netdev", _tap(node, position))
        cards.append(PciDevice(options, nic.numa_node, backend=backend))
    ghosts = (PciDevice("bochs-display,vgamem=4M", gpu.numa_node, gpu.switch) for gpu in node.gpus)
    return [*cards, *ghosts]


def pci_tree(node: NodeSpec) -> list[str]:
    """Return options for a PCIe root per socket, the switches below, and every function.

    A switch is a port of the root with an upstream port in it; `chassis` tells ports apart. Only
    GPU ghosts sit below switches.
    """
    placed = functions(node)
    argv: list[str] = []
    for socket in sorted({function.numa_node for function in placed}):
        options = f"id=socket{socket},bus_nr={BUS_NUMBERS[socket]},bus=pcie.0,numa_node={socket}"
        argv += ["-device", f"pxb-pcie,{options}"]
    for switch, socket in sorted({(each.switch, each.numa_node) for each in placed if each.switch}):
        port = f"pcie-root-port,id=uplink{switch},bus=socket{socket},chassis={UPLINKS + switch}"
        argv += ["-device", port, "-device", f"x3130-upstream,id=switch{switch},bus=uplink{switch}"]
    for number, function in enumerate(placed, start=1):
        above = f"switch{function.switch}" if function.switch else f"socket{function.numa_node}"
        kind = "xio3130-downstream" if function.switch else "pcie-root-port"
        argv += ["-device", f"{kind},id=port{number},bus={above},chassis={number}"]
        argv += [*function.backend, "-device", f"{function.options},bus=port{number}"]
    return argv


def interfaces(node: NodeSpec) -> list[str]:
    """Return options for the cluster's NIC and for all devices below the sockets.

    Every device names its bus: with a pxb present QEMU might otherwise place it there.
    """
    cluster = f"virtio-net-pci,netdev=net0,mac={node.mac(0)},bus=pcie.0,romfile="
    return ["-netdev", _tap(node, 0), "-device", cluster, *pci_tree(node)]


def _tap(node: NodeSpec, position: int) -> str:
    return f"tap,id=net{position},ifname={tap(node, position)},script=no,downscript=no"


def kernel_arguments(node: NodeSpec) -> str:
    """Return the kernel's command line for a node that QEMU runs."""
    return " ".join((KERNEL_ARGUMENTS, *node.kernel_words))


def command_line(
    node: NodeSpec, parts: MachineParts, accelerator: tuple[str, ...], initrd: Path, disk: Path
) -> list[str]:
    """Return the whole command line of a node; `accelerator` are options of accelerator.py."""
    argv = [*parts.qemu.system_argv, "-name", node.name, "-machine", "q35"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"]
    argv += [*accelerator, "-smp", str(node.cpus), "-m", str(node.memory_mib)]
    argv += numa(node)
    argv += [
        "-kernel",
        str(parts.kernel),
        "-initrd",
        str(initrd),
        "-append",
        kernel_arguments(node),
    ]
    root = f"file={parts.root_disk},format=raw,if=none,id=root,readonly=on,file.locking=off"
    # Nobody writes to what lies below it, and a user-mode kernel locks that for itself.
    images = f"file={disk},format=qcow2,if=none,id=images,cache=unsafe,backing.file.locking=off"
    for name, options in (("root", root), ("images", images)):
        argv += ["-drive", options, "-device", f"virtio-blk-pci,drive={name},bus=pcie.0"]
    argv += ["-device", "virtio-rng-pci,bus=pcie.0"]
    return argv + interfaces(node)
