"""The lab's wires: one bridge for the cluster, one per rail, a tap for every NIC of every node.

All of it is made in the supervisor's own network namespace and vanishes with it, so names and
addresses need not differ between two labs on one machine.
"""

from __future__ import annotations

from kube_rdma_lab.processes import call
from kube_rdma_lab.topology import CONTROL_PLANE_IP, RDMA_MTU, NodeSpec, Topology

CLUSTER_BRIDGE = "cluster"


def tap(node: NodeSpec, position: int) -> str:
    """Name of the tap behind one interface; positions as in NodeSpec.mac."""
    return f"n{node.index}p{position}"


def commands(topology: Topology) -> tuple[str, ...]:
    """Return the lines for `ip -batch` that make the topology's network, in order."""
    lines = ["link set lo up", f"link add {CLUSTER_BRIDGE} type bridge"]
    lines += [
        f"addr add {CONTROL_PLANE_IP}/24 dev {CLUSTER_BRIDGE}",
        f"link set {CLUSTER_BRIDGE} up",
    ]
    for rail in topology.rails:
        lines += [f"link add rail{rail} type bridge", f"link set rail{rail} mtu {RDMA_MTU} up"]
    for node in topology.nodes:
        lines += _tap(tap(node, 0), CLUSTER_BRIDGE, 1500)
        for position, nic in enumerate(node.nics, start=1):
            lines += _tap(tap(node, position), f"rail{nic.rail}", RDMA_MTU)
        # The API server reaches webhooks and aggregated APIs in pods directly.
        lines.append(f"route add {node.pod_cidr} via {node.ip}")
    return tuple(lines)


def _tap(name: str, bridge: str, mtu: int) -> list[str]:
    return [
        f"tuntap add dev {name} mode tap",
        f"link set {name} mtu {mtu}",
        f"link set {name} master {bridge} up",
    ]


async def build(topology: Topology) -> None:
    """Make the network in the namespace that we are in."""
    await call(("ip", "-batch", "-"), stdin="\n".join(commands(topology)) + "\n")
