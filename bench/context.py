"""What benchmarks share: labs of their own, and how much of what is usual they measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from kube_rdma_lab import lab as labs
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.progress import Event


@contextmanager
def own_lab(
    name: str, topology: str, steps: Callable[[Event], None] = lambda event: None
) -> Iterator[Lab]:
    """A fresh lab of this name, for a while; one that is up ends first. `steps` gets its steps."""
    labs.down(name)
    with ExitStack() as stack:
        stack.callback(labs.down, name)
        with Printer() as printer:

            def report(event: Event) -> None:
                printer(event)
                steps(event)

            lab = labs.up(name, topology, None, report)
        yield lab


def control_plane(name: str) -> AbstractContextManager[Lab]:
    """A lab of its own without nodes, for a while."""
    return own_lab(name, "control-plane")


@dataclass(frozen=True, slots=True)
class Context:
    """How much is measured: with `short` as little as shows that it works; the figures say little.

    `pods` is how many of each kind one has that counts pods, `agents` are the numbers of agents one
    after the other; None and () for what a benchmark has by itself.
    """

    short: bool = False
    pods: int | None = None
    agents: tuple[int, ...] = ()

    def times(self, usual: int, short: int = 2) -> int:
        """Return how often to do what is usually done so often."""
        return short if self.short else usual
