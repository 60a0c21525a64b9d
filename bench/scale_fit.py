"""How figures of `scale` grow with the number of agents, and what that comes to for 5,000 nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.figures import Figure

TARGET = 5000  # nodes; the largest cluster that Kubernetes is tested with


@dataclass(frozen=True, slots=True)
class Measured:
    """One number of one size. `grows`: it is counted, not timed, so it can be carried further."""

    value: float
    unit: str
    goal: str = ""
    note: str = ""
    grows: bool = False


Series = dict[int, Measured]
"""What one figure was, by the number of agents."""


def exponent(values: Mapping[int, float]) -> float | None:
    """The slope of the logarithms of the two largest sizes; None without two with something."""
    sizes = sorted(size for size, value in values.items() if value > 0)[-2:]
    if len(sizes) < 2:
        return None
    return math.log(values[sizes[1]] / values[sizes[0]]) / math.log(sizes[1] / sizes[0])


def carried(values: Mapping[int, float], slope: float) -> float:
    """What TARGET would have: the largest size, on by the power law or a line, whichever is more.

    A figure with a constant part is no power of the size; its first agents seem to cost nothing.
    """
    before, size = sorted(values)[-2:]
    power = values[size] * (TARGET / size) ** slope
    each = (values[size] - values[before]) / (size - before)
    return float(max(power, values[size] + each * (TARGET - size)))


def fitted(series: Mapping[str, Series]) -> Iterator[Figure]:
    """The exponent of each figure that grows, and what it comes to."""
    for key, by_size in series.items():
        values = {size: one.value for size, one in by_size.items()}
        slope = exponent(values)
        if slope is None:
            continue
        sizes = " and ".join(map(str, sorted(values)[-2:]))
        yield Figure(f"exponent_{key}", slope, "", "", f"of {sizes} agents")
        unit = next(iter(by_size.values())).unit
        note = f"from {max(values)} agents by the exponent, or by the line"
        yield Figure(f"at_{TARGET}_{key}", carried(values, slope), unit, "", note)
