"""One node as a user-mode kernel: Linux as a program of this machine, and its cards in software.

The other kind of machine, beside QEMU's (qemu_machine.py): the same disks, initramfs and wires.
Programs in it run on the processor itself, so it needs no KVM and is ten times as fast as emulation
(docs/lab.md). It has no NUMA nodes and no switches of PCIe.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kube_rdma_lab.build.parts import MachineParts
from kube_rdma_lab.console import LOUDNESS
from kube_rdma_lab.network import end
from kube_rdma_lab.topology import RDMA_MTU, NicKind, NodeSpec

# Its console is its output; `seccomp` lets it catch system calls without ptrace.
KERNEL_ARGUMENTS = f"con=null con0=fd:0,fd:1 seccomp=on panic=-1 {LOUDNESS} net.ifnames=0 audit=0"
CARD_KINDS = {NicKind.VIRTIO: "card", NicKind.IGB: "sriov"}


def wire(position: int) -> str:
    """Return a wire interface's name in the user-mode kernel; positions as in NodeSpec.mac."""
    return f"vec{position}"


def wires(node: NodeSpec) -> list[str]:
    """Return options for a node's network wires: the cluster's first, then one for each card.

    The file descriptors of the cards' wires are opened by wires.py. A wire's MAC differs from its
    card's.
    """
    cluster = f"{wire(0)}:transport=raw,ifname={end(node, 0)},mtu=1500,mac={node.mac(0)}"
    rails = (
        f"{wire(position)}:transport=fd,fd={end(node, position)},mtu={RDMA_MTU}"
        f",mac={node.mac(position).replace('52:54', '52:55', 1)}"
        for position in range(1, len(node.nics) + 1)
    )
    return [cluster, *rails]


def cards(node: NodeSpec) -> str:
    """Return the option that lists the PCI functions, as user_mode/soft_card.c reads it."""
    functions = [
        f"{CARD_KINDS[nic.kind]}/{nic.numa_node}/{node.mac(position)}/{wire(position)}"
        for position, nic in enumerate(node.nics, start=1)
    ]
    return "soft_card.cards=" + ",".join(
        [*functions, *(f"ghost/{gpu.numa_node}" for gpu in node.gpus)]
    )


def command_line(node: NodeSpec, parts: MachineParts, initrd: Path, disk: Path) -> list[str]:
    """Return the command line of a user-mode node; the first start makes its own disk."""
    assert parts.user_mode is not None
    argv = [sys.executable, "-P", "-m", "kube_rdma_lab.wires", str(parts.user_mode)]
    argv += [f"mem={node.memory_mib}M", f"ncpus={node.cpus}"]
    argv += [f"initrd={initrd}", f"ubd0rc={parts.root_disk}", f"ubd1={disk},{parts.image_disk}"]
    argv += [f"uml_dir={disk.parent}/", "umid=user-mode", *wires(node), cards(node)]
    return [*argv, *KERNEL_ARGUMENTS.split(), *node.kernel_words]
