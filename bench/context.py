"""What benchmarks share: the lab, a running one if there is one, else a fresh one; and how long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Self

from kube_base.errors import Refused
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo.main import PRESET
from kube_rdma_lab.demo.scc import install, start_pods
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.progress import Event, Phase

BENCH_LAB = "bench"


@contextmanager
def own_lab(name: str, topology: str) -> Iterator[Lab]:
    """A fresh lab of this name, for a while; one that is up ends first."""
    labs.down(name)
    with ExitStack() as stack:
        stack.callback(labs.down, name)
        with Printer() as report:
            lab = labs.up(name, topology, None, report)
        yield lab


def control_plane(name: str) -> AbstractContextManager[Lab]:
    """A lab of its own without nodes, for a while."""
    return own_lab(name, "control-plane")


class Context:
    """Hands out the lab; what it started itself it ends.

    With `short` a benchmark measures as little as shows that it works; its figures say little.
    `pods` is how many of each kind one has that counts pods, `agents` are the numbers of agents one
    after the other; None and () for what a benchmark has by itself.
    """

    def __init__(
        self, *, short: bool = False, pods: int | None = None, agents: tuple[int, ...] = ()
    ) -> None:
        self.short = short
        self.pods = pods
        self.agents = agents
        self._stack = ExitStack()
        self._lab: Lab | None = None
        self.steps: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def times(self, usual: int, short: int = 2) -> int:
        """Return how often to do what is usually done so often."""
        return short if self.short else usual

    def boot(self) -> Lab:
        """Boot a fresh lab of our own and remember the steps that it took."""
        labs.down(BENCH_LAB)
        self._stack.callback(labs.down, BENCH_LAB)
        with Printer() as printer:

            def report(event: Event) -> None:
                printer(event)
                if event.phase in {Phase.DONE, Phase.CACHED}:
                    self.steps.append(event)

            self._lab = labs.up(BENCH_LAB, "two-nodes", None, report)
        return self._lab

    def lab(self) -> Lab:
        """Return a lab with kube-rdma and seed S2's pods on it."""
        if self._lab is None:
            try:
                self._lab = labs.find(labs.DEFAULT_NAME)
            except Refused:
                self._lab = self.boot()
        install(self._lab, PRESET)
        start_pods(self._lab)
        return self._lab
