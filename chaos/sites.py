"""What a lab of each kind gives a run: nodes and cards, faults, and whether verbs move bytes there.

    NATIVE      namespaces on this machine's kernel; cards are recorded
    MACHINES    kernels of their own under QEMU; cards are emulated, with Soft-RoCE
    USER_MODE   the same on user-mode kernels, whose cards are software

setup.py installs what a site has, schedule.py draws from its place, faults.py takes its acts. A
seed means the same on every lab of one kind, and on both kinds of machines, which have faults that
natives cannot have.
"""

from __future__ import annotations

from chaos.schedule import GROUPS, OF_A_CARD, Fault, Place, Size
from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma_lab.lab import Lab

NODES = ("node-1", "node-2")
# No namespace of Linux has a wall clock of its own.
OF_MACHINES = frozenset((Fault.CLOCK_AHEAD, Fault.CLOCK_BEHIND))


class Site(Frozen):
    """One kind of lab; `selector` is the field of a pool by which its cards are named."""

    topology: str
    selector: str
    by_share: tuple[str, ...]
    by_claim: tuple[str, ...]
    faults: tuple[Fault, ...]
    has_verbs: bool = False
    size: Size = Size()
    groups: tuple[frozenset[Fault], ...] = GROUPS

    @property
    def place(self) -> Place:
        """What a schedule draws from."""
        return Place(NODES, (*self.by_share, *self.by_claim), self.groups)


NATIVE = Site(
    "native",
    "rdmaDevices",
    ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"),
    ("mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"),
    tuple(fault for fault in Fault if fault not in OF_MACHINES),
)
MACHINES = Site(
    "four-cards",
    "interfaces",
    ("ens2f0", "ens3f0"),
    ("ens4f0", "ens5f0"),
    tuple(Fault),
    has_verbs=True,
    # An emulated node takes ten times as long for a pod, and two more write from the beginning.
    size=Size(pods=4, faults=3, longest=3),
    # All cards are there, and up, after a boot.
    groups=(*GROUPS, frozenset((*OF_A_CARD, Fault.NODE_OFF))),
)
USER_MODE = replace(MACHINES, topology="user-mode-four-cards")
SITES = (NATIVE, MACHINES, USER_MODE)


def of(lab: Lab) -> Site:
    """The site that a running lab is; Refused for a topology that no run knows."""
    for site in SITES:
        if site.topology == lab.topology.name:
            return site
    names = ", ".join(site.topology for site in SITES)
    raise Refused(
        f"chaos has no pools for the topology {lab.topology.name} of the lab {lab.state.name!r}",
        remedy=f"Choose a lab of topology {names}",
    )
