"""Rules about scheduling: nodes on which pods are put, and nodes on which they cannot run.

They find a pod that no node takes, and a node that takes a pod and can never run it. They also find
a node with cards that a DaemonSet leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kube_base.frozen import replace
from kube_rdma.model.install import Json
from kube_rdma.model.kubernetes import Taint
from kube_rdma.operator.rules.placement import allows
from kube_rdma_tools.judge.environment import Environment, JudgedNode
from kube_rdma_tools.judge.judged_pods import JudgedPod, judged_pods
from kube_rdma_tools.judge.neighbours import CARDS_LABEL
from kube_rdma_tools.judge.violation import Violation

DAEMON_SET = "DaemonSet"
OWN_LABELS = "kube-rdma.io/"
"""The prefix of labels that kube-rdma writes; a node with cards counts as one that has them."""
WRITES_FEATURES = "--node-labels=write-nfd"
"""The argument of an agent that writes labels of Node Feature Discovery too."""
_REPELLING = ("NoSchedule", "NoExecute")


def nowhere(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """No node of the cluster takes the pod: it stays Pending."""
    for pod in judged_pods(objects):
        fit = [node for node in environment.nodes if not unfit(node, environment)]
        if pod.kind != DAEMON_SET and not any(takes(node, pod) for node in fit):
            taints = sorted(
                {taint.key for node in fit for taint in node.taints if not tolerated(taint, pod)}
            )
            yield pod.violation(
                "tolerations",
                f"no node takes the pod; not tolerated: {', '.join(taints) or 'none'}",
                "let the chart's values set tolerations for it, by default those of the agents",
            )


def unfit_node(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The scheduler may put the pod on a node where it can never run."""
    for pod in judged_pods(objects):
        for node in environment.nodes:
            # The operator gives its labels to nodes for which it has an image.
            chosen = _asks_own_label(pod)
            if not chosen and takes(node, pod) and (reason := unfit(node, environment)):
                yield pod.violation(
                    "affinity" if node.virtual else "nodeSelector",
                    f"node {node.name} takes the pod, and {reason}",
                    _avoiding(node),
                )


def unfit(node: JudgedNode, environment: Environment) -> str:
    """Return why no pod of the installation can run on a node; "" where pods can."""
    if node.virtual:
        return "is virtual: it has no kubelet that starts the pod, which stays Pending"
    if node.system != "linux":
        return f"runs {node.system}, for which there is no image"
    if node.architecture not in environment.image:
        return f"is {node.architecture}, for which this image was not built"
    return ""


def _avoiding(node: JudgedNode) -> str:
    """Return a remedy that would keep pods off nodes like this one."""
    if node.virtual:
        keys = sorted(node.labels) or ["its label"]
        return f"require {keys[0]} NotIn {node.labels.get(keys[0], '…')} by nodeAffinity"
    if node.system != "linux":
        return "select kubernetes.io/os=linux"
    return "let the chart's values select kubernetes.io/arch, or build for both architectures"


def missed_node(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """A node with cards has no pod of the DaemonSet."""
    pods = tuple(judged_pods(objects))
    for pod in pods:
        if pod.kind != DAEMON_SET:
            continue
        for node in environment.nodes:
            if node.cards and not unfit(node, environment):
                labelled = _labelled(node, pods)
                if not takes(labelled, pod):
                    yield pod.violation(*_missed(pod, labelled))


def _labelled(node: JudgedNode, pods: Sequence[JudgedPod]) -> JudgedNode:
    """Return the node with the label for cards, if an agent that writes it runs there."""
    for pod in pods:
        words = [word for container in pod.containers for word in container.body.get("args") or ()]
        if pod.kind == DAEMON_SET and WRITES_FEATURES in words and takes(node, pod):
            return replace(node, labels={**node.labels, CARDS_LABEL: "true"})
    return node


def _missed(pod: JudgedPod, node: JudgedNode) -> tuple[str, str, str]:
    """Return field, problem and remedy for a node with cards that a DaemonSet leaves out."""
    repelling = [taint.key for taint in node.taints if not tolerated(taint, pod)]
    if repelling:
        problem = f"node {node.name} has cards and the taint {', '.join(repelling)}"
        return "tolerations", problem, "tolerate it: operator Exists without an effect"
    labels = node.all_labels
    missing = [key for key, value in _selector(pod).items() if labels.get(key) != value]
    if missing:
        problem = f"node {node.name} has cards and not the label {', '.join(missing)}"
        return "nodeSelector", problem, "label the nodes, or select none"
    return "affinity", f"node {node.name} has cards and is not in the affinity", "widen it"


def takes(node: JudgedNode, pod: JudgedPod) -> bool:
    """Decide whether the scheduler may put a pod on a node."""
    labels = node.all_labels
    affinity: Mapping[str, Any] | None = pod.spec.get("affinity", {}).get("nodeAffinity", {})
    return (
        all(labels.get(key) == value for key, value in _selector(pod).items())
        and (node.cards or not _asks_own_label(pod))
        and allows(affinity, node.name, labels)
        and all(tolerated(taint, pod) for taint in node.taints)
    )


def _selector(pod: JudgedPod) -> dict[str, str]:
    """Return a pod's nodeSelector, without labels that kube-rdma itself sets."""
    selector = pod.spec.get("nodeSelector") or {}
    return {key: value for key, value in selector.items() if not key.startswith(OWN_LABELS)}


def _asks_own_label(pod: JudgedPod) -> bool:
    """Decide whether a pod selects nodes by a label that kube-rdma itself sets."""
    return any(key.startswith(OWN_LABELS) for key in pod.spec.get("nodeSelector") or ())


def tolerated(taint: Taint, pod: JudgedPod) -> bool:
    """Decide whether a pod tolerates a taint, or the taint does not repel pods."""
    tolerations = pod.spec.get("tolerations") or ()
    return taint.effect not in _REPELLING or any(_tolerates(row, taint) for row in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    if toleration.get("effect", "") not in ("", taint.effect):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return key in ("", taint.key)
    return (key, value) == (taint.key, taint.value)
