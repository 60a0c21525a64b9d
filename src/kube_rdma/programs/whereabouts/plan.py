"""From whereabouts to kube-rdma: its pools are made again, and what its pods have stays theirs.

The attachments say which ranges there are; each compiles to the IPPool that the same configuration
will mean to the agent (api/ip_conf). Addresses of pods that live are excluded from these pools,
since no agent knows those pods: nobody gives such an address away, however long it lasts.
Done again, the addresses of pods that have ended come free. The same twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network

import msgspec

from kube_rdma.adapters.cluster.kinds import Stored
from kube_rdma.adapters.cluster.whereabouts import (
    AttachmentSpec,
    ReservationSpec,
    WhereaboutsPoolSpec,
)
from kube_rdma.api import ip_conf
from kube_rdma.api.document import Value
from kube_rdma.api.ip_words import address as read_address
from kube_rdma.api.object_document import of_value
from kube_rdma.model.errors import Refused
from kube_rdma.model.ip import Address, Block, IPPool, NetworkName, NodeName, PoolName, Span
from kube_rdma.model.pod import PodState
from kube_rdma.rules.ipam.blocks import held
from kube_rdma.rules.ipam.cells import cell_of, mask, zones

_UNNAMED = NetworkName("default")
_OVER = frozenset(("Succeeded", "Failed"))


@dataclass(frozen=True, slots=True)
class Allocated:
    """An address that whereabouts gave."""

    network: NetworkName
    address: Address
    pod: str  # namespace/name
    interface: str
    source: str  # the object that says so


@dataclass(frozen=True, slots=True)
class KeptAddress:
    """An address that stays with its pod, and so is given to nobody else."""

    address: Address
    network: NetworkName
    pod: str
    interface: str
    node: NodeName
    pools: tuple[PoolName, ...]


@dataclass(frozen=True, slots=True)
class Legacy:
    """What was read; `faults` are sentences about what was not understood."""

    pools: tuple[IPPool, ...] = ()
    allocated: tuple[Allocated, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Present:
    """What kube-rdma has already: pools, what earlier migrations excluded from each, blocks."""

    pools: Mapping[PoolName, IPPool] = field(default_factory=dict)
    imported: Mapping[PoolName, frozenset[Address]] = field(default_factory=dict)
    blocks: Sequence[Block] = ()


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A pool to write, and the addresses that are excluded from it for pods of whereabouts."""

    pool: IPPool
    imported: tuple[Address, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What the migration does. Sentences: `over` needs no care any more, `unmapped` needs some."""

    changes: tuple[PoolChange, ...] = ()
    kept: tuple[KeptAddress, ...] = ()
    over: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read(
    attachments: Iterable[Stored[AttachmentSpec, None]],
    pools: Iterable[Stored[WhereaboutsPoolSpec, None]],
    reservations: Iterable[Stored[ReservationSpec, None]],
) -> Legacy:
    """All that whereabouts left, as values."""
    ours, notes, faults = _attachments(attachments)
    allocated: dict[tuple[NetworkName, Address], Allocated] = {}
    for pool in pools:
        for allocation in _allocations(pool, faults):
            allocated.setdefault((allocation.network, allocation.address), allocation)
    networks = {one.network for one in ours.values()} | {
        each.network for each in allocated.values()
    }
    for reservation in reservations:
        reserved = _reservation(reservation, networks)
        if reserved:
            allocated.setdefault((reserved.network, reserved.address), reserved)
        else:
            faults.append(f"OverlappingRangeIPReservation {reservation.name} names no IP address")
    return Legacy(tuple(ours.values()), tuple(allocated.values()), tuple(faults), tuple(notes))


def plan(legacy: Legacy, pods: Iterable[PodState], present: Present) -> MigrationPlan:
    """What to do; pure."""
    living = {f"{pod.namespace}/{pod.name}": pod for pod in pods if pod.phase not in _OVER}
    kept, over, unmapped = [], [], list(legacy.faults)
    compiled = [zone for pool in legacy.pools for zone in zones(pool)]
    takes: dict[PoolName, set[Address]] = {pool.name: set() for pool in legacy.pools}
    for allocation in sorted(
        legacy.allocated, key=lambda each: (each.network, each.address.packed)
    ):
        pod = living.get(allocation.pod)
        what = f"{allocation.address} of network {allocation.network}"
        if pod is None:
            over.append(
                f"{what} was of pod {allocation.pod or '(no name)'}, which no longer exists"
            )
            continue
        cell, bit = cell_of(allocation.network, allocation.address)
        pool_names = tuple(dict.fromkeys(zone.pool for zone in compiled if mask(zone, cell) & bit))
        if not pool_names:
            unmapped.append(
                f"{what} of pod {allocation.pod} is in no range of an attachment "
                f"({allocation.source})"
            )
            continue
        for name in pool_names:
            takes[name].add(allocation.address)
        kept.append(
            KeptAddress(
                allocation.address,
                allocation.network,
                allocation.pod,
                allocation.interface,
                NodeName(pod.node),
                pool_names,
            )
        )
        unmapped += _contested(allocation, present.blocks)
    changes = [_change(pool, takes[pool.name], present) for pool in legacy.pools]
    return MigrationPlan(
        tuple(change for change in changes if change),
        tuple(kept),
        tuple(over),
        tuple(unmapped),
        legacy.notes,
    )


def _attachments(
    attachments: Iterable[Stored[AttachmentSpec, None]],
) -> tuple[dict[PoolName, IPPool], list[str], list[str]]:
    pools: dict[PoolName, IPPool] = {}
    notes: list[str] = []
    faults: list[str] = []
    for attachment in attachments:
        source = f"NetworkAttachmentDefinition {attachment.namespace}/{attachment.name}"
        try:
            conf = msgspec.json.decode(attachment.spec.config or "{}")
        except msgspec.DecodeError as error:
            faults.append(f"{source}: spec.config is not JSON: {error}")
            continue
        for plugin in _plugins(conf):
            if not _is_whereabouts(plugin):
                continue
            try:
                ipam_config = ip_conf.load(of_value(plugin, source))
                if ipam_config.pool:
                    zones(ipam_config.pool)
                    pools[ipam_config.pool.name] = ipam_config.pool
            except Refused as error:
                faults += str(error).splitlines()
                continue
            notes += [f"{source}: {note}" for note in ipam_config.notes]
    return pools, notes, faults


def _plugins(conf: Value) -> list[dict[str, Value]]:
    """A configuration is one plugin, or a list of them."""
    if not isinstance(conf, dict):
        return []
    plugins = conf.get("plugins", [conf])
    return [each for each in plugins if isinstance(each, dict)] if isinstance(plugins, list) else []


def _is_whereabouts(plugin: Mapping[str, Value]) -> bool:
    ipam = plugin.get("ipam")
    return isinstance(ipam, dict) and ipam.get("type") == "whereabouts"


def _allocations(pool: Stored[WhereaboutsPoolSpec, None], faults: list[str]) -> list[Allocated]:
    source = f"whereabouts IPPool {pool.name}"
    try:
        subnet = ip_network(pool.spec.range, strict=False)
    except ValueError:
        faults.append(f"{source}: spec.range {pool.spec.range!r} is not a subnet")
        return []
    written = pool.spec.range.replace("/", "-").replace(":", "-")
    if pool.name == written:
        network = _UNNAMED
    elif pool.name.endswith(f"-{written}"):
        network = NetworkName(pool.name.removesuffix(f"-{written}"))
    else:
        faults.append(
            f"{source}: the name is not that of range {pool.spec.range}; slices of nodes are not "
            "migrated"
        )
        return []
    allocations = []
    for offset, allocation in pool.spec.allocations.items():
        distance = int(offset) if offset.isdecimal() else subnet.num_addresses
        if distance >= subnet.num_addresses:
            faults.append(f"{source}: allocation {offset!r} lies outside of {pool.spec.range}")
            continue
        at = subnet[distance]
        where = f"{source}, allocation {offset}"
        allocations.append(Allocated(network, at, allocation.podref, allocation.ifname, where))
    return allocations


def _reservation(
    reservation: Stored[ReservationSpec, None], networks: Iterable[NetworkName]
) -> Allocated | None:
    """The address in a reservation's name; behind the longest network's name that fits."""
    source = f"OverlappingRangeIPReservation {reservation.name}"
    for network in ("", *sorted(networks, key=len, reverse=True)):
        prefix = f"{network}-" if network else ""
        text = reservation.name.removeprefix(prefix)
        if not reservation.name.startswith(prefix):
            continue
        try:
            at = read_address(text if "." in text else text.replace("-", ":"))
        except ValueError:
            continue
        name = NetworkName(network or _UNNAMED)
        return Allocated(name, at, reservation.spec.podref, reservation.spec.ifname, source)
    return None


def _contested(allocation: Allocated, blocks: Iterable[Block]) -> list[str]:
    """Addresses that nodes hold already: perhaps a second pod has them."""
    cell, bit = cell_of(allocation.network, allocation.address)
    return [
        f"{allocation.address} of pod {allocation.pod} is held by a node in IPBlock {cell.name} "
        "too: if another pod has it, delete one of the two"
        for block in blocks
        if block.cell == cell and held(block) & bit
    ]


def _change(pool: IPPool, taken: set[Address], present: Present) -> PoolChange | None:
    """The pool without the addresses of living pods; None when it is so already."""
    current = present.pools.get(pool.name)
    before = present.imported.get(pool.name, frozenset())
    base = current or pool
    lone = {Span(each, each) for each in before}
    excludes = [each for each in base.excludes if each not in lone]
    imported = sorted(taken, key=lambda each: (each.version, int(each)))
    wanted = replace(base, excludes=(*excludes, *(Span(each, each) for each in imported)))
    if current and wanted.excludes == current.excludes and set(imported) == before:
        return None
    return PoolChange(wanted, tuple(imported), is_new=current is None)
