"""Decides which specs can be met now, and which have to wait for pods to end.

It stands between the documents (a file, NodePolicies, a node label) and pools/rules/pools. What a
share means must not change while a pod holds one. Its card may sit inside the pod, and share ids
mean other things in another mode. So a resource that changes its mode, `bind` or `attach` waits
until no pod of the node holds any share of kube-rdma. A resource that comes, goes or changes its
cards does not wait.

The spec of a resource is remembered while the agent restarts (agent/changes). It is also remembered
while pods hold shares of a resource that no document names any more. Such a resource may come back
in another mode; that of the node's label comes back after every start. Where nothing is
remembered, share ids that pods hold and that belong to another kind of mode keep the resource from
being offered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kube_base.frozen import Frozen
from kube_rdma.lib.phrases import listed
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import Attach, Bind, Mode, PoolSpec, ShareId
from kube_rdma.pools.rules.holdings import holders
from kube_rdma.pools.rules.modes import terms

_UNKNOWN = "it is known who uses it"
_NOT_WRITTEN = "it can be written down; the log says what is wrong with the journal"
_MODES: Collection[str] = frozenset(Mode)


class PendingPool(Frozen):
    """A pool's spec that waits; `now` is in force meanwhile, None if nothing is offered."""

    now: PoolSpec | None
    wanted: PoolSpec
    until: str

    def __str__(self) -> str:
        """Return a sentence that says why the pool waits, for the log and the node's event."""
        name, source = self.wanted.resource, self.wanted.source
        if self.now is None:
            mode = f"mode {self.wanted.mode} ({source})"
            return f"{name} is not advertised in {mode} until {self.until}"
        before, after = _told_apart(self.now, self.wanted)
        return f"{name} stays in {before}, {after} ({source}) waits until {self.until}"


class ModeChange(Frozen):
    """The replacement of a pool's spec by one of another mode, bind or attach, in force at once."""

    before: PoolSpec
    now: PoolSpec

    def __str__(self) -> str:
        """Return a sentence on the pool before and now, for the log and the node's event."""
        before, after = _told_apart(self.before, self.now)
        return f"{self.now.resource} is in {after} ({self.now.source}) now, it was in {before}"


class StagedPools(Frozen):
    """The pool specs in force, those that wait, and those that were just replaced."""

    specs: tuple[PoolSpec, ...]
    pending: tuple[PendingPool, ...] = ()
    applied: tuple[ModeChange, ...] = ()
    kept: tuple[PoolSpec, ...] = ()  # earlier specs, whose shares pods may hold

    @property
    def remembered(self) -> tuple[PoolSpec, ...]:
        """Return the specs to record and to pass as `now` to the next call of `stage`."""
        return (*self.specs, *self.kept)


def stage(
    now: Sequence[PoolSpec],
    wanted: Sequence[PoolSpec],
    holdings: Sequence[Holding] | None,
    *,
    durable: bool = True,
) -> StagedPools:
    """Return the specs to put in force; `now` are those that the last call `remembered`.

    `holdings` says who holds shares, None if unknown. While a change of mode waits, all other
    changes take effect. If not `durable`, no mode is changed, for the change could not be recorded.
    """
    previous = {spec.resource: spec for spec in now}
    users = {} if holdings is None else holders(holdings)
    changing = [
        spec
        for spec in wanted
        if (before := previous.get(spec.resource)) and _meaning(before) != _meaning(spec)
    ]
    in_use = [pod for name, held in sorted(users.items()) if name in previous for pod in held]
    until = "" if durable else _NOT_WRITTEN  # what a change of mode waits for
    if holdings is None:
        until = _UNKNOWN
    elif in_use:
        until = _ended(in_use)
    strange = _strange(previous, wanted, holdings or ())
    waiting = {spec.resource for spec in changing} if until else set()
    names = {spec.resource for spec in wanted}
    return StagedPools(
        specs=tuple(
            previous[spec.resource] if spec.resource in waiting else spec
            for spec in wanted
            if spec.resource not in strange
        ),
        pending=(
            *(PendingPool(previous[s.resource], s, until) for s in changing if until),
            *(PendingPool(None, s, strange[s.resource]) for s in wanted if s.resource in strange),
        ),
        applied=tuple(ModeChange(previous[s.resource], s) for s in changing if not until),
        kept=tuple(
            spec
            for spec in now
            if spec.resource not in names and (holdings is None or spec.resource in users)
        ),
    )


def _strange(
    previous: Collection[str], wanted: Sequence[PoolSpec], holdings: Sequence[Holding]
) -> dict[str, str]:
    """Return by new resource why it waits: pods hold shares that its spec would not give."""
    new = {spec.resource: spec for spec in wanted if spec.resource not in previous}
    pods: dict[str, list[str]] = {}
    for held in holdings:
        spec = new.get(held.resource)
        if spec and not all(_fits(spec, share) for share in held.shares):
            pods.setdefault(spec.resource, []).append(f"{held.namespace}/{held.pod}")
    return {name: f"{_ended(of)}, which hold shares of another mode" for name, of in pods.items()}


def _ended(pods: Sequence[str]) -> str:
    return f"these pods have ended: {listed(list(dict.fromkeys(pods)))}"


def _meaning(spec: PoolSpec) -> tuple[Mode, Bind, Attach]:
    """Return the mode, `bind` and `attach` of a spec, which decide what its shares mean to pods."""
    row = terms(spec)
    return spec.mode, row.bind, row.attach


def _told_apart(old: PoolSpec, new: PoolSpec) -> tuple[str, str]:
    """Describe two specs of different meaning: by their modes, else by `bind` or `attach`."""
    if old.mode != new.mode:
        return f"mode {old.mode}", f"mode {new.mode}"
    first, second = terms(old), terms(new)
    if first.bind != second.bind:
        return f"mode {old.mode} with bind {first.bind}", f"bind {second.bind}"
    return f"mode {old.mode} with attach {first.attach}", f"attach {second.attach}"


def _fits(spec: PoolSpec, share: ShareId) -> bool:
    """Decide whether a share of this spec could have this id, whatever its cards and count.

    An id with neither a mode nor a card is of another device plugin, or of a pool with `bare_ids`.
    Its pods may use any card, so it fits no mode that owns its cards.
    """
    row = terms(spec)
    head, _, slot = share.rpartition("-")
    numbered = slot.isdecimal() and head != ""
    if numbered and head in _MODES:
        return row.bind is Bind.POOL and head == spec.mode
    if not any(mark in share for mark in ":.@"):  # every card's id has one of them
        return not row.owns
    if row.bind is Bind.POOL or numbered is not row.numbered:
        return False
    return row.most is None or not numbered or int(slot) < row.most
