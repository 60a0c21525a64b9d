"""KR432: whether the kernel holds a pod to the limits of its shares, and whether any is used up.

Beside doctor/rules/pod, for pods that hold shares of a pool with `rdmaLimits`. What is compared is
the control group of the pod, as the kernel shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.doctor.rules.check import Check
from kube_rdma.lib.phrases import listed
from kube_rdma.model.doctor import Observation, ObservedLimit, ObservedPod
from kube_rdma.model.finding import Finding, Severity

_LOG = 'Look for "share limits not held" in the log of the node\'s agent'


def _limits(seen: Observation) -> Iterator[Finding]:
    pod = seen.pod
    assert pod is not None
    resources = _limited(seen, pod)
    if not resources:
        return
    shown = pod.limits or ()
    if not any(limit.is_set for limit in shown):
        yield Finding(
            pod.title,
            f"The kernel limits no RDMA device of the pod, which holds {listed(resources)}",
            "Its pool has rdmaLimits, and the agent of this node has not written them",
            _LOG,
            Severity.WARNING,
        )
        return
    yield from (_used_up(limit) for limit in shown if limit.is_used_up)
    yield from _uncounted(pod, shown)


def _used_up(limit: ObservedLimit) -> Finding:
    return Finding(
        limit.device,
        f"The pod has used up {limit.text}",
        "Beyond rdmaLimits of the pool the kernel refuses to make more (EAGAIN)",
        "Request more shares, or raise rdmaLimits of the pool",
        Severity.WARNING,
    )


def _uncounted(pod: ObservedPod, shown: tuple[ObservedLimit, ...]) -> Iterator[Finding]:
    """Devices of the pod that the kernel counts nothing of: those of some drivers out of tree."""
    counted = {limit.device for limit in shown}
    for device in pod.survey.devices if pod.survey else ():
        if device.name not in counted:
            yield Finding(
                device.name,
                "The kernel counts nothing that the pod makes on it, so it has no limit",
                "Its driver does not register with the rdma controller of control groups",
                "Use the kernel's own driver, or a newer one of the vendor",
                Severity.WARNING,
            )


def _limited(seen: Observation, pod: ObservedPod) -> list[str]:
    """The resources with limits of which the pod holds shares."""
    names = {spec.resource for spec in seen.specs or () if spec.limits}
    held = (seen.kubelet.holdings or ()) if seen.kubelet else ()
    mine = (one for one in held if (one.namespace, one.pod) == (pod.namespace, pod.name))
    return sorted({one.resource for one in mine if one.shares} & names)


CHECKS = (
    Check(
        "KR432",
        "RDMA limits of the pod",
        ("pod", "pod.limits", "specs", "kubelet", "kubelet.holdings"),
        _limits,
    ),
)
