"""Plans the migration from whereabouts: IPPools for its ranges, without the addresses in use.

NetworkAttachmentDefinitions say which ranges there are; each compiles to the IPPool that the agent
makes of it too (ipam/ip_conf). Addresses of pods that live are excluded from these pools, since no
agent knows those pods. A later run frees the addresses of pods that have ended by then. A second
run in the same state changes nothing.

The name of a whereabouts pool ends in its range; its network, its node or both may stand before it.
With `node_slice_size` each node has a slice of the range as a pool of its own. A node's name looks
like a network's, so an address is kept in every network of these definitions to which it may
belong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_interface

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, field, replace
from kube_client.kinds import Stored
from kube_rdma.adapters.cluster.kinds.own import DefinitionSpec
from kube_rdma.ipam import ip_conf
from kube_rdma.ipam.rules.blocks import held
from kube_rdma.ipam.rules.subpools import key_of, mask, subpools
from kube_rdma.lib.text.document import Value, of_value
from kube_rdma.lib.text.words import address as read_address
from kube_rdma.model import ipam
from kube_rdma.model.kubernetes import PodState
from kube_rdma_whereabouts.objects import ReservationSpec, WhereaboutsPoolSpec

_UNNAMED = ipam.NetworkName("default")
_OFFSET = re.compile(r"[0-9]{1,39}")  # of an IPv6 range


class AllocatedAddress(Frozen):
    """An address that whereabouts gave to a pod, and where that is recorded."""

    network: ipam.NetworkName
    address: ipam.Address
    pod: str  # namespace/name
    interface: str
    source: str  # the object that says so


class KeptAddress(Frozen):
    """An address that a living pod keeps after the migration, and the pools that exclude it."""

    address: ipam.Address
    network: ipam.NetworkName
    pod: str
    interface: str
    node: ipam.NodeName
    pools: tuple[ipam.PoolName, ...]


class LegacyAddresses(Frozen):
    """IPPools for whereabouts' networks, and its addresses; `faults`: what was not understood."""

    pools: tuple[ipam.IPPool, ...] = ()
    allocated: tuple[AllocatedAddress, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class OwnObjects(Frozen):
    """kube-rdma's pools and blocks, and the addresses that earlier migrations excluded."""

    pools: Mapping[ipam.PoolName, ipam.IPPool] = field(default_factory=dict)
    imported: Mapping[ipam.PoolName, frozenset[ipam.Address]] = field(default_factory=dict)
    blocks: Sequence[ipam.Block] = ()


class PoolChange(Frozen):
    """A pool to create or update, with the addresses of whereabouts' pods excluded from it."""

    pool: ipam.IPPool
    imported: tuple[ipam.Address, ...]
    is_new: bool


class MigrationPlan(Frozen):
    """The changes of a migration from whereabouts.

    `over` has a sentence for each address whose pod has ended, `unmapped` one for each obstacle.
    """

    changes: tuple[PoolChange, ...] = ()
    kept: tuple[KeptAddress, ...] = ()
    over: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read(
    attachments: Iterable[Stored[DefinitionSpec, None]],
    pools: Iterable[Stored[WhereaboutsPoolSpec, None]],
    reservations: Iterable[Stored[ReservationSpec, None]],
) -> LegacyAddresses:
    """Convert network definitions and whereabouts objects to pools, addresses, notes and faults."""
    ours, sliced, notes, faults = _attachments(attachments)
    slicing = [ours[name] for name in sliced]
    allocated: dict[tuple[ipam.NetworkName, ipam.Address], AllocatedAddress] = {}
    for pool in pools:
        for allocation in _allocations(pool, slicing, tuple(ours.values()), faults):
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
    return LegacyAddresses(
        tuple(ours.values()), tuple(allocated.values()), tuple(faults), tuple(notes)
    )


def plan(legacy: LegacyAddresses, pods: Iterable[PodState], present: OwnObjects) -> MigrationPlan:
    """Return the pool changes, the kept addresses, and sentences on ended pods and obstacles."""
    living = {f"{pod.namespace}/{pod.name}": pod for pod in pods if not pod.is_over}
    kept, over, unmapped = [], [], list(legacy.faults)
    compiled = [subpool for pool in legacy.pools for subpool in subpools(pool)]
    takes: dict[ipam.PoolName, set[ipam.Address]] = {pool.name: set() for pool in legacy.pools}
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
        key, bit = key_of(allocation.network, allocation.address)
        pool_names = tuple(
            dict.fromkeys(subpool.pool for subpool in compiled if mask(subpool, key) & bit)
        )
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
                ipam.NodeName(pod.node),
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
    attachments: Iterable[Stored[DefinitionSpec, None]],
) -> tuple[dict[ipam.PoolName, ipam.IPPool], set[ipam.PoolName], list[str], list[str]]:
    """Return the pools that network definitions describe, those split by node, notes and faults."""
    pools: dict[ipam.PoolName, ipam.IPPool] = {}
    sliced: set[ipam.PoolName] = set()
    notes: list[str] = []
    faults: list[str] = []
    for attachment in attachments:
        source = f"NetworkAttachmentDefinition {attachment.namespace}/{attachment.name}"
        try:
            conf = decoded(attachment.spec.config or "{}")
        except Undecodable as error:
            faults.append(f"{source}: spec.config is not JSON: {error.why}")
            continue
        for plugin in _plugins(conf):
            block = plugin.get("ipam")
            if not isinstance(block, dict) or block.get("type") != "whereabouts":
                continue
            try:
                ipam_config = ip_conf.load(of_value(plugin, source))
                if pool := ipam_config.pool:
                    subpools(pool)
                    pools[pool.name] = pool
                    sliced |= {pool.name} if block.get("node_slice_size") else set()
            except Refused as error:
                faults += str(error).splitlines()
                continue
            notes += [f"{source}: {note}" for note in ipam_config.notes]
    return pools, sliced, notes, faults


def _plugins(conf: Value) -> list[dict[str, Value]]:
    """Return the plugins of a CNI configuration, which is one plugin or a list of them."""
    if not isinstance(conf, dict):
        return []
    plugins = conf.get("plugins", [conf])
    return [each for each in plugins if isinstance(each, dict)] if isinstance(plugins, list) else []


def _allocations(
    pool: Stored[WhereaboutsPoolSpec, None],
    sliced: Sequence[ipam.IPPool],
    attached: Sequence[ipam.IPPool],
    faults: list[str],
) -> list[AllocatedAddress]:
    source = f"whereabouts IPPool {pool.name}"
    try:
        first = ip_interface(pool.spec.range)
    except ValueError:
        faults.append(f"{source}: spec.range {pool.spec.range!r} is not a subnet")
        return []
    written = pool.spec.range.replace("/", "-").replace(":", "-")
    if pool.name != written and not pool.name.endswith(f"-{written}"):
        faults.append(f"{source}: the name does not end in that of its range {pool.spec.range}")
        return []
    networks = _networks(pool.name.removesuffix(written)[:-1], first.network, sliced, attached)
    allocations = []
    for offset, allocation in pool.spec.allocations.items():
        # As whereabouts counts: from the address that is written, not from the first of its subnet.
        number = int(first.ip) + int(offset) if _OFFSET.fullmatch(offset) else -1
        if not 0 <= number - int(first.network.network_address) < first.network.num_addresses:
            faults.append(f"{source}: allocation {offset!r} lies outside of {pool.spec.range}")
            continue
        at = first.network[number - int(first.network.network_address)]
        where = f"{source}, allocation {offset}"
        allocations += [
            AllocatedAddress(network, at, allocation.podref, allocation.ifname, where)
            for network in networks
        ]
    return allocations


def _networks(
    prefix: str, subnet: ipam.Subnet, sliced: Sequence[ipam.IPPool], attached: Sequence[ipam.IPPool]
) -> tuple[ipam.NetworkName, ...]:
    """Return the networks that a pool with `prefix` before its range in its name may belong to.

    The prefix may be ``blue``, ``node-1``, ``blue-node-1``, or empty. `sliced` are the attached
    pools that are split by node.
    """
    if not prefix:
        return (_UNNAMED,)
    is_own = any(
        pool.network == prefix and subnet in (one.subnet for one in pool.ranges)
        for pool in attached
    )
    of_nodes = [
        pool.network
        for pool in sliced
        if (pool.network == _UNNAMED or prefix.startswith(f"{pool.network}-"))
        and any(
            subnet.network_address in one.subnet
            and subnet.broadcast_address in one.subnet
            and not (is_own and subnet == one.subnet)  # which is the pool of its own network
            for one in pool.ranges
        )
    ]
    own = [ipam.NetworkName(prefix)] if is_own or not of_nodes else []
    return tuple(dict.fromkeys((*own, *of_nodes)))


def _reservation(
    reservation: Stored[ReservationSpec, None], networks: Iterable[ipam.NetworkName]
) -> AllocatedAddress | None:
    """Return the address in a reservation's name, which one of `networks` may precede, or None."""
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
        name = ipam.NetworkName(network or _UNNAMED)
        return AllocatedAddress(name, at, reservation.spec.podref, reservation.spec.ifname, source)
    return None


def _contested(allocation: AllocatedAddress, blocks: Iterable[ipam.Block]) -> list[str]:
    """Return a sentence if a node of kube-rdma holds the address too: two pods may have it."""
    key, bit = key_of(allocation.network, allocation.address)
    return [
        f"{allocation.address} of pod {allocation.pod} is held by a node in IPBlock {key.name} "
        "too: if another pod has it, delete one of the two"
        for block in blocks
        if block.key == key and held(block) & bit
    ]


def _change(pool: ipam.IPPool, taken: set[ipam.Address], present: OwnObjects) -> PoolChange | None:
    """Return the pool with living pods' addresses excluded; None if it needs no change."""
    current = present.pools.get(pool.name)
    before = present.imported.get(pool.name, frozenset())
    base = current or pool
    # Earlier releases wrote each address alone.
    written = {ipam.Span(each, each) for each in before} | set(_spans(before))
    excludes = [each for each in base.excludes if each not in written]
    imported = sorted(taken, key=lambda each: (each.version, int(each)))
    wanted = replace(base, excludes=(*excludes, *_spans(imported)))
    if current and wanted.excludes == current.excludes and set(imported) == before:
        return None
    return PoolChange(wanted, tuple(imported), is_new=current is None)


def _spans(addresses: Iterable[ipam.Address]) -> list[ipam.Span]:
    """Join neighbouring addresses into spans, since a pool may have only so many excludes."""
    spans: list[ipam.Span] = []
    for address in sorted(addresses, key=lambda each: (each.version, int(each))):
        last = spans[-1].last if spans else None
        if last and (last.version, int(last) + 1) == (address.version, int(address)):
            spans[-1] = ipam.Span(spans[-1].first, address)
        else:
            spans.append(ipam.Span(address, address))
    return spans
