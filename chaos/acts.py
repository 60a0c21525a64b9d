"""What a fault is made of: an act that begins it, and mostly one that ends it.

native_acts.py and machine_acts.py have tables of those that differ with a node's kind, faults.py
those of the cluster. Both reach a node by a Hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chaos.schedule import Target
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab


class Acts(NamedTuple):
    """What begins a fault and what ends it; without an end somebody else does."""

    begin: Callable[[Target], object]
    end: Callable[[Target], object] | None = None


class Hand:
    """Runs scripts on the nodes of a lab; nobody on a node that is `off` does anything."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.off: set[str] = set()

    def shell(self, node: str, script: str) -> None:
        """Run a script on a node."""
        if node not in self.off:
            cluster.shell(self.lab, node, script)

    def signal(self, node: str, signal: str, pattern: str) -> None:
        """Send a signal; who is not there just now gets none."""
        self.shell(node, f"pkill -{signal} -f '{pattern}' || true")

    def script(self, begin: str, end: str) -> Acts:
        """The acts of two scripts of the target's node; both may name its card as {card}."""
        return Acts(
            lambda target: self.shell(target.node, begin.replace("{card}", target.card)),
            lambda target: self.shell(target.node, end.replace("{card}", target.card)),
        )
