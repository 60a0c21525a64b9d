"""What pods hold of which the kubelet does not tell just now, though it answers.

    pod resources ─ who holds what ──┐
    kubelet's record ─ by uid ───────┼► untold ─► completed ─► Holding
    API server ─ pods that still run ┘

A kubelet that starts answers at once, with no pods: it takes them one by one from the API server
(kubernetes@v1.36.3 pkg/kubelet/kubelet.go, syncLoopIteration; apis/podresources/server_v1.go,
List). Whoever took that for an empty node would give their cards to others. The record says who
held what, and a pod that ended is one that the API server does not have, or calls over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pools.holding import Holding, NodeHoldings, RecordedGrant

Named = Mapping[str, PodName]
"""Pods by the uid that kubelet and runtime know."""


def untold(
    recorded: Iterable[RecordedGrant], answer: NodeHoldings, named: Named
) -> tuple[RecordedGrant, ...]:
    """The grants that the answer may lack: of pods that it does not name, and nameless ones.

    Shares of a pod that is named are all that count of it: pod resources leave out what only an
    init container holds.
    """
    held = {(one.resource, share) for one in answer.shares for share in one.shares}
    pods = set(answer.pods)
    return tuple(
        grant
        for grant in recorded
        if named.get(grant.uid) not in pods
        and any((grant.resource, share) not in held for share in grant.shares)
    )


def running(pods: Iterable[PodState]) -> dict[str, PodName]:
    """The pods of the node that are not over, by the uid that the kubelet knows."""
    return {pod.runtime_uid: PodName(pod.namespace, pod.name) for pod in pods if not pod.is_over}


def completed(
    answer: NodeHoldings, lacking: Sequence[RecordedGrant], named: Named
) -> tuple[Holding, ...]:
    """What the kubelet told, and what it will tell: `named` are the pods that still run.

    A share is the one's who is told to hold it: of two records the other is older.
    """
    held = {(one.resource, share) for one in answer.shares for share in one.shares}
    pods = set(answer.pods)
    more = []
    for grant in lacking:
        pod = named.get(grant.uid)
        shares = tuple(share for share in grant.shares if (grant.resource, share) not in held)
        if pod and pod not in pods and shares:
            name = (pod.namespace, pod.name, grant.container, grant.resource)
            more.append(Holding(*name, shares))
    return (*answer.shares, *sorted(more, key=lambda one: (one.namespace, one.pod, one.container)))
