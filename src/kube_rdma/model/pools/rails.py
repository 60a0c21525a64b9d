"""Rails: which network of a rail-optimized fabric a physical card is on, as a number from 0.

pools/rules/rails numbers the cards of a node, pools/rails remembers it, and
pools of addresses have ranges by rail.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId


class RailRecord(Frozen):
    """A record of the agent: the physical cards that ever had a rail, in the order of their rails.

    Each is called by the address that it had when it was numbered; a card that is gone, or in a
    pod, keeps its place. `guids` are the node GUIDs by which a card is known at another address,
    `places` the addresses that cards have by now, where it is not that of their name. `names` are
    the interfaces and addresses by which a policy lists cards, each with the card that had the
    name when it was last on the node. `boot` is the node's start that this was written in: since
    then cards of `waiting` were not seen yet, and those of `came` are new.
    """

    functions: tuple[CardId, ...] = ()
    names: tuple[tuple[str, CardId], ...] = ()
    guids: tuple[tuple[CardId, str], ...] = ()
    places: tuple[tuple[CardId, CardId], ...] = ()  # address now, name
    boot: str = ""
    waiting: tuple[CardId, ...] = ()
    came: tuple[CardId, ...] = ()
