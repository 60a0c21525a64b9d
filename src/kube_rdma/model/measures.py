"""Converts bandwidths and latencies between numbers and the texts that objects have.

An API should have no floating point: a bandwidth is a quantity in bit/s (``94.215G``), a latency a
duration as Go reads it (``2.13us``). Everything else counts in numbers of Gbit/s and microseconds.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from kube_rdma.model.kubernetes import quantity

NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
SUFFIX = r"[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2}"
UNIT = "ns|us|µs|ms|s"
LONGEST = 32  # characters
_BANDWIDTH = f"^{NUMBER}(?:{SUFFIX})?$"
_LATENCY = f"^{NUMBER}(?:{UNIT})$"
_MEASURE = f"^{NUMBER}(?:{SUFFIX}|{UNIT})?$"

Bandwidth = Annotated[str, Meta(max_length=LONGEST, pattern=_BANDWIDTH)]
Measure = Annotated[str, Meta(max_length=LONGEST, pattern=_MEASURE)]
_GIGA = 10**9
_NANOSECONDS = {"ns": 1, "us": 1000, "µs": 1000, "ms": 10**6, "s": 10**9}
_MOST = 1e12
"""The largest number that is written; a larger one is written as this one."""


def gbps(text: str) -> float:
    """Return a bandwidth as a number of Gbit/s; raise ValueError for another text."""
    return float(quantity(_checked(text, _BANDWIDTH)) / _GIGA)


def microseconds(text: str) -> float:
    """Return a latency as a number of microseconds; raise ValueError for another text."""
    number = _checked(text, _LATENCY)
    unit = number.lstrip("0123456789.")
    return float(Fraction(number.removesuffix(unit)) * _NANOSECONDS[unit] / 1000)


def figure_of(text: str) -> float:
    """Return the number of a latency in microseconds, or of a bandwidth in Gbit/s.

    Raise ValueError for another text.
    """
    return microseconds(text) if text.endswith("s") else gbps(text)


def bandwidth_text(number: float) -> str:
    """Return Gbit/s as a quantity of bit/s.

    Its suffix is the largest of G, M and k that leaves 1 or more; below 1k it has none.
    """
    bits = min(number, _MOST) * _GIGA
    for suffix, unit in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bits >= unit:
            return _plain(bits / unit) + suffix
    return _plain(bits)


def latency_text(number: float) -> str:
    """Return microseconds as a duration, to the nanosecond."""
    return f"{_plain(min(number, _MOST))}us"


def figure_text(number: float | None, *, latency: bool) -> str | None:
    """Return a latency or bandwidth as text; None if it is None or not finite."""
    if number is None or not math.isfinite(number):
        return None
    return latency_text(number) if latency else bandwidth_text(number)


def _checked(text: str, pattern: str) -> str:
    """Return a text without a final line break; raise ValueError if it does not match a pattern."""
    if not re.search(pattern, text):
        raise ValueError(f"neither a bandwidth nor a latency: {text!r}")
    return text.removesuffix("\n")


def _plain(number: float) -> str:
    """Return a number as text with three decimals at most."""
    return f"{number:.3f}".rstrip("0").rstrip(".")
