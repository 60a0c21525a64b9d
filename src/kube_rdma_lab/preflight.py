"""Checks this machine before a lab is built: processor, root, programs, memory, the kernel."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.native import host
from kube_rdma_lab.topology import Topology

# What a part of the lab really takes beside its guest's memory ceiling, measured resident.
CONTROL_PLANE_MIB = 700
# An emulated node has touched about half of its memory when it is Ready (measured: 1.2 GB of 3).
NODE_SHARE = 0.5
NATIVE_MIB = 300  # kubelet, containerd and kube-proxy of a native node

TOOLS = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "setsid": "util-linux",
    "nsenter": "util-linux",
}
NODE_TOOLS = {"mmdebstrap": "mmdebstrap"}
MACHINE_TOOLS = {"ssh": "openssh-client", "mkfs.ext4": "e2fsprogs", "depmod": "kmod"}


def available_mib(meminfo: str) -> int:
    """Return MemAvailable of a /proc/meminfo text in MiB; 0 without it."""
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) // 1024
    return 0


def needed_mib(topology: Topology) -> int:
    """Return about how much memory a topology takes once it is up, in MiB."""
    machines = sum(node.memory_mib for node in topology.machines)
    return CONTROL_PLANE_MIB + NATIVE_MIB * len(topology.natives) + int(machines * NODE_SHARE)


def needed_tools(topology: Topology) -> dict[str, str]:
    """Return the programs that a topology takes, with the package that brings each."""
    of_nodes = NODE_TOOLS if topology.nodes else {}
    return {**TOOLS, **of_nodes, **(MACHINE_TOOLS if topology.machines else {})}


def check(topology: Topology) -> None:
    """Raise Refused for the first obstacle to booting `topology` on this machine."""
    if platform.machine() != "x86_64":
        raise Refused(
            f"this machine is {platform.machine()}, the lab's nodes are x86_64",
            remedy="Run the lab on an x86_64 machine",
        )
    if os.geteuid() != 0:
        raise Refused(
            "the lab makes network namespaces and needs root", remedy="Run it again with sudo"
        )
    for tool, package in needed_tools(topology).items():
        if shutil.which(tool) is None:
            raise Refused(
                f"the program {tool} is missing", remedy=f"Run tools/bootstrap or install {package}"
            )
    if topology.machines and not Path("/dev/net/tun").exists():
        raise Refused(
            "/dev/net/tun is missing, the nodes' network cards are made from it",
            remedy="Run `modprobe tun`; in a container, pass the device in",
        )
    available = available_mib(Path("/proc/meminfo").read_text())
    if available < needed_mib(topology):
        raise Refused(
            f"{available} MiB of memory are available, topology {topology.name} needs"
            f" {needed_mib(topology)} MiB",
            remedy="End other programs or choose a smaller --topology",
        )
    if topology.natives:
        natives = topology.natives
        host.check(len(natives), trees=any(node.tree for node in natives))
