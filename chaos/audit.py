"""The audit: two moments in, everything that is wrong out. It knows no fault and no schedule.

    audit(seen, before)   `before`: the same cluster before the load, when all was well

Each rule compares two things that were written by different programs: the kernel with a record, a
record with the kubelet's, the API with the kernel. A pod that lives is one that the API has.
"""

from __future__ import annotations

from chaos import cluster_rules, kernel_rules, record_rules
from chaos.finding import Discrepancy
from chaos.seen import Seen

ENDED = frozenset(("Succeeded", "Failed"))


def audit(seen: Seen, before: Seen) -> tuple[Discrepancy, ...]:
    """What is leaked, doubled, lost or silent, in one order."""
    ours = [pod for pod in seen.pods if pod.phase not in ENDED]
    living = frozenset((*(pod.uid for pod in ours), *seen.others))
    wrong = [*cluster_rules.judge(seen, before, living)]
    first = {node.name: node for node in before.nodes}
    for node in seen.nodes:
        pods = {pod.uid: pod for pod in ours if pod.node == node.name}
        wrong += kernel_rules.judge(node, first[node.name], pods, living, seen)
        wrong += record_rules.judge(node, pods, living, seen)
    return tuple(sorted(set(wrong)))
