"""How long a node takes to change its mode: from its label to shares that pods can be given.

Seed S1's node on the lab, with no pod on it. The kubelet knows the new shares when they stand in
its checkpoint; the scheduler does when the kubelet has told the API server, which it does by a
clock of its own (`nodeStatusUpdateFrequency`, 10 s by itself).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from statistics import median

from bench.context import Context
from bench.figures import Figure
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.lab import Lab

EXAMPLE = scc.examples() / "s1-vke" / "daemonset.yaml"
RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
SHARES = {"exclusive": 1, "shared": 1, "shared-multi": 16}  # of a card
# Each differs from the one before in how many shares there are.
CHANGES = ("exclusive", "shared-multi", "shared", "shared-multi", "exclusive", "shared-multi")
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
# Ends when the kubelet has written down so many devices.
UNTIL = """\
echo waiting
for i in $(seq 600); do
  found=$(grep -o '"{resource}":\\[[^]]*\\]' {checkpoint} | tr , '\\n' | wc -l)
  [ "$found" = {count} ] && exit 0
  sleep 0.1
done
exit 1
"""


def measure(context: Context) -> Iterator[Figure]:
    """Change the first node's mode again and again; each change is shown, then the medians."""
    lab, changes = context.lab(), CHANGES[: context.times(len(CHANGES))]
    node = lab.topology.nodes[0].name
    scc.install_kinds(lab)
    cluster.kubectl(lab, "apply", "-f", str(EXAMPLE))
    times = []
    try:
        cluster.rollout(lab, "rdma-device-plugin", "kube-rdma-vke")
        _change(lab, node, "shared")
        for number, mode in enumerate(changes, 1):
            times.append(_change(lab, node, mode))
            note = f"to {mode}; the kubelet knows after {times[-1][0]:.1f} s"
            yield Figure(f"change_{number}_s", times[-1][1], "s", "", note)
    finally:
        cluster.kubectl(lab, "label", "node", node, f"{LABEL}-")
        cluster.kubectl(lab, "delete", "-f", str(EXAMPLE), "--wait")
    kubelet_knows, scheduled = zip(*times, strict=True)
    note = f"median of {len(changes)}, slowest {{:.1f}} s"
    slowest = note.format(max(kubelet_knows))
    yield Figure("kubelet_knows_s", median(kubelet_knows), "s", "≤ 5", slowest)
    slowest = note.format(max(scheduled))
    yield Figure("scheduler_knows_s", median(scheduled), "s", "", slowest)


def _change(lab: Lab, node: str, mode: str) -> tuple[float, float]:
    """Seconds from the label until the kubelet knows the shares, and until the API server does."""
    cards = sum(nic.soft_roce for nic in lab.topology.nodes[0].nics)
    count = SHARES[mode] * cards
    script = UNTIL.format(resource=RESOURCE, checkpoint=CHECKPOINT, count=count)
    with subprocess.Popen(lab.on_node(node, "sh", "-c", script), stdout=subprocess.PIPE) as watch:
        assert watch.stdout
        watch.stdout.readline()
        begin = time.monotonic()
        cluster.kubectl(lab, "label", "node", node, f"{LABEL}={mode}", "--overwrite")
        if watch.wait(90) != 0:
            raise Unavailable(f"the kubelet of {node} does not know {count} shares after 60 s")
        kubelet_knows = time.monotonic() - begin
    cluster.wait_for_resource(lab, RESOURCE, count, node=node)
    return kubelet_knows, time.monotonic() - begin
