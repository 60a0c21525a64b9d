"""The bare machine as a user-mode kernel: the same root, and cards of the same MACs.

Its cards and its GPU are functions that exist in software only (user_mode/soft_card.c), on two
buses, for such a kernel has no NUMA nodes.
"""

from __future__ import annotations

from pathlib import Path

from kube_rdma_lab.bare.machine import CARDS, GHOST_SOCKET, MAC, MEMORY_MIB
from kube_rdma_lab.user_mode_machine import KERNEL_ARGUMENTS

PROCESSORS = 2
# As in bare/machine.py; two plain cards and one with virtual functions, the ghost behind the first.
CARD_KINDS = ("card", "card", "sriov")


def command_line(program: Path, disk: Path, initrd: Path, results: Path) -> list[str]:
    """Return the command line of a user-mode kernel, whose hostfs is the results' folder.

    It dies with the thread that starts it: kill -9 leaves no machine behind.
    """
    argv = ["setpriv", "--pdeathsig", "KILL", "--", str(program)]
    argv += [f"mem={MEMORY_MIB}M", f"ncpus={PROCESSORS}", f"initrd={initrd}", f"ubd0r={disk}"]
    argv += [f"hostfs={results.parent}", f"uml_dir={results.parent}/", "umid=user-mode"]
    return [*argv, f"soft_card.cards={_functions()}", *KERNEL_ARGUMENTS.split()]


def _functions() -> str:
    """Return the PCI functions in soft_card.c's notation; without wires they share a hub."""
    cards = [
        f"{kind}/{socket}/{MAC}:{ending}"
        for kind, (_, socket, ending) in zip(CARD_KINDS, CARDS, strict=True)
    ]
    return ",".join([cards[0], f"ghost/{GHOST_SOCKET}", *cards[1:]])
