"""Frees one address by hand: `kube-rdma ip release`.

Nodes and the controller free addresses by themselves, and safely. This is for what they cannot
know, such as a machine that was thrown away while the controller was down. Like every write it is a
compare-and-swap.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.ipam.cluster import IP_BLOCK, block
from kube_rdma.ipam.rules.subpools import key_of
from kube_rdma.model.ipam import Address, Bits, Block, NetworkName, NodeName


class HeldAddress(Frozen):
    """An address, its block as read and its holders; `risk` says what its release risks."""

    address: Address
    bit: Bits
    stored: Stored[Block, None]
    nodes: tuple[NodeName, ...]
    risk: str


async def find_holders(cluster: Cluster, network: str, address: Address) -> HeldAddress:
    """The address with the nodes that hold it; raise Refused when none does."""
    key, bit = key_of(NetworkName(network), address)
    stored = await cluster.get(IP_BLOCK, key.name)
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
                f"{address} of network {network} is held by node {node}, which exists. If a pod "
                "on it has the address, a second pod may get it and both lose traffic; its agent "
                "asks for it back as long as no other node has it. Delete the pod instead."
            )
        else:
            sentences.append(
                f"{address} of network {network} is held by node {node}, which is no longer a node "
                "of this cluster. If that machine still runs, its pods still use the address: "
                "make sure that it is off."
            )
    return HeldAddress(address, bit, stored, tuple(holders), "\n".join(sentences))


async def free(cluster: Cluster, held: HeldAddress) -> None:
    """Take the address from all holders; raise Conflict (an Unavailable) when the block changed."""
    spec = held.stored.spec
    left = [replace(h, bits=Bits(h.bits & ~held.bit)) for h in spec.holdings]
    holdings = tuple(each for each in left if each.bits)
    written = replace(spec, holdings=holdings, edition=spec.edition + 1)
    await cluster.replace(IP_BLOCK, replace(held.stored, spec=written))
