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
    """The slope of the logarithms by least squares; None without two sizes with something."""
    points = [(math.log(size), math.log(value)) for size, value in values.items() if value > 0]
    if len(points) < 2:
        return None
    middle = [sum(axis) / len(points) for axis in zip(*points, strict=True)]
    spread = sum((x - middle[0]) ** 2 for x, _ in points)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in points) / spread if spread else None


def carried(values: Mapping[int, float], slope: float) -> float:
    """What TARGET would have: the largest size, on by the power law."""
    size = max(values)
    return float(values[size] * (TARGET / size) ** slope)


def fitted(series: Mapping[str, Series]) -> Iterator[Figure]:
    """The exponent of each figure that grows, and what it comes to."""
    for key, by_size in series.items():
        values = {size: one.value for size, one in by_size.items()}
        slope = exponent(values)
        if slope is None:
            continue
        sizes = ", ".join(map(str, sorted(values)))
        yield Figure(f"exponent_{key}", slope, "", "", f"of {sizes} agents")
        unit = next(iter(by_size.values())).unit
        note = f"from {max(values)} agents by the exponent"
        yield Figure(f"at_{TARGET}_{key}", carried(values, slope), unit, "", note)
