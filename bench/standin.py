"""The agent on a node that a benchmark makes up: everything is real but the kernel.

The kernel is a sysfs tree in a temporary folder, read as a real one is, and announcements that are
pushed by hand. `events` runs the agent beside a kubelet in its own process. `allocate` runs this
module as one, the size of `kube-rdma agent`: it serves what its folder holds until SIGTERM, and at
every SIGUSR1 prints what it has cost so far.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from selectors import DefaultSelector, SelectorKey

from kube_rdma.adapters.kernel.sysfs.counters import read_states
from kube_rdma.adapters.kubelet.device_plugin import Registry, serve
from kube_rdma.adapters.kubelet.folders import (
    DEVICE_PLUGINS,
    KUBELET_SOCKET,
    PLUGINS_REGISTRY,
    POD_RESOURCES,
    Folders,
)
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.agent.loop import AgentDependencies, run_plugin
from kube_rdma.hardware.kernel_events import KernelSources
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.lib import logs
from kube_rdma.lib.logs import until_signal
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.kernel.listeners import FakeRtnlEvents, FakeUevents
from kube_rdma_testing.kernel.tree import write_tree

RESOURCE = "rdma/hca"
CONFIG, TREE = "config.json", "tree"
RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)


def card(number: int, layer: LinkLayer = LinkLayer.ETHERNET, *, up: bool = True) -> Device:
    """Return one card of the node; `number` is below 16."""
    pci = PciAddress(f"0000:{0x10 * number + 1:02x}:00.0")
    state = PortState.ACTIVE if up else PortState.DOWN
    physical = PhysicalState.LINK_UP if up else PhysicalState.POLLING
    fabric = layer is LinkLayer.INFINIBAND
    kind, netdev = (GidType.IB_OR_ROCE_V1, None) if fabric else (GidType.ROCE_V2, f"eth{number}")
    gid = Gid(0, f"fe80:0000:0000:0000:5054:00ff:fe00:{number + 1:04x}", kind, netdev)
    return Device(
        name=f"mlx5_{number:02}",
        identity=str(pci),
        node_guid=f"b8ce:f603:000a:{number + 1:04x}",
        node_type="CA",
        driver="mlx5_core",
        firmware="28.39.1002",
        pci=pci,
        numa_node=number // 8,
        ports=(Port(1, state, physical, layer, 400.0, netdev, (gid,)),),
        char_devices=(
            CharDevice(CharKind.UVERBS, f"/dev/infiniband/uverbs{number}", 231, 192 + number),
        ),
        position=PciPosition(pci, f"pci0000:{0x10 * number:02x}", (pci,), number // 8),
    )


def write_node(tree: Path, cards: Sequence[Device]) -> None:
    """Write the sysfs tree of a node with these cards."""
    functions = []
    for card in cards:
        assert card.position
        names = [port.netdev for port in card.ports if port.netdev]
        up = card.ports[0].state is PortState.ACTIVE
        netdevs = tuple(Netdev(name, "ether", up=True, carrier=up) for name in names)
        functions.append(Function(card.position, 0x15B3, 0x1021, card.driver, netdevs))
    write_tree(tree, cards, RDMA_CM, functions=functions)


def write_config(folder: Path, pool: dict[str, object]) -> None:
    """Write a configuration with this one pool of RESOURCE."""
    policy = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": "bench"},
        "spec": {"pools": [{"resource": RESOURCE, **pool}]},
    }
    (folder / CONFIG).write_text(json.dumps(policy))


class Standin:
    """The kernel of a node: `show` another tree, then push what it would announce."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.uevents = FakeUevents()
        self.links = FakeRtnlEvents()

    def dependencies(self, folder: Path) -> AgentDependencies:
        """Return the dependencies of an agent; kubelet and configuration are in `folder`."""
        # Not looked for: a kubelet of this machine must not hear of cards that are made up.
        pod_resources = folder / POD_RESOURCES / KUBELET_SOCKET
        folders = Folders(folder / DEVICE_PLUGINS, folder / PLUGINS_REGISTRY, pod_resources)
        kernel = KernelSources(
            lambda: survey_at(self.tree),
            (("devices", lambda: self.uevents), ("links", lambda: self.links)),
            port_states=lambda ports: read_states(self.tree, ports),
        )
        serving = partial(serve, Registry.DEVICE_PLUGINS, folders)
        return AgentDependencies(
            folder / CONFIG, kernel, serving, KubeletView(PodResources(pod_resources))
        )


class Counting(DefaultSelector):
    """Counts how often the event loop woke, which not every kernel tells of a process."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes = 0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Wait as the loop does."""
        ready = super().select(timeout)
        self.wakes += timeout is None or timeout > 0
        return ready


@dataclass(frozen=True, slots=True)
class Cost:
    """What the agent had cost when it was asked."""

    wakes: int  # of the event loop, the question's own among them
    cpu_seconds: float
    resident_mib: float


def cost(selector: Counting) -> Cost:
    """Return what this process has cost so far."""
    status = Path("/proc/self/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident
    return Cost(selector.wakes, time.process_time(), int(resident[1]) / 1024)


def main(folder: Path) -> None:
    """Run the agent on what `folder` holds: tree, configuration, the kubelet's folders."""
    selector = Counting()

    async def run() -> None:
        def tell() -> None:
            spent = cost(selector)
            print(spent.wakes, spent.cpu_seconds, spent.resident_mib, flush=True)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
        await until_signal(run_plugin(Standin(folder / TREE).dependencies(folder)))

    logs.configure()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(run())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
