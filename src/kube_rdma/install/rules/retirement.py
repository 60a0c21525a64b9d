"""The end of an installation: who must be gone before.

An agent cannot tell an uninstall from an update, so hooks of Helm's (objects/retirement.yaml) or
people end the agents first, by `kube-rdma network retire` and `retire-drivers`, which ask here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_base.errors import Refused
from kube_rdma.lib.phrases import listed
from kube_rdma.model.pod import PodState

_ENDED = frozenset(("Succeeded", "Failed"))


def still_needed(pods: Iterable[PodState], annotation: str) -> Refused | None:
    """Why the agents may not go yet: pods that an agent wrote this annotation on, and that run."""
    names = sorted(
        f"{pod.namespace}/{pod.name}"
        for pod in pods
        if annotation in dict(pod.annotations) and pod.phase not in _ENDED
    )
    if not names:
        return None
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Refused(
        f"pods have networks that only an agent can take back: {shown}",
        remedy="End them first; to leave them to themselves, write --force (helm: --no-hooks)",
    )


def drivers_run(nodes: Iterable[str], daemon_sets: Iterable[str]) -> Refused | None:
    """Why an operator may not go yet: its drivers, on these nodes, by these DaemonSets."""
    names, sets = sorted(set(nodes)), sorted(daemon_sets)
    if not sets:
        return None
    where = f"on nodes {listed(names)}" if names else f"by DaemonSet {listed(sets)}"
    return Refused(
        f"drivers of a NicClusterPolicy run {where}, and would all be unloaded at once",
        remedy="Delete the policy and wait until the operator has unloaded them node by node "
        "(docs/drivers.md); to end them all the same: helm uninstall --no-hooks",
    )
