"""Decides what an installation makes and changes on a cluster, and what is in its way.

install/apply reads an InstallSight and writes the InstallPlan made of it; install/views shows it.
Objects of another owner are never overwritten, as Helm would refuse it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kube_rdma.install.rules.release import RECORDS, RELEASE
from kube_rdma.lib.phrases import listed
from kube_rdma.model import install
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.reports import ChosenNodes

_SERVERS = ("managedFields", "resourceVersion", "generation")  # metadata that each write changes
_REASONS = 5  # why nodes get no agent
_REMEDIES = {
    "Namespace": "Use it as it is: write --namespace and its name",
    "CustomResourceDefinition": "Leave the definitions as they are: write --set crds.install=false",
}
_REMEDY = "Remove it, or give this installation names of its own: write --set fullnameOverride=NAME"


def install_plan(sight: install.InstallSight) -> install.InstallPlan:
    """Return what is to be written, and findings; one error among them forbids all writes."""
    without: dict[str, list[str]] = defaultdict(list)  # names of nodes by the reason
    for node in sight.nodes if sight.release.chosen else ():
        if why := objection(sight.release.chosen or ChosenNodes(), node):
            without[why].append(node.name)
    remedy = "Where an agent should run, set agent.tolerations or agent.nodeSelector for it"
    findings = (
        *_obstacles(sight),
        *_neighbours(sight),
        *(
            _warning(listed(names), f"no agent runs on a node that {why}", remedy)
            for why, names in [*without.items()][:_REASONS]
        ),
        *(Finding("", note, severity=Severity.ADVICE) for note in sight.release.notes),
    )
    served = len(sight.nodes) - sum(map(len, without.values()))
    ours = (one for one in sight.objects if not (one.refusal or one.owner))
    acts = tuple((_act(one), one.wanted) for one in ours)
    return install.InstallPlan(sight, acts, findings, served)


def title(document: install.Json) -> str:
    """Return kind, namespace and name of an object: ``DaemonSet kube-rdma/kube-rdma-agent``."""
    metadata = document["metadata"]
    space = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{document['kind']} {space}{metadata['name']}"


def _warning(subject: str, problem: str, remedy: str) -> Finding:
    return Finding.of("", subject, problem, remedy, Severity.WARNING)


def _act(one: install.ClusterObject) -> install.Act:
    if one.found is None:
        return install.Act.MADE
    is_other = one.made is not None and _own(one.found) != _own(one.made)
    return install.Act.CHANGED if is_other else install.Act.LEFT


def _own(document: install.Json) -> install.Json:
    metadata = {k: v for k, v in document["metadata"].items() if k not in _SERVERS}
    return {**document, "metadata": metadata}


def _obstacles(sight: install.InstallSight) -> Iterator[Finding]:
    if sight.kept_by_helm:
        problem = f"Helm has a record of it in namespace {RECORDS}"
        remedy = "Change it by helm upgrade, or remove it by helm uninstall"
        yield Finding.of("", f"release {sight.release.name}", problem, remedy)
    for one in sight.objects:
        name, remedy = title(one.wanted), _REMEDIES.get(one.wanted["kind"], _REMEDY)
        if one.owner:
            yield Finding.of("", name, f"the cluster has it, and {one.owner}", remedy)
        elif one.refusal:
            yield Finding.of("", name, one.refusal.problem, one.refusal.remedy)


def _neighbours(sight: install.InstallSight) -> Iterator[Finding]:
    """Yield findings about other programs that serve the nodes' cards."""
    own = {title(one) for one in sight.release.objects}
    for name, one in ((f"DaemonSet {one.title}", one) for one in sight.plugins):
        if one.is_ours and name not in own and not one.owner:  # its owner is a policy
            problem = "it is an agent of another installation of kube-rdma"
            remedy = "Uninstall that one, or give each nodes of its own (several releases)"
            alone = Severity.ERROR if sight.release.name == RELEASE else Severity.WARNING
            yield Finding.of("", name, problem, remedy, alone)
        elif not one.is_ours:
            problem = "it looks like a device plugin for RDMA cards"
            remedy = "See the way from it: kube-rdma migrate plan; or keep its cards out of pools"
            yield _warning(name, problem, remedy)
    for operator in sight.operators:
        what = f"Deployment {operator}", "NVIDIA's network operator runs there"
        if sight.release.has_operator:
            yield Finding.of("", *what, "Take preset nvidia beside it, or uninstall it first")
        else:
            yield _warning(*what, "Have its policies deploy no device plugin for the same cards")


_KUBELETS = "node.kubernetes.io/"  # taints of the kubelet and the node controller


def objection(chosen: ChosenNodes, node: NodeState) -> str:
    """Return why the scheduler keeps a pod off a node, by a label or a taint; "" if it does not.

    Taints that follow the node's state (node.kubernetes.io/) are not looked at.
    """
    labels = dict(node.labels)
    lacking = [f"{key}={value}" for key, value in chosen.labels if labels.get(key) != value]
    if lacking:
        return f"lacks the label {listed(lacking)} of the nodeSelector"
    for taint in node.taints:
        place = (taint.key, taint.value, taint.effect)
        keeps = taint.effect in ("NoSchedule", "NoExecute") and not taint.key.startswith(_KUBELETS)
        if keeps and not any(each.covers(*place) for each in chosen.tolerations):
            value = f"={taint.value}" if taint.value else ""
            return f"has the taint {taint.key}{value}:{taint.effect}, which is not tolerated"
    return ""
