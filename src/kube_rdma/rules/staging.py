"""Which wishes can be met now and which have to wait for pods to end.

Between the documents (a ConfigMap, a node label) and rules/pools. What a share is must not change
below a pod that holds one: its card may sit inside the pod, and share ids mean other things in
another mode. So a resource that changes its mode waits until no pod of the node holds any share of
ours; what comes, goes or changes its cards does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kube_rdma.model.pool import PoolSpec
from kube_rdma.rules.modes import terms
from kube_rdma.rules.sentences import listed


@dataclass(frozen=True, slots=True)
class Pending:
    """A wish that waits; `holders` are the pods, as namespace/name, that it waits for."""

    now: PoolSpec
    wanted: PoolSpec
    holders: tuple[str, ...]

    def __str__(self) -> str:
        """One sentence for the log and the node's event."""
        change = f"{self.wanted.resource} stays in mode {self.now.mode}"
        pods = listed(self.holders)
        waits = f"until these pods have ended: {pods}" if pods else "until it is known who uses it"
        return f"{change}, mode {self.wanted.mode} ({self.wanted.source}) waits {waits}"


@dataclass(frozen=True, slots=True)
class Stage:
    """What holds now and what waits."""

    specs: tuple[PoolSpec, ...]
    pending: tuple[Pending, ...]


def stage(
    now: Sequence[PoolSpec], wanted: Sequence[PoolSpec], holders: Mapping[str, Sequence[str]] | None
) -> Stage:
    """The wishes to meet, `now` being those that are met.

    `holders` says by resource which pods hold shares of it, None that nobody can tell. While a
    change of mode waits, everything else that was wanted is met already.
    """
    known = {spec.resource: spec for spec in now}
    ours = {spec.resource for spec in now}
    changing = [s for s in wanted if s.resource in known and _another(known[s.resource], s)]
    pods = tuple(
        dict.fromkeys(
            pod for name, held in sorted((holders or {}).items()) if name in ours for pod in held
        )
    )
    if not changing or (holders is not None and not pods):
        return Stage(tuple(wanted), ())
    waiting = {spec.resource for spec in changing}
    return Stage(
        tuple(known[s.resource] if s.resource in waiting else s for s in wanted),
        tuple(Pending(known[spec.resource], spec, pods) for spec in changing),
    )


def _another(now: PoolSpec, wanted: PoolSpec) -> bool:
    """Whether shares of the two mean different things."""
    before, after = terms(now), terms(wanted)
    return (now.mode, before.bind, before.attach) != (wanted.mode, after.bind, after.attach)
