"""What more and more agents with eight cards cost a real API server, and what 5,000 would.

Agents are those of scale_node.py: the code of an agent towards the API server, many in a process.
For each number of them there is a fresh control plane; scale_steps.py says what happens there.
Exponents are slopes of logarithms, by least squares over all numbers, and from the largest one they
lead to 5,000. docs/scale.md says what of that can be believed. API server, etcd, controller and
agents share this machine, so a time is that of all of them together; requests and bytes are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.scale_addresses import addresses
from bench.scale_fit import TARGET, Series, fitted
from bench.scale_steps import steps

USUAL, SHORT = (10, 50), (2, 4)
FEW, FEW_NODES = 100, 50  # agents below which the part with addresses has so few nodes


def measure(context: Context) -> Iterator[Row]:
    """All steps for each number of agents; what they grow by; the addresses of many nodes."""
    sizes = context.agents or (SHORT if context.short else USUAL)
    series: dict[str, Series] = {}
    for size in sizes:
        yield from attempt(f"agents_{size}", partial(_kept, size, series, context))
    yield from fitted(series)
    nodes = TARGET if max(sizes) >= FEW else FEW_NODES
    yield from attempt("addresses", partial(addresses, nodes))


def _kept(size: int, series: dict[str, Series], context: Context) -> Iterator[Figure]:
    """The figures of a number of agents; what grows with them is kept for the fit."""
    for key, measured in steps(size, context):
        if measured.grows:
            series.setdefault(key, {})[size] = measured
        yield Figure(
            f"agents_{size}_{key}", measured.value, measured.unit, measured.goal, measured.note
        )
