"""Frees one address by hand: `kube-rdma ip release`.

Nodes and the controller do this by themselves and safely; this is for what they cannot know, such
as a machine that was thrown away while the controller was down. Compare-and-swap like every write.
"""

from __future__ import annotations

from dataclasses import replace

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.ipam import IP_BLOCK, block
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.model.ipam import Address, Bits, Block, NetworkName, NodeName
from kube_rdma.rules.ipam.cells import cell_of


class Held(Frozen):
    """An address, its block as it was read and the nodes that hold it; `risk` says what may be."""

    address: Address
    bit: Bits
    stored: Stored[Block, None]
    nodes: tuple[NodeName, ...]
    risk: str


async def find(cluster: Cluster, network: str, address: Address) -> Held:
    """Who holds the address; raise Refused when nobody does."""
    cell, bit = cell_of(NetworkName(network), address)
    stored = await cluster.get(IP_BLOCK, cell.name)
    holders = [h.node for h in block(stored).holdings if h.bits & bit] if stored else []
    if stored is None or not holders:
        raise Refused(
            f"no node holds {address} of network {network}",
            remedy="Look at `kube-rdma ip show POOL` for what is held, or name another --network",
        )
    sentences = []
    for node in holders:
        if await cluster.get(NODE, node):
            sentences.append(
                f"{address} of network {network} is held by node {node}, which is there. If a pod "
                "on it has the address, a second pod may get it and both lose traffic; its agent "
                "asks for it back as long as no other node has it. Delete the pod instead."
            )
        else:
            sentences.append(
                f"{address} of network {network} is held by node {node}, which is no longer a node "
                "of this cluster. If that machine still runs, its pods still use the address: "
                "make sure that it is off."
            )
    return Held(address, bit, stored, tuple(holders), "\n".join(sentences))


async def free(cluster: Cluster, held: Held) -> None:
    """Take it from all of them; raise Conflict (an Unavailable) when the block changed since."""
    spec = held.stored.spec
    left = [replace(h, bits=Bits(h.bits & ~held.bit)) for h in spec.holdings]
    holdings = tuple(each for each in left if each.bits)
    written = replace(spec, holdings=holdings, edition=spec.edition + 1)
    await cluster.replace(IP_BLOCK, replace(held.stored, spec=written))
