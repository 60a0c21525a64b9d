"""What a lab consists of, as data: nodes, their cards, and every address derived from them.

The first value in the flow: supervisor.py boots a Topology, machine.py turns one NodeSpec into a
QEMU command line, node_files.py into the files the node finds at boot.
"""

from __future__ import annotations

from dataclasses import dataclass

from kube_rdma.model.errors import Refused

CLUSTER_PREFIX = "10.89.0"
CONTROL_PLANE_IP = f"{CLUSTER_PREFIX}.1"
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
RDMA_MTU = 9000


@dataclass(frozen=True, slots=True)
class RdmaNic:
    """One card of a node: an Ethernet interface on a rail, with Soft-RoCE made on it at boot.

    Cards of equal `rail` share one switch (a bridge of the lab). `numa_node` is the socket whose
    PCIe root the card hangs from.
    """

    name: str
    rail: int
    numa_node: int

    @property
    def rxe(self) -> str:
        """Name of the Soft-RoCE link on this card."""
        return f"rxe{self.rail}"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node VM; `index` counts from 1 and fixes its addresses."""

    index: int
    nics: tuple[RdmaNic, ...]
    memory_mib: int = 3072
    cpus: int = 2
    numa_nodes: int = 2

    @property
    def name(self) -> str:
        """Node and host name."""
        return f"node-{self.index}"

    @property
    def ip(self) -> str:
        """Address on the cluster network, the node's InternalIP."""
        return f"{CLUSTER_PREFIX}.{10 + self.index}"

    @property
    def pod_cidr(self) -> str:
        """Addresses of this node's pods; routed, never masqueraded."""
        return f"10.244.{self.index}.0/24"

    def rdma_ip(self, nic: RdmaNic) -> str:
        """Address of the host on one card's rail."""
        return f"192.168.{50 + nic.rail}.{10 + self.index}"

    def mac(self, position: int) -> str:
        """MAC of the interface at `position`: 0 is the cluster NIC, then the cards in order."""
        return f"52:54:00:00:{self.index:02x}:{position:02x}"


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole lab."""

    name: str
    summary: str
    nodes: tuple[NodeSpec, ...]

    @property
    def rails(self) -> tuple[int, ...]:
        """The RDMA networks that the cards of all nodes make up."""
        return tuple(sorted({nic.rail for node in self.nodes for nic in node.nics}))


# One card per socket; the interface names are those of seed S3.
TWO_SOCKETS = (RdmaNic("ens2f0", rail=0, numa_node=0), RdmaNic("ens3f0", rail=1, numa_node=1))

TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology(
            "two-nodes",
            "two nodes, each with two RDMA cards on two NUMA nodes",
            tuple(NodeSpec(index, TWO_SOCKETS) for index in (1, 2)),
        ),
        Topology("control-plane", "API server and etcd only, no nodes", ()),
    )
}


def find(name: str) -> Topology:
    """Return the topology called `name`; Refused names those that exist."""
    if name not in TOPOLOGIES:
        raise Refused(
            f"there is no topology {name!r}", remedy=f"Choose one of {', '.join(TOPOLOGIES)}"
        )
    return TOPOLOGIES[name]
