"""Rails: which network of a rail-optimized fabric a physical card is on, as a number from 0.

rules/pools/rails numbers the cards of a node, programs/agent/device_plugin/rails remembers it, and
pools of addresses have ranges by rail.
"""

from __future__ import annotations

from kube_rdma.model.card import CardId
from kube_rdma.model.frozen import Frozen


class RailRecord(Frozen):
    """A record of the agent: the physical cards that ever had a rail, in the order of their rails.

    A card that is gone, or in a pod, keeps its place. `names` are the interfaces by which a policy
    lists cards, each with the card that had the name when it was last on the node.
    """

    functions: tuple[CardId, ...] = ()
    names: tuple[tuple[str, CardId], ...] = ()
