"""The timing of IPAM: its clock, what nodes and controller agree on, and what each chooses."""

from __future__ import annotations

import time
from collections.abc import Callable

from kube_base.backoff import full_jitter
from kube_base.frozen import Frozen, field
from kube_rdma.model.ipam import Timing


def boot_time() -> float:
    """Seconds of a clock that goes on while the machine sleeps, so that no right outlives T."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class IpamTiming(Frozen):
    """Seconds of IPAM; tests have their own.

    `agreed` is the same for nodes and controller. `tick` is how often a node does what no request
    waits for, `gc_interval` how often the controller does a round. `pause` says how long to wait
    after so many failures, counted from 0. adapters/cluster limits single calls by their silence.
    """

    agreed: Timing = field(default_factory=Timing)
    clock: Callable[[], float] = boot_time
    tick: float = 1.0
    gc_interval: float = 5.0
    pause: Callable[[int], float] = full_jitter
