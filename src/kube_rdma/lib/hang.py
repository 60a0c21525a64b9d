"""Decides whether a program hangs, and is not merely starved of processors.

Asked by lib/watchdog. That time passes proves nothing: on a node whose processors are all taken by
a job a program is late and well, and to end it would only cost more.
"""

from __future__ import annotations

from kube_base.frozen import Frozen

TICK = 10.0  # seconds between two looks
# Seconds of silence after which a program hangs. Its longest step, imports on a slow emulated
# processor, takes a tenth of it.
PATIENCE = 120.0


class Spent(Frozen):
    """The seconds of a program between two looks, its threads added up."""

    passed: float  # of the clock
    ran: float  # on a processor
    waited: float  # ready to run, without a processor


def silence(before: float, spent: Spent, tick: float = TICK) -> float:
    """Return seconds for which the loop was silent although the program ran, or had nothing to run.

    `before` is what this was at the last look. A loop that spins runs. One that is blocked leaves
    time in which no thread runs or waits for a processor; of that a look counts for a `tick` at
    most, for one that comes late tells of a program that was stopped or frozen.
    """
    return before + max(spent.ran, min(spent.passed, tick) - spent.waited)
