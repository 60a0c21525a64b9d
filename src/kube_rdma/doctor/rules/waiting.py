"""Says why a pod does not run, by the Events about it, and what to do, whether it is RDMA or not.

doctor/api_pod reads the Events; KR490 and explain show the answer. Whoever may create Events in a
namespace writes their text. So the text is cut, and a remedy quotes only names with characters that
Kubernetes allows. The remedy of kube-rdma's own refusal is shown as the Event's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from shlex import quote

from kube_rdma.model.finding import Finding, Stage
from kube_rdma.model.reports import ClusterEvent

REFUSAL = 'plugin type="kube-rdma" failed (add): '  # libcni's words before a plugin's
_MOST = 1024  # characters of a message (kubernetes pkg/apis/core/validation/events.go)
_SHOWN = 300  # of these; the scheduler's gives a reason for each kind of node
_OF_KNOWN = 150  # of these, so that the remedy is in the first lines too
_WRAPPED = re.compile(r'Error creating: pods "[^"]*" is forbidden: ')  # around admission's words
_REPEATS = ("BackOff", "FailedSync")  # reasons that say that something failed, not what
_PULL_SECRET = "FailedToRetrieveImagePullSecret"  # noqa: S105  kubernetes pkg/kubelet/events
_UNPLACED = ("FailedScheduling", "ProvisioningFailed", "FailedResourceClaimCreation")
_STAGES = {"FailedCreate": Stage.ADMISSION} | dict.fromkeys(_UNPLACED, Stage.SCHEDULER)


# Patterns of messages with what to do, which the groups and the namespace {ns} fill in.
_NAME = r'"?([a-z0-9][a-z0-9./-]*[a-z0-9])"?'
_MAY_BE_RDMA = {
    "Insufficient ([A-Za-z0-9.-]+/[A-Za-z0-9_-]+)": "Ask for less of {0}, or wait until pods that "
    "hold it end (kube-rdma resources)",
    "Topology ?Affinity ?Error|Topology locality": "Ask for no more than one NUMA node has; or "
    "have the kubelet's topologyManagerPolicy set to best-effort, or a pool without topology",
    f"device ?class {_NAME} (?:does not exist|not found)": "Name a class of kubectl get "
    "deviceclasses in place of {0}",
    "^PreflightFailed": "Have the suspect that the Event names looked at; all pairs are in "
    "kubectl -n {ns} get bandwidthchecks -o yaml",
    "^PreflightWaiting": "Look at the pods that are missing: kubectl -n {ns} get pods",
    rf"resourceclaimtemplate\S* {_NAME} not found": "Apply {0}; if it is refused, adminAccess "
    'needs the label resource.kubernetes.io/admin-access: "true" on namespace {ns}',
}
_OTHERS = {
    f"(configmap|secret|persistentvolumeclaim) {_NAME} not found": "Create {0} {1} in namespace "
    "{ns}, or take it out of the pod",
    r"pull secrets? \(([a-z0-9., -]+)\)": "Create secret {0} in namespace {ns}: one of another "
    "namespace does not count",
    "pull(?:ing)? image|ErrImagePull": "Write an image that the node can pull, and "
    "imagePullSecrets of namespace {ns}",
    rf"storageclass\S* {_NAME} not found": "Name a class of kubectl get "
    "storageclass in place of {0}",
    "unbound immediate PersistentVolumeClaims": "kubectl -n {ns} describe pvc says why its claim "
    "has no volume",
    'violates PodSecurity "([a-z]+):': "Take out what level {0} forbids (instead of IPC_LOCK the "
    "node can raise the limit of locked memory), or have another level set on namespace {ns}",
    "(maximum|minimum) [a-z-]+ usage per (?:Container|Pod)": "Keep to the {0} that a LimitRange of "
    "namespace {ns} sets (kubectl -n {ns} describe limitrange), or have it changed",
    f"exceeded quota: {_NAME}": "Ask for less, or have ResourceQuota {0} of namespace {ns} raised",
    "untolerated taint": "Add a toleration for it to the pod, or ask for nodes without it",
    "didn't match Pod's node affinity/selector": "Take the label out of nodeSelector or "
    "nodeAffinity, or have a node labelled with it",
}


def telling(events: Iterable[ClusterEvent]) -> ClusterEvent | None:
    """Return the last warning Event that says what failed; None without a warning.

    Repeated and follow-up warnings are passed over where another one says more. Of a failed pull
    the Event about its missing secret counts.
    """
    warnings = sorted((one for one in events if one.is_warning), key=lambda one: one.last)
    telling_ones = (one for one in warnings if not one.note.startswith("Error: "))
    whole = [one for one in telling_ones if one.reason not in _REPEATS]
    last = next(reversed(whole or warnings), None)
    if last and last.reason == "Failed":  # to pull an image, most often for want of its secret
        return next((one for one in whole if one.reason == _PULL_SECRET), last)
    return last


def text_of(event: ClusterEvent) -> str:
    """Return an Event's reason and note on one line, cut to a maximum length."""
    note = event.note.partition(" preemption: ")[0]  # of the scheduler, about pods to evict
    about = f"{event.kind} {event.name}: " if event.kind == "PersistentVolumeClaim" else ""
    return f"{event.reason}: {about}{' '.join(note.split())}"[:_MOST]


def refusal(why: str) -> tuple[str, str]:
    """Return the problem and the remedy if kube-rdma refused the pod's network, else ("", "").

    `why` is a whole message: runtime and kubelet put their own words before kube-rdma's sentence.
    """
    sentence = why.rpartition(REFUSAL)[2] if REFUSAL in why else ""
    problem, semicolon, remedy = sentence.rpartition("; ")
    if not semicolon:
        return sentence.rstrip("."), ""
    return problem, f"The Event says: {remedy.rstrip('.')}"


def waits_for(why: str, namespace: str) -> Finding:
    """Return a Finding about why a pod waits, with a remedy where one is known.

    `why` is a text `REASON: message`.
    """
    problem, remedy = refusal(why)
    if problem:
        return Finding("CNI", problem, remedy=remedy, stage=Stage.AGENT)
    reason = why.partition(":")[0]
    said = _WRAPPED.sub("", why)
    stage = _STAGES.get(reason, Stage.KUBELET)
    for words, remedy in (_MAY_BE_RDMA | _OTHERS).items():
        if match := re.search(words, why):
            fix = remedy.format(*match.groups(), ns=quote(namespace))
            no = "not RDMA: " if words in _OTHERS else ""
            return Finding(reason, f"{no}{_cut(said, _OF_KNOWN)}", remedy=fix, stage=stage)
    return Finding(reason, _cut(said, _SHOWN), stage=stage)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
