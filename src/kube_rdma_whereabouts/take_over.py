"""Carries out the migration from whereabouts: reads objects, asks the plan, writes the pools.

An annotation of each pool has the addresses that earlier runs excluded for pods of whereabouts. So
the next run can tell them from what people exclude.
"""

from __future__ import annotations

from typing import TypeVar

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.kinds import ObjectKind, Stored, Wanted
from kube_client.objects import Cluster
from kube_client.wire import Unreadable
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam.objects import IPPoolStatus
from kube_rdma.ipam.views import Migration
from kube_rdma.lib.text.words import address
from kube_rdma.model.ipam import IMPORTED, Address, IPPool
from kube_rdma_whereabouts import objects as whereabouts
from kube_rdma_whereabouts.plan import MigrationPlan, OwnObjects, PoolChange, plan, read

S = TypeVar("S")
U = TypeVar("U")


async def take_over(cluster: Cluster, *, is_dry: bool) -> MigrationPlan:
    """Make the migration plan, and carry it out unless `is_dry`; return it.

    Raise Refused for what cannot be read, Unavailable when others have just written a pool.
    """
    legacy = read(
        await _legacy(cluster, DEFINITION),
        await _legacy(cluster, whereabouts.POOL),
        await _legacy(cluster, whereabouts.RESERVATION),
    )
    stored = {entry.name: entry for entry in await cluster.list(kinds.IP_POOL)}
    present = OwnObjects(
        {kinds.pool_of(entry).name: kinds.pool_of(entry) for entry in stored.values()},
        {kinds.pool_of(entry).name: _imported(entry) for entry in stored.values()},
        tuple(kinds.stored_block(entry) for entry in await cluster.list(kinds.IP_BLOCK)),
    )
    pods = [pod_state(pod) for pod in await cluster.list(POD)]
    migration_plan = plan(legacy, pods, present)
    if not is_dry:
        for change in migration_plan.changes:
            await _write(cluster, change, stored.get(change.pool.name))
    return migration_plan


def shown(migration_plan: MigrationPlan) -> Migration:
    """Convert a migration plan to the value that the views print."""
    return Migration(
        tuple((c.pool.name, "create" if c.is_new else "update") for c in migration_plan.changes),
        tuple(
            (
                *(str(each.address), each.network, each.pod, each.interface or "-"),
                *(each.node or "-", ", ".join(each.pools)),
            )
            for each in migration_plan.kept
        ),
        migration_plan.over,
        migration_plan.unmapped,
        migration_plan.notes,
    )


async def _legacy(cluster: Cluster, kind: ObjectKind[S, U]) -> tuple[Stored[S, U], ...]:
    """Return all objects of a kind that another project defines; raise Refused if unreadable."""
    try:
        return await cluster.list(kind)
    except Unreadable:
        raise
    except Refused as error:
        raise Refused(
            f"cannot read {kind.plural}.{kind.group}: {error.problem}",
            remedy="Migrate where whereabouts is installed, as a user who may list what it wrote",
        ) from error


async def _write(
    cluster: Cluster, change: PoolChange, existing: Stored[IPPool, IPPoolStatus] | None
) -> None:
    note = (IMPORTED, ",".join(map(str, change.imported)))
    if existing is None:
        wanted = Wanted(change.pool.name, spec=change.pool, annotations=(note,))
        await cluster.create(kinds.IP_POOL, wanted)
        return
    notes = dict(existing.annotations) | dict((note,))
    changed = replace(existing, spec=change.pool, annotations=tuple(sorted(notes.items())))
    await cluster.replace(kinds.IP_POOL, changed)


def _imported(stored: Stored[IPPool, IPPoolStatus]) -> frozenset[Address]:
    """Return the addresses in a pool's annotation, if it has one; raise Refused for other text."""
    texts = (stored.annotation(IMPORTED) or "").split(",")
    try:
        return frozenset(address(text) for text in texts if text)
    except ValueError as error:
        raise Refused(
            f"the annotation {IMPORTED} holds something that is not an address: {error}",
            remedy="Restore the former value, or remove it and the excludes that it stood for",
            where=f"IPPool {stored.name}",
        ) from None
