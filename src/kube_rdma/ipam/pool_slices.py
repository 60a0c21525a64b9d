"""The field ``perNode`` of a pool's range: each node has a slice of the range for itself.

Read by ip_pool. Rails that are routed have another subnet, and another router, on each node; the
length of the slices and the place of the router in each say it all. Whether a slice is free is for
ipam/rules/slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from kube_rdma.lib.text.document import Value
from kube_rdma.lib.text.faults import Slip
from kube_rdma.lib.text.ip_words import Cidr, IpAddress
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.lib.text.words import TextForm
from kube_rdma.model.ipam import Address, NodeName, NodeSlice, PerNode, Subnet

MOST_NODES = 10_000

_NODE = TextForm(
    "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
    "a node's name: lower-case letters, digits, dashes and dots",
    "worker-1",
)


class ChosenSlice(Typed):
    """The slice of one node, as the routers of the fabric have it."""

    node: Annotated[str, _NODE] = Field(examples=["worker-1"])
    """node is the name of the node. Example: worker-1."""
    subnet: Cidr = Field(examples=["10.0.0.0/31"])
    """subnet is the slice of the node. No other node gets it. Example: 10.0.0.0/31."""
    gateway: IpAddress | None = None
    """gateway is the address of the router in subnet. Left out: the one that gatewayIndex says.
    Example: 10.0.0.0.
    """


class PoolSlices(Typed):
    """How a range is divided between nodes."""

    prefix: int = Field(ge=1, le=128, examples=[31])
    """prefix is the prefix length of each node's slice. The pods of a node get addresses of its
    slice alone, with this length. Example: 31.
    """
    gateway_index: int | None = Field(None, ge=0, le=2**31 - 1)
    """gatewayIndex is the place of the router's address in each slice, counted from 0. No pod gets
    this address. Left out: the slices have no router. Example: 0.
    """
    nodes: Many[ChosenSlice] = Field((), max_length=MOST_NODES)
    """nodes are the slices of certain nodes. Every other node takes a free slice with its first pod
    and keeps it as long as its Node object exists. Left out: all nodes take a free one.
    """
    one_subnet: bool = False
    """oneSubnet says whether the slices are parts of one subnet. If true, the pod's address has the
    prefix length of subnet, and gateway of the range is the router of all nodes. Left out: false,
    each slice is a subnet of its own.
    """

    @property
    def value(self) -> PerNode:
        """What it means."""
        nodes = (NodeSlice(NodeName(n.node), n.subnet, n.gateway) for n in self.nodes)
        return PerNode(self.prefix, self.gateway_index, tuple(nodes), self.one_subnet)

    def faults(self, subnet: Subnet, ends: Sequence[tuple[str, Address | None]]) -> Iterator[Slip]:
        """What is wrong with it in a range of this subnet; `ends` are the fields beside it."""
        if not subnet.prefixlen <= self.prefix <= subnet.max_prefixlen:
            limits = f"{subnet.prefixlen} to {subnet.max_prefixlen}"
            problem = f"{subnet} has no slices of length {self.prefix}"
            yield Slip(problem, f"Write a prefix of {limits}", ("prefix",))
            return
        for name, end in ends:
            if end is not None and not (name == "gateway" and self.one_subnet):
                remedy = "Write gatewayIndex" if name == "gateway" else "Write a smaller subnet"
                yield Slip(f"{name} has no meaning beside perNode", f"{remedy} in its place")
        yield from self._gateway_faults(subnet)
        yield from self._node_faults(subnet)

    def _gateway_faults(self, subnet: Subnet) -> Iterator[Slip]:
        size = 1 << (subnet.max_prefixlen - self.prefix)
        index = self.gateway_index
        if index is None:
            return
        reserved = (0, size - 1) if subnet.version == 4 and size > 2 else ()
        if self.one_subnet:
            problem = "the slices of one subnet share a router"
            yield Slip(problem, "Write gateway of the range in its place", ("gatewayIndex",))
        elif index >= size or index in reserved or size == 1:
            lowest, highest = (1, size - 2) if reserved else (0, size - 1)
            remedy = f"Write {lowest} to {highest}" if size > 1 else "Leave it out"
            problem = f"a router cannot have address {index} of a /{self.prefix}"
            yield Slip(problem, remedy, ("gatewayIndex",))

    def _node_faults(self, subnet: Subnet) -> Iterator[Slip]:
        names: set[str] = set()
        slices: set[Subnet] = set()
        for index, chosen in enumerate(self.nodes):
            at = ("nodes", index)
            if chosen.subnet.version != subnet.version or not _is_within(chosen.subnet, subnet):
                remedy = f"Write a /{self.prefix} of {subnet}"
                yield Slip(f"{chosen.subnet} is outside of {subnet}", remedy, (*at, "subnet"))
            elif chosen.subnet.prefixlen != self.prefix:
                problem = f"{chosen.subnet} is no /{self.prefix}, as prefix says"
                yield Slip(problem, f"Write a /{self.prefix}", (*at, "subnet"))
            if chosen.gateway is not None and chosen.gateway not in chosen.subnet:
                problem = f"{chosen.gateway} is outside of {chosen.subnet}"
                yield Slip(problem, "Write an address of the slice", (*at, "gateway"))
            if chosen.node in names:
                remedy = "Write each node once in a range"
                yield Slip(f"node {chosen.node} has two slices", remedy, (*at, "node"))
            if chosen.subnet in slices:
                yield Slip(f"two nodes have {chosen.subnet}", "Write another slice", at)
            names.add(chosen.node)
            slices.add(chosen.subnet)


def written(per_node: PerNode) -> dict[str, Value]:
    """The field as JSON values, as `PoolSlices` reads it."""
    fields: dict[str, Value] = {"prefix": per_node.prefix}
    if per_node.gateway is not None:
        fields["gatewayIndex"] = per_node.gateway
    if per_node.nodes:
        fields["nodes"] = [entry(n.node, n.subnet, n.gateway) for n in per_node.nodes]
    return fields | ({"oneSubnet": True} if per_node.is_one_subnet else {})


def entry(node: str, subnet: Subnet, gateway: Address | None) -> Value:
    """One of `nodes`, as JSON values."""
    fields: dict[str, Value] = {"node": node, "subnet": str(subnet)}
    return fields | ({"gateway": str(gateway)} if gateway else {})


def _is_within(subnet: Subnet, whole: Subnet) -> bool:
    return subnet.network_address in whole and subnet.broadcast_address in whole
