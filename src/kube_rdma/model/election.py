"""Defines the record that copies of a program write into their Lease (coordination.k8s.io).

Its fields are those of client-go. controller/leadership.py judges and writes it.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class ElectionRecord(Frozen):
    """The record of who leads; `holder` is empty when nobody does.

    Times are RFC 3339 of the writer's clock. Readers only see whether `renewed` has changed: clocks
    of two nodes may be minutes apart.
    """

    holder: str
    duration: float  # seconds after its last change in which nobody else may take it
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0  # how often the holder has changed


class ElectionTiming(Frozen):
    """The times of leader election, in seconds.

    A leader that could not renew for `deadline` begins to stop, and has until `duration` for that.
    The defaults outlast an API server that is away or slow for most of a minute. With client-go's
    times two copies on busy nodes took the lead from each other again and again (decision 0013).
    """

    duration: float = 60.0
    deadline: float = 45.0
    retry: float = 4.0
