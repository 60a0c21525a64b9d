"""How fast IPAM goes: its clock, and the seconds that the program itself chooses."""

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
    """Tests have their own.

    `tick` is how often a node looks after what no request waits for, `patrol` how often the
    controller looks. `pause` says how long to wait after so many failures, counted from 0. How long
    one call may take is kube_client's to say: it counts silence, which no clock here can.
    """

    timing: Timing = field(default_factory=Timing)
    clock: Callable[[], float] = boot_time
    tick: float = 1.0
    patrol: float = 5.0
    pause: Callable[[int], float] = full_jitter
