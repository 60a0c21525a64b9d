"""What more and more agents with eight cards cost a real API server, and what 5,000 would.

Agents are those of scale_node.py: the code of an agent towards the API server, many in a process.
For each number of them there is a fresh control plane; scale_steps.py says what happens there.
Exponents are slopes of logarithms between the two largest numbers, and from the largest one they
lead to 5,000 (scale_fit.py). docs/benchmarks.md says what of that can be believed. API server,
etcd, controller and agents share this machine, so a time is that of all of them together; requests
and bytes are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.scale_fit import Series, fitted
from bench.scale_steps import Step, steps

USUAL, SHORT = (10, 50), (2, 4)


def measure(context: Context) -> Iterator[Row]:
    """All steps for each number of agents; what grows with them."""
    sizes = context.agents or (SHORT if context.short else USUAL)
    series: dict[str, Series] = {}
    for size in sizes:
        measured = partial(steps, size, context, largest=size == max(sizes))
        yield from attempt(f"agents_{size}", partial(_kept, size, series, measured))
    yield from fitted(series)


def _kept(size: int, series: dict[str, Series], measure: Callable[[], Step]) -> Iterator[Figure]:
    """The figures of a number of agents; what grows with them is kept for the fit."""
    for key, one in measure():
        if one.grows:
            series.setdefault(key, {})[size] = one
        yield Figure(f"agents_{size}_{key}", one.value, one.unit, one.goal, one.note)
