"""Says why no node of a cluster takes a pod: labels, resources, then taints.

Part of the rules of `kube-rdma explain`. The scheduler's Event counts nodes by reason, without the
label or, since Kubernetes 1.34, the taint; here both are named. Resources that other pods hold and
what claims give are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kube_rdma.admission.rules.shares import held_shares, possible
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.finding import Finding, Stage
from kube_rdma.model.kubernetes import NodeState, Taint

_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def label_keys(template: PodTemplate) -> tuple[str, ...]:
    """Return the labels of nodes that the pod has demands on."""
    keys = [key for key, _ in template.selector]
    keys += [demand.label for demands in template.alternatives for demand in demands]
    return tuple(dict.fromkeys(keys))


def untolerated(template: PodTemplate, node: NodeState) -> tuple[Taint, ...]:
    """Return the taints that keep the pod away (kubernetes pkg/apis/core/v1/toleration.go)."""
    return tuple(
        taint
        for taint in node.taints
        if taint.effect in _KEEPS_AWAY
        and not any(one.tolerates(taint) for one in template.tolerations)
    )


def kept_away(taint: Taint, whom: str, subject: str) -> Finding:
    """Return the finding of a taint that the pod does not tolerate."""
    value = f"={taint.value}" if taint.value else ""
    problem = f"{whom} the taint {taint.key}{value}:{taint.effect}, which the pod does not tolerate"
    remedy = f"Add a toleration for {taint.key} to the pod"
    return Finding(subject, problem, remedy=remedy, stage=Stage.SCHEDULER)


def no_node(template: PodTemplate, nodes: Sequence[NodeState]) -> Iterator[Finding]:
    """Yield the first demand of the pod that leaves no node."""
    left = list(nodes)
    for key in label_keys(template):
        values = possible(template, key)
        fitting = [one for one in left if values is None or dict(one.labels).get(key) in values]
        if left and not fitting:
            problem = f"no node has the label {key}={' or '.join(sorted(values or ()))}"
            remedy = (
                "Take it out of the pod's nodeSelector or nodeAffinity, as resources choose nodes "
                "too; or have a node labelled, as Node Feature Discovery does"
            )
            yield Finding(key, problem, remedy=remedy, stage=Stage.SCHEDULER)
            return
        left = fitting
    allowed = " that its labels allow" if len(left) < len(nodes) else ""
    for resource in dict.fromkeys(ask.resource for one in template.containers for ask in one.asks):
        if not any(resource in dict(one.allocatable) for one in nodes):
            continue  # such as one that claims serve
        count = held_shares(template, resource)
        most = max((dict(one.allocatable).get(resource, 0) for one in left), default=0)
        if left and most < count:
            names = listed([one.name for one in left])
            problem = f"the pod asks for {count}, and {names}{allowed} offers {most or 'none'}"
            remedy = f"Ask for at most {most}" if most else "Let the pod come to other nodes"
            remedy += "; kube-rdma status says whether the node's agent runs, and how its cards are"
            yield Finding(resource, problem, remedy=remedy, stage=Stage.SCHEDULER)
            return
        left = [one for one in left if dict(one.allocatable).get(resource, 0) >= count]
    yield from _taints(template, left)


def _taints(template: PodTemplate, left: Iterable[NodeState]) -> Iterator[Finding]:
    """Yield the taint that keeps the pod from most of the nodes that are left, if from each one."""
    taints = [untolerated(template, one) for one in left]
    if taints and all(taints):
        ((taint, count),) = Counter(one for some in taints for one in some).most_common(1)
        what = "node that fits has" if len(taints) == 1 else f"of {len(taints)} nodes that fit have"
        yield kept_away(taint, f"the {what}" if len(taints) == 1 else f"{count} {what}", "taints")
