"""Says why the scheduler would not choose a node, or any: labels, resources, taints, cordon.

The scheduler's Event counts nodes by reason, and names neither the label nor, in newer versions,
the taint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kube_rdma.admission.rules.shares import held_shares, possible
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.finding import Finding, Stage
from kube_rdma.model.kubernetes import NodeState

_ORDER = ("labels", "resources", "taints", "cordon")  # codes of findings; the later, the nearer


def unfit(
    template: PodTemplate,
    node: NodeState,
    held: Mapping[str, int],
    spared: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield Findings about what keeps the pod from a node: labels, shares, taints, cordon.

    `held` counts the shares of the node's other pods. Resources in `spared`, such as those that
    claims serve, are not looked at.
    """
    labels, offered = dict(node.labels), dict(node.allocatable)
    keys = [key for key, _ in template.selector]
    keys += [demand.label for demands in template.alternatives for demand in demands]
    for key in dict.fromkeys(keys):
        values = possible(template, key)
        if values is not None and labels.get(key) not in values:
            has = f"has {key}={labels[key]}" if key in labels else "has no such label"
            problem = f"the pod wants {key}={', '.join(sorted(values))}, and the node {has}"
            remedy = "Take it out of nodeSelector or nodeAffinity, or have a node labelled"
            yield _finding("labels", node.name, problem, f"{remedy} (docs/config.md)")
    asked = (ask.resource for one in template.containers for ask in one.asks)
    for resource in dict.fromkeys(one for one in asked if one not in spared):
        count, offer, taken = (
            held_shares(template, resource),
            offered.get(resource, 0),
            held.get(resource, 0),
        )
        if count > offer - taken:
            besides = f", of which other pods ask for {taken}" if taken else ""
            problem = f"the pod asks for {count}, and the node offers {offer}{besides}"
            remedy = "Ask for less, wait until pods end, or name another node (kube-rdma status)"
            if not offer:
                remedy = "Choose another node; kube-rdma status says whether the node's agent runs"
            yield _finding("resources", resource, problem, remedy)
    for taint in node.taints:
        fields = (taint.key, taint.value, taint.effect)
        is_borne = any(one.covers(*fields) for one in template.tolerations)
        if taint.effect in ("NoSchedule", "NoExecute") and not is_borne:
            word = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
            problem = f"the node has the taint {word}, and the pod does not tolerate it"
            yield _finding("taints", node.name, problem, f"Add a toleration for {taint.key}")
    if node.unschedulable:
        yield _finding("cordon", node.name, "the node is closed (cordoned)", "kubectl uncordon it")


def no_node(template: PodTemplate, nodes: Collection[NodeState]) -> Iterator[Finding]:
    """Yield what keeps the pod from the node that fits best, if no node fits."""
    offered = {name for node in nodes for name, _ in node.allocatable}
    asked = {ask.resource for one in template.containers for ask in one.asks}
    firsts = [(one, next(unfit(template, one, {}, asked - offered), None)) for one in nodes]
    near = [(_ORDER.index(first.code), node, first) for node, first in firsts if first]
    if nodes and len(near) == len(nodes):
        _, node, first = max(near, key=lambda one: one[0])
        problem = f"no node fits; nearest is {node.name}: {first.problem}"
        yield _finding(first.code, node.name, problem, first.remedy)


def _finding(code: str, subject: str, problem: str, remedy: str) -> Finding:
    return Finding(subject, problem, remedy=remedy, code=code, stage=Stage.SCHEDULER)
