"""Quantities of Kubernetes (resource.Quantity): what ``1k``, ``500m`` or ``2Gi`` is."""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i|)")
_MOST_SIGNS = 64  # of a text; what an API server writes has 20
_MOST_POWER = 36  # it keeps no number of more than 19 digits; a larger one would fill the memory
_SUFFIXES = {
    suffix: Fraction(10) ** power for power, suffix in zip(range(-9, 0, 3), "num", strict=True)
}
_THOUSANDS = ("", *"kMGTPE")
_SUFFIXES |= {suffix: Fraction(1000) ** n for n, suffix in enumerate(_THOUSANDS) if suffix}
_SUFFIXES |= {f"{suffix}i": Fraction(1024) ** (n + 1) for n, suffix in enumerate("KMGTPE")}


def quantity(text: str) -> Fraction:
    """What a quantity is: 1k is 1000, 500m one half, 1Ki 1024; ValueError for another text."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_SIGNS else None
    if not match or not any(c.isdigit() for c in match[1]):
        raise ValueError(f"not a quantity: {text!r:.80}")
    number, suffix = Fraction(match[1]), match[2]
    if suffix in _SUFFIXES:
        number *= _SUFFIXES[suffix]
    elif suffix:
        power = int(suffix[1:])
        if abs(power) > _MOST_POWER:
            raise ValueError(f"not a quantity of Kubernetes: {text!r}")
        number *= Fraction(10) ** power
    return number


def quantity_text(number: int) -> str:
    """A whole number as the API server writes a quantity: 16, 1k, 400G, 2500M."""
    power = 0
    while number and not number % 1000 and power < len(_THOUSANDS) - 1:
        number //= 1000
        power += 1
    return f"{number}{_THOUSANDS[power]}"
