"""Which rail a pod's device is on: its place, or its name where pods have unlike numbers of them.

A node without its fourth card has its fifth in the fourth place. Measured by places, each card
behind the gap would meet cards of another rail, on which it may reach nobody. So a pod that has
fewer devices than others is read by the names of theirs, where it has no other names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kube_base.frozen import replace
from kube_rdma.model.verify.bandwidth import PairedPod


def with_rails(pods: Sequence[PairedPod]) -> list[PairedPod]:
    """The pods, in which those that lack devices know the rails of what they have."""
    most = max((len(pod.devices) for pod in pods), default=0)
    whole = Counter(_names(pod) for pod in pods if len(pod.devices) == most)
    usual = whole.most_common(1)[0][0] if whole else ()
    return [_placed(pod, usual) for pod in pods]


def _placed(pod: PairedPod, usual: tuple[str, ...]) -> PairedPod:
    names = _names(pod)
    are_unique = len(set(names)) == len(names) and len(set(usual)) == len(usual)
    if len(names) == len(usual) or not are_unique or not set(names) <= set(usual):
        return pod
    return replace(pod, rails=tuple(usual.index(name) for name in names))


def _names(pod: PairedPod) -> tuple[str, ...]:
    return tuple(device.name for device in pod.devices)


def lonely(pods: Sequence[PairedPod]) -> Iterator[tuple[str, str]]:
    """Devices that nothing can be measured with, and why; none where there is only one pod."""
    if len(pods) < 2:
        return
    members = Counter(rail for pod in pods for rail in pod.by_rail)
    for pod in pods:
        for rail, device in pod.by_rail.items():
            if members[rail] == 1:
                yield f"{pod.title} {device.name}", f"no other pod has a device on rail {rail}"
