"""The checkouts that a run measures: this one and, where KUBE_RDMA_BESIDE names one, that one too.

The other is another commit in a worktree or clone, with a .venv of its own; keys of its figures
begin with `beside_`. A benchmark with `IN_TURNS` measures both (`turns`, `in_turns`). With any
other the other checkout measures itself afterwards, by its own bench. The run adds what each figure
of this checkout is by the other's (bench/run.py).

A process of a checkout gets its `environment`, in which Python imports the product from there. With
`-m bench.…` the folder in which it starts says whose bench that is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.figures import Absent, Figure, Row
from kube_base.errors import Unavailable

HERE = Path(__file__).parents[1]
VARIABLE = "KUBE_RDMA_BESIDE"
BESIDE, TO_BESIDE = "beside_", "_to_beside"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A commit with its sources and programs."""

    folder: Path
    prefix: str = ""  # of the keys of its figures

    @property
    def python(self) -> str:
        """Its Python."""
        return sys.executable if self.folder == HERE else str(self.folder / ".venv/bin/python")

    @property
    def program(self) -> str:
        """Its `kube-rdma`."""
        return str(Path(self.python).with_name("kube-rdma"))

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of its processes, which measure nothing but itself.

        With compiled files, as an image has them; a process without would measure the compiler.
        """
        left_out = (VARIABLE, "PYTHONDONTWRITEBYTECODE")
        inherited = {name: text for name, text in os.environ.items() if name not in left_out}
        sources = f"{self.folder}/src{os.pathsep}{self.folder}"
        return {**inherited, "PYTHONPATH": sources, **more}

    def named(self, figure: Figure) -> Figure:
        """The figure as one of this checkout."""
        return replace(figure, key=self.prefix + figure.key)


OURS = Checkout(HERE)


def checkouts() -> tuple[Checkout, ...]:
    """This one, and the other where one is named."""
    other = os.environ.get(VARIABLE)
    return (OURS, Checkout(Path(other).resolve(), BESIDE)) if other else (OURS,)


def turns(rounds: int) -> Iterator[Checkout]:
    """Every checkout so often, in the order A B B A: what grows meanwhile favours neither."""
    order = checkouts()
    for _ in range(rounds):
        yield from order
        order = order[::-1]


def in_turns(
    measure: Callable[[Checkout], Iterable[Figure]], rounds: int, *, median: bool = False
) -> Iterator[Figure]:
    """Measure in turns; give of each key the least figure, to which noise only adds, or the median.

    `measure` gives keys without prefix.
    """
    taken: dict[str, list[Figure]] = {}
    for checkout in turns(rounds):
        for figure in map(checkout.named, measure(checkout)):
            taken.setdefault(figure.key, []).append(figure)
    for figures in taken.values():
        yield sorted(figures, key=lambda figure: figure.value)[len(figures) // 2 * median]


def by_itself(checkout: Checkout, word: str, *, short: bool) -> Iterator[Row]:
    """Let a checkout measure itself by its own bench; raise Unavailable where it cannot."""
    argv = (checkout.python, "-m", "bench", "--json", *(("--short",) if short else ()), word)
    with subprocess.Popen(
        argv, cwd=checkout.folder, env=checkout.environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                fields = json.loads(line)
                del fields["benchmark"]
                row = Figure(**fields) if "value" in fields else Absent(**fields)
                yield replace(row, key=checkout.prefix + row.key)
        except BaseException:
            process.send_signal(signal.SIGINT)  # which ends its labs, too
            raise
    if process.returncode:
        raise Unavailable(f"`{' '.join(argv)}` failed in {checkout.folder}")


def by_other(figures: Iterable[Figure]) -> Iterator[Figure]:
    """What each figure of this checkout is by the other's of the same key; below 1 is less."""
    values = {figure.key: figure.value for figure in figures}
    for key, value in values.items():
        if other := values.get(BESIDE + key):
            yield Figure(key + TO_BESIDE, value / other, "×")
