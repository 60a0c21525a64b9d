"""The nodes of a lab as data: their cards, ghosts, and every address derived from them.

A Topology is the first value in the flow: supervisor.py boots it. A NodeSpec becomes a machine's
command line (machine.py) and the files that the node finds at boot (node_files.py). People write
their own topology in a file, which topology_file.py reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from kube_base.errors import Refused
from kube_rdma_lab.release import Release

CLUSTER_PREFIX = "10.89.0"
CONTROL_PLANE_IP = f"{CLUSTER_PREFIX}.1"
API_PORT = 6443
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
RDMA_MTU = 9000
MAX_NODES = 32  # of all kinds; a node's index is part of its addresses
MAX_MACHINES = 4
MAX_VFS = 7  # of an igb
LLDP_SECONDS = 30  # IEEE 802.1AB-2016, msgTxInterval


class NodeKind(StrEnum):
    """The kinds of a lab's nodes: QEMU machines, user-mode kernels, and native ones."""

    MACHINE = "machine"  # QEMU, with a kernel and cards of its own (qemu_machine.py)
    USER_MODE = "user-mode"  # a kernel as a program, with cards in software (user_mode_machine.py)
    NATIVE = "native"  # namespaces on this machine's kernel; its cards are those of a sysfs tree


class NicKind(StrEnum):
    """The models of cards that a lab's nodes can have."""

    VIRTIO = "virtio"  # fast, no virtual functions
    IGB = "igb"  # Intel 82576: SR-IOV with up to MAX_VFS virtual functions


class RdmaNetns(StrEnum):
    """The relation of RDMA devices to network namespaces (`rdma system`)."""

    SHARED = "shared"  # every namespace sees every RDMA device; Soft-RoCE works in pods
    EXCLUSIVE = "exclusive"  # a device belongs to one namespace; chosen at boot


class TopologyManager(StrEnum):
    """The values of the kubelet's topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


@dataclass(frozen=True, slots=True)
class RdmaNic:
    """One card of a node: an Ethernet interface on a rail, with Soft-RoCE at boot if `soft_roce`.

    Cards of equal `rail` reach each other: they share a bridge of the lab, or are on leaves that it
    connects. `numa_node` is the socket whose PCIe root the card hangs from.
    """

    name: str
    rail: int
    numa_node: int
    kind: NicKind = NicKind.VIRTIO
    soft_roce: bool = True
    vfs: int = 0

    @property
    def rxe(self) -> str:
        """Return the name of the Soft-RoCE link on this card."""
        return f"rxe{self.rail}"

    def vf(self, number: int) -> str:
        """Return the interface name of one of the card's virtual functions, counted from 0."""
        return f"{self.name}v{number}"


@dataclass(frozen=True, slots=True)
class GpuGhost:
    """A PCI device of display class that stands in for a GPU.

    It hangs from the PCIe root of its socket, below the switch of number `switch`, or (0) on a port
    of its own. Switches are counted over the whole node.
    """

    numa_node: int
    switch: int = 0


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node; `index` counts from 1 and fixes its addresses.

    All fields from `nics` to `rdma_at_boot` are a machine's. Without `rdma_at_boot` a machine boots
    with no RDMA module, and its lab has driver images that load them (build/drivers.py). `tree` is
    a native node's: its cards, as native/trees.py finds them by name or by folder; empty for none.
    `leaves` are the leaf switches of any node's cards, in their order. A card without one is on its
    rail's bridge, which sends no LLDP.
    """

    index: int
    nics: tuple[RdmaNic, ...] = ()
    gpus: tuple[GpuGhost, ...] = ()
    memory_mib: int = 3072
    cpus: int = 2
    numa_nodes: int = 2
    rdma_netns: RdmaNetns = RdmaNetns.SHARED
    rdma_at_boot: bool = True
    topology_manager: TopologyManager = TopologyManager.NONE
    kind: NodeKind = NodeKind.MACHINE
    tree: str = ""
    leaves: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the node's name, which is also its host name."""
        return f"node-{self.index}"

    @property
    def kernel_words(self) -> tuple[str, ...]:
        """Return the kernel's boot option for the RDMA namespace mode; empty for the default."""
        exclusive = self.rdma_netns is RdmaNetns.EXCLUSIVE
        return ("ib_core.netns_mode=0",) if exclusive else ()

    @property
    def ip(self) -> str:
        """Return the address on the cluster network, the node's InternalIP."""
        return f"{CLUSTER_PREFIX}.{10 + self.index}"

    @property
    def pod_cidr(self) -> str:
        """Return the addresses of this node's pods, which other nodes have routes to."""
        return f"10.244.{self.index}.0/24"

    def leaf(self, position: int) -> str:
        """Return the leaf switch of the card at `position`, counted as in `mac`; "" without one."""
        return self.leaves[position - 1] if position <= len(self.leaves) else ""

    def rdma_ip(self, nic: RdmaNic) -> str:
        """Return the address of the node on one card's rail."""
        return f"192.168.{50 + nic.rail}.{10 + self.index}"

    def mac(self, position: int) -> str:
        """Return the MAC of the interface at `position`: 0 is the cluster NIC, then come cards."""
        return f"52:54:00:00:{self.index:02x}:{position:02x}"

    def vf_mac(self, position: int, number: int) -> str:
        """Return the MAC of a virtual function of the card at `position`."""
        return f"52:54:00:{position:02x}:{self.index:02x}:{0x80 + number:02x}"


@dataclass(frozen=True, slots=True)
class Topology:
    """The nodes of a lab; `release` is that of its control plane and of all its nodes.

    `feature_gates` are set in the programs of gates.py that know them, `api_groups` are the API
    server's runtime configuration (gates.py). `lldp_seconds` lie between two frames of a leaf.
    """

    name: str
    summary: str
    nodes: tuple[NodeSpec, ...]
    release: Release = Release.NEWEST
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    api_groups: Mapping[str, bool] = field(default_factory=dict)
    lldp_seconds: int = LLDP_SECONDS

    @property
    def rails(self) -> tuple[int, ...]:
        """Return the rails of all machines' cards; each rail is one RDMA network."""
        return tuple(sorted({nic.rail for node in self.nodes for nic in node.nics}))

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the leaf switches of all nodes' cards, in order of their names."""
        return tuple(sorted({leaf for node in self.nodes for leaf in node.leaves if leaf}))

    @property
    def kinds(self) -> frozenset[NodeKind]:
        """Return the kinds of nodes that this topology has."""
        return frozenset(node.kind for node in self.nodes)

    @property
    def machines(self) -> tuple[NodeSpec, ...]:
        """Return the nodes with a kernel and cards of their own, QEMU's and user-mode kernels."""
        return tuple(node for node in self.nodes if node.kind is not NodeKind.NATIVE)

    @property
    def wants_drivers(self) -> bool:
        """Return whether a machine boots without RDMA modules, for which it needs driver images."""
        return any(not node.rdma_at_boot for node in self.machines)

    @property
    def natives(self) -> tuple[NodeSpec, ...]:
        """Return the native nodes, which share this machine's kernel."""
        return tuple(node for node in self.nodes if node.kind is NodeKind.NATIVE)

    @property
    def reference(self) -> str:
        """Return a text from which `find` makes the same topology, also in another process."""
        is_built_in = self.name.partition(":")[0] in TOPOLOGIES and find(self.name) == self
        return self.name if is_built_in else json.dumps(asdict(self))

    def with_nodes(self, count: int) -> Topology:
        """Return this topology with nodes repeated to `count`; raise Refused for too many or none.

        A topology of the lab's own is then called NAME:COUNT, which `find` understands.
        """
        if not self.nodes:
            raise Refused(
                f"the topology {self.name} has no nodes that could be repeated",
                remedy="Leave --nodes out or choose another --topology",
            )
        most = MAX_MACHINES if self.machines else MAX_NODES
        if not 1 <= count <= most:
            raise Refused(
                f"a lab of {count} nodes is not offered", remedy=f"Choose --nodes from 1 to {most}"
            )
        nodes = (
            replace(self.nodes[number % len(self.nodes)], index=number + 1)
            for number in range(count)
        )
        return replace(self, name=f"{self.name.partition(':')[0]}:{count}", nodes=tuple(nodes))


# One card per socket; examples/s3-network names the first interface.
TWO_CARDS = (RdmaNic("ens2f0", rail=0, numa_node=0), RdmaNic("ens3f0", rail=1, numa_node=1))
# The igb is for virtual functions and has no Soft-RoCE at boot: who uses one makes it there.
TWO_CARDS_AND_IGB = (
    *TWO_CARDS,
    RdmaNic("ens4f0", rail=2, numa_node=1, kind=NicKind.IGB, soft_roce=False, vfs=4),
)
FOUR_CARDS = (
    RdmaNic("ens2f0", rail=0, numa_node=0),
    RdmaNic("ens3f0", rail=1, numa_node=0),
    RdmaNic("ens4f0", rail=2, numa_node=1),
    RdmaNic("ens5f0", rail=3, numa_node=1),
    RdmaNic("ens6f0", rail=4, numa_node=1, kind=NicKind.IGB, soft_roce=False, vfs=4),
)
# Four per socket, two of them below one switch: they see each other as PIX, the others as PHB.
EIGHT_GPUS = tuple(
    GpuGhost(socket, switch) for socket in (0, 1) for switch in (socket + 1, socket + 1, 0, 0)
)
TWO_GPUS = (GpuGhost(0), GpuGhost(1))
GPUS_APART = tuple(GpuGhost(socket) for socket in (0, 1) for _ in range(4))
TWO_PROGRAMS = tuple(
    NodeSpec(index, TWO_CARDS_AND_IGB, GPUS_APART, kind=NodeKind.USER_MODE) for index in (1, 2)
)

TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology(
            "two-nodes",
            "two nodes, each with two RDMA cards, an SR-IOV card and eight GPU ghosts on two"
            " NUMA nodes",
            tuple(NodeSpec(index, TWO_CARDS_AND_IGB, EIGHT_GPUS) for index in (1, 2)),
        ),
        Topology(
            "four-cards",
            "the same with four RDMA cards per node and the kubelet's best-effort alignment",
            tuple(
                NodeSpec(
                    index, FOUR_CARDS, EIGHT_GPUS, topology_manager=TopologyManager.BEST_EFFORT
                )
                for index in (1, 2)
            ),
        ),
        Topology(
            "netns-exclusive",
            "two nodes with two RDMA cards, node-2 with RDMA devices exclusive to a namespace",
            (NodeSpec(1, TWO_CARDS), NodeSpec(2, TWO_CARDS, rdma_netns=RdmaNetns.EXCLUSIVE)),
        ),
        Topology(
            "drivers",
            "two nodes with two cards and two GPU ghosts, without RDMA until a driver's container"
            " brings it; the lab has such images",
            tuple(NodeSpec(index, TWO_CARDS, TWO_GPUS, rdma_at_boot=False) for index in (1, 2)),
        ),
        Topology(
            "user-mode",
            "the same as two-nodes on user-mode kernels: cards in software, no NUMA, no switches",
            TWO_PROGRAMS,
        ),
        Topology(
            "user-mode-four-cards",
            "the same with the cards of four-cards",
            tuple(
                NodeSpec(index, FOUR_CARDS, GPUS_APART, kind=NodeKind.USER_MODE) for index in (1, 2)
            ),
        ),
        Topology(
            "user-mode-leaves",
            "four nodes on user-mode kernels with two cards each; node-1 and node-2 are on leaf-a,"
            " the others on leaf-b",
            tuple(
                NodeSpec(
                    index,
                    TWO_CARDS,
                    memory_mib=2048,
                    kind=NodeKind.USER_MODE,
                    leaves=(leaf, leaf),
                )
                for index, leaf in enumerate(("leaf-a", "leaf-a", "leaf-b", "leaf-b"), start=1)
            ),
        ),
        Topology(
            f"user-mode-{Release.NEXT}",
            f"the same as user-mode with Kubernetes {Release.NEXT}",
            TWO_PROGRAMS,
            Release.NEXT,
        ),
        Topology(
            "native",
            "two nodes without machines and without verbs, up in seconds; each shows eight"
            " constructed InfiniBand cards",
            tuple(NodeSpec(index, kind=NodeKind.NATIVE, tree="dgx-like") for index in (1, 2)),
        ),
        Topology(
            "older",
            "the same as native with Kubernetes 1.30 and containerd 1.7, whose CDI is off",
            tuple(NodeSpec(index, kind=NodeKind.NATIVE, tree="dgx-like") for index in (1, 2)),
            Release.OLDER,
        ),
        *(
            Topology(
                f"kubernetes-{release}",
                f"the same as native with Kubernetes {release}, for claims",
                tuple(NodeSpec(index, kind=NodeKind.NATIVE, tree="dgx-like") for index in (1, 2)),
                release,
            )
            for release in (Release.FIRST_CLAIMS, Release.NEXT)
        ),
        Topology("control-plane", "the control plane and DNS, no nodes", ()),
    )
}


def find(reference: str) -> Topology:
    """Return a topology by name, by NAME:COUNT, or as its own `reference` wrote it.

    Raise Refused, which lists the names that exist, for an unknown one.
    """
    if reference.startswith("{"):
        return _from_json(reference)
    name, _, count = reference.partition(":")
    if name not in TOPOLOGIES or (count and not count.isdecimal()):
        raise Refused(
            f"there is no topology {reference!r}",
            remedy=f"Choose one of {', '.join(TOPOLOGIES)}, or name a file that ends in .yaml",
        )
    topology = TOPOLOGIES[name]
    return topology.with_nodes(int(count)) if count else topology


def _from_json(text: str) -> Topology:
    fields = json.loads(text)
    typed = {"nodes": tuple(map(_node, fields["nodes"])), "release": Release(fields["release"])}
    return Topology(**{**fields, **typed})


def _node(fields: dict[str, Any]) -> NodeSpec:
    nics = tuple(RdmaNic(**{**nic, "kind": NicKind(nic["kind"])}) for nic in fields["nics"])
    typed = {
        "nics": nics,
        "gpus": tuple(GpuGhost(**gpu) for gpu in fields["gpus"]),
        "rdma_netns": RdmaNetns(fields["rdma_netns"]),
        "topology_manager": TopologyManager(fields["topology_manager"]),
        "kind": NodeKind(fields["kind"]),
        "leaves": tuple(fields["leaves"]),
    }
    return NodeSpec(**{**fields, **typed})
