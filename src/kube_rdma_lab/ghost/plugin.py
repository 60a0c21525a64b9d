"""The ghosts' device plugin: every PCI device of display class is one nvidia.com/gpu.

Runs in a pod of each node (daemonset.yaml), on the product's image, and speaks to the kubelet by
the product's adapter. It gives what programs look for on a GPU node: the NUMA node as a hint, and
NVIDIA_VISIBLE_DEVICES with the ids, which are PCI addresses. A ghost computes nothing, so there is
no device node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin, PluginHandlers
from kube_rdma.lib import logs
from kube_rdma.lib.logs import until_signal
from kube_rdma.model.pools import Grant, Offer, Share, ShareId

RESOURCE = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
KUBELET_DIR = Path("/var/lib/kubelet/device-plugins")
PCI_DEVICES = Path("/sys/bus/pci/devices")
DISPLAY = 0x03  # base class, the upper eight of 24 bits


@dataclass(frozen=True, slots=True)
class Ghost:
    """One PCI device of display class; `numa_node` is None where firmware or kernel names none."""

    pci: str
    numa_node: int | None


def find_ghosts(devices: Path) -> Iterator[Ghost]:
    """Yield the GPU ghosts below /sys/bus/pci/devices, sorted by address."""
    for function in sorted(devices.iterdir()):
        if int((function / "class").read_text(), 16) >> 16 == DISPLAY:
            yield Ghost(function.name, _numa_node(function / "numa_node"))


def _numa_node(file: Path) -> int | None:
    """Read a NUMA node from a file; return None for -1 or, without NUMA in the kernel, no file."""
    node = int(file.read_text()) if file.exists() else -1
    return node if node >= 0 else None


def offer(ghosts: Sequence[Ghost]) -> Offer:
    """Return the device plugin's offer of all GPU ghosts, with one share for each."""
    return Offer(
        RESOURCE,
        tuple(
            Share(ShareId(ghost.pci), True, () if ghost.numa_node is None else (ghost.numa_node,))
            for ghost in ghosts
        ),
    )


def allocate(offered: Offer, wanted: Sequence[ShareId]) -> Grant:
    """Return the variable that names a container's GPU ghosts; raise Refused for an unknown id."""
    unknown = set(wanted) - {share.id for share in offered.shares}
    if unknown:
        raise Refused(
            f"there is no ghost {', '.join(sorted(unknown))}", remedy="Create the pod again"
        )
    return Grant(RESOURCE, tuple(wanted), (), env=((VISIBLE, ",".join(sorted(wanted))),))


def main() -> None:
    """Offer this node's GPU ghosts by the device plugin API until SIGTERM."""
    logs.configure()
    offered = offer(tuple(find_ghosts(PCI_DEVICES)))

    async def answer(wanted: Sequence[ShareId]) -> Grant:
        return allocate(offered, wanted)

    asyncio.run(until_signal(DevicePlugin(KUBELET_DIR, offered, PluginHandlers(answer)).run()))


if __name__ == "__main__":
    main()
