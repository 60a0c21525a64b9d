"""What more and more agents with eight cards cost a real API server, and what 5,000 would.

Agents are those of scale_node.py: the code of an agent towards the API server, many in a process.
For each number of them there is a fresh control plane; scale_steps.py says what happens there.
Exponents are slopes of logarithms, by least squares over all numbers, and from the largest one they
lead to 5,000. docs/scale.md says what of that can be believed. API server, etcd, controller and
agents share this machine, so a time is that of all of them together; requests and bytes are not.
The code of another checkout (bench/checkout) runs in this bench, one cluster after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from bench.checkout import Checkout, checkouts
from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.scale_fit import Series, fitted
from bench.scale_steps import Step, steps

IN_TURNS = True
USUAL, SHORT = (10, 50), (2, 4)


def measure(context: Context) -> Iterator[Row]:
    """All steps for each number of agents of each checkout; what grows with them."""
    sizes = context.agents or (SHORT if context.short else USUAL)
    kept: dict[Checkout, dict[str, Series]] = {one: {} for one in checkouts()}
    for size, checkout in product(sizes, kept):
        measured = partial(steps, size, context, checkout, largest=size == max(sizes))
        rows = partial(_kept, size, kept[checkout], measured)
        for row in attempt(f"agents_{size}", rows):
            yield replace(row, key=checkout.prefix + row.key)
    for checkout, series in kept.items():
        yield from map(checkout.named, fitted(series))


def _kept(size: int, series: dict[str, Series], measure: Callable[[], Step]) -> Iterator[Figure]:
    """The figures of a number of agents; what grows with them is kept for the fit."""
    for key, one in measure():
        if one.grows:
            series.setdefault(key, {})[size] = one
        yield Figure(f"agents_{size}_{key}", one.value, one.unit, one.goal, one.note)
