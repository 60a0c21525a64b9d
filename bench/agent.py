"""What the agent costs a node that has nothing to do: memory, and how often it wakes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.context import Context
from bench.figures import Figure
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster

IDLE_SECONDS = 30
# Prints "<VmRSS in KiB> <wake-ups before> <wake-ups after>"; a sleeping thread's voluntary
# context switches count how often it woke.
SCRIPT = """
pid=$(pgrep -f 'kube-rdma agent' | head -n 1)
switches() {{ cat /proc/$pid/task/*/status | awk '/^voluntary/ {{sum += $2}} END {{print sum}}'; }}
before=$(switches); sleep {seconds}; after=$(switches)
echo $(awk '/^VmRSS/ {{print $2}}' /proc/$pid/status) $before $after
"""


def measure(context: Context) -> Iterator[Figure]:
    """Look at the agent on one node of the lab for half a minute."""
    lab = context.lab()
    idle = context.times(IDLE_SECONDS)
    fields = cluster.shell(lab, lab.topology.nodes[0].name, SCRIPT.format(seconds=idle)).split()
    if len(fields) != 3:
        raise Unavailable("no agent runs on the first node")
    resident, before, after = map(int, fields)
    wakes = (after - before) / idle
    yield Figure("resident_mib", resident / 1024, "MiB", "≤ 70")
    yield Figure("wakeups_per_second", wakes, "/s", "0", f"{after - before} in {idle} s")
