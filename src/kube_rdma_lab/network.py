"""The lab's wires: one bridge for the cluster, one per rail, an end for every NIC of every node.

A leaf switch is a bridge for each rail, and the rail's own bridge connects them as a spine does. So
cards of a rail reach each other wherever they are plugged in (cables.py), and rails stay apart.

All of it is made in the supervisor's own network namespace and vanishes with it. So two labs on one
machine may have the same names and addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from kube_rdma_lab.processes import call
from kube_rdma_lab.topology import CONTROL_PLANE_IP, RDMA_MTU, NodeKind, NodeSpec, Topology

CLUSTER_BRIDGE = "cluster"


def tap(node: NodeSpec, position: int) -> str:
    """Return the name of an interface's end in the lab; positions are as in NodeSpec.mac."""
    return f"n{node.index}p{position}"


def end(node: NodeSpec, position: int) -> str:
    """Return the name of a veth's other end, which a native node or a user-mode kernel takes."""
    return f"n{node.index}e{position}"


def bridge(rail: int, leaf: str = "") -> str:
    """Return the name of a rail's bridge, or of a leaf switch's bridge for that rail."""
    return f"{leaf}-r{rail}" if leaf else f"rail{rail}"


Cards = Mapping[str, Sequence[str]]  # the interfaces of native nodes' cards, by node name


def commands(topology: Topology, cards: Cards) -> tuple[str, ...]:
    """Return the lines for `ip -batch` that make the topology's network, in order."""
    lines = ["link set lo up", f"link add {CLUSTER_BRIDGE} type bridge"]
    lines += [
        f"addr add {CONTROL_PLANE_IP}/24 dev {CLUSTER_BRIDGE}",
        f"link set {CLUSTER_BRIDGE} up",
    ]
    rails = {*topology.rails, *(rail for names in cards.values() for rail in range(len(names)))}
    for rail in sorted(rails):
        lines += _bridge(bridge(rail))
    for number, (leaf, rail) in enumerate(product(topology.leaves, sorted(rails))):
        up, down = f"up{number}", f"down{number}"
        lines += [*_bridge(bridge(rail, leaf)), f"link add {up} type veth peer name {down}"]
        lines += _join(up, bridge(rail, leaf), RDMA_MTU) + _join(down, bridge(rail), RDMA_MTU)
    for node in topology.nodes:
        lines += _plug(node, 0, CLUSTER_BRIDGE, 1500)
        for position, rail in enumerate(rails_of(node, cards), start=1):
            lines += _plug(node, position, bridge(rail, node.leaf(position)), RDMA_MTU)
        # The API server reaches webhooks and aggregated APIs in pods directly.
        lines.append(f"route add {node.pod_cidr} via {node.ip}")
    return tuple(lines)


def rails_of(node: NodeSpec, cards: Cards) -> Sequence[int]:
    """Return the rails of a node's cards in their order; cards of a tree are on rails 0, 1, 2…"""
    return [nic.rail for nic in node.nics] or range(len(cards.get(node.name, ())))


def _bridge(name: str) -> list[str]:
    return [f"link add {name} type bridge", f"link set {name} mtu {RDMA_MTU} up"]


def _join(interface: str, bridge: str, mtu: int) -> list[str]:
    return [f"link set {interface} mtu {mtu}", f"link set {interface} master {bridge} up"]


def _plug(node: NodeSpec, position: int, bridge: str, mtu: int) -> list[str]:
    """Return the commands that make an interface: QEMU's is a tap, others are one end of a veth."""
    name, other = tap(node, position), end(node, position)
    match node.kind:
        case NodeKind.MACHINE:
            lines = [f"tuntap add dev {name} mode tap"]
        case NodeKind.NATIVE:
            lines = [f"link add {name} type veth peer name {other} address {node.mac(position)}"]
        case NodeKind.USER_MODE:
            # The lab's own stack must not answer what is said there.
            lines = [
                f"link add {name} type veth peer name {other}",
                f"link set {other} addrgenmode none arp off mtu {mtu} up",
            ]
    return [*lines, *_join(name, bridge, mtu)]


async def build(topology: Topology, cards: Cards) -> None:
    """Make the topology's bridges and interfaces in the current network namespace."""
    await call(("ip", "-batch", "-"), stdin="\n".join(commands(topology, cards)) + "\n")
