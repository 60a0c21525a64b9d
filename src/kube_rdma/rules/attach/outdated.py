"""Which pods have to be made anew because their containers hold another device's nodes by now.

Behind rules/late_binding/early, which refuses such a pod at every ADD: a container keeps what it
was given at Allocate, and the kubelet does not ask again for a pod that it knows. So the pod never
runs, rules/attach/repair sees no sandbox of it, and only a new pod gets the right nodes.
programs/agent/pod_networks/outdated_pods asks the controller for its end (restarts.py here).

Rules of time: a state goes in and the next one comes out; `now` is of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pod import PodState
from kube_rdma.rules.attach.repair import LONGEST, REFUSALS

AGAIN = 60.0
"""Seconds from one request to the next: the kubelet tries several times a minute."""


RefusedKey = tuple[str, InterfaceName | None]
"""A pod's uid, and the interface that its ADD was about; None: all of them."""


class RefusedAdd(Frozen):
    """Refusals of a key in a row, the last one `at`; `asked`: when the pod's end was asked for."""

    times: int
    at: float
    asked: float | None = None


def refused(
    before: Mapping[RefusedKey, RefusedAdd], key: RefusedKey, now: float
) -> tuple[dict[RefusedKey, RefusedAdd], bool]:
    """The state after one more refusal, and whether to ask now; those of long ago are forgotten.

    One alone may be of a number that another device held for a moment.
    """
    kept = {each: one for each, one in before.items() if now - one.at <= LONGEST}
    last = kept.get(key, RefusedAdd(0, now))
    lasts = last.times + 1 >= REFUSALS
    asks = lasts and (last.asked is None or now - last.asked >= AGAIN)
    return {**kept, key: RefusedAdd(last.times + 1, now, now if asks else last.asked)}, asks


def is_remade(pod: PodState) -> bool:
    """Whether somebody makes another pod in place of this one: only then its end is asked for.

    Of a static pod only the mirror in the API would go, and the kubelet makes it again.
    """
    return pod.controlled and not pod.is_static
