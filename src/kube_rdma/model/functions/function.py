"""Virtual functions as they are wished for, and the one act that makes or removes them.

api makes a FunctionsWish out of a NodePolicy, pools/rules/functions/plan meets the wishes with a
Survey, and adapters/kernel/sriov/functions runs what it plans: a SetFunctions for each physical
function.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools.pool import Selector


class FunctionsWish(Frozen):
    """How many virtual functions each physical one that any selector chooses should have.

    `autoprobe`: the kernel binds a driver to each new one. `force`: also where the node's default
    route leads through the card, and in place of functions that somebody else made or set up.
    `source` is where the wish was written, for messages.
    """

    selectors: tuple[Selector, ...]
    count: int
    source: str
    autoprobe: bool = True
    force: bool = False


class SetFunctions(Frozen):
    """Give a physical function `wanted` virtual ones in place of the `now` that it has.

    The kernel takes a number only where there is none (sriov_numvfs_store, drivers/pci/iov.c), so
    a change of a number removes every function first.
    """

    physical: PciAddress
    name: str  # what people call it: its interface, else its address
    now: int
    wanted: int
    autoprobe: bool = True

    def __str__(self) -> str:
        """What is done, for the log."""
        return f"{self.name} gets {self.wanted} virtual functions in place of {self.now}"


class FunctionsPlan(Frozen):
    """What follows from the wishes now.

    `acts` can be done, `waits` are sentences about what cannot yet, `refusals` what a person has to
    change. `kept` are the physical functions that have what was wished. `waiting` has those of
    `waits` that end by themselves, each behind the source of its wish.
    """

    acts: tuple[SetFunctions, ...] = ()
    waits: tuple[str, ...] = ()
    refusals: tuple[Refused, ...] = ()
    kept: tuple[PciAddress, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()


class MadeFunctions(Frozen):
    """A record of the agent: since this boot, it answers for the virtual functions of a card.

    `begun`: it has begun to make them, and they may have no drivers yet.
    """

    physical: PciAddress
    boot: str  # the kernel's random/boot_id; no virtual function outlives a boot
    begun: bool = False
