"""What is true in the world, whatever any program believes: which living pod has which address.

Two pods with one address are a breach, an address given again before it rested is one, and so is an
address that its pod's node does not hold. One risk is written down in the decision and left out: a
node that lives although somebody declared it dead keeps its pods, whose addresses may be given
again. What that node grants after it was fenced is no such risk.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kube_rdma.model.ipam import (
    Address,
    Ask,
    ContainerId,
    Lease,
    NetworkName,
    NodeName,
    Owner,
    PoolName,
)
from kube_rdma.rules.ipam.blocks import holds_of
from kube_rdma.rules.ipam.cells import cell_of, mask
from kube_rdma.rules.ipam.grant import Catalog
from kube_rdma.rules.ipam.reclaim import conflicts

from .store import Store

Place = tuple[NetworkName, Address]


class Breach(AssertionError):
    """A promise of IPAM was broken."""


@dataclass
class Pod:
    """A sandbox that lives and has its addresses."""

    ask: Ask
    node: NodeName
    leases: tuple[Lease, ...]
    at_risk: bool = False


@dataclass
class Truth:
    """The living pods, where they live, and when each address was last left."""

    catalog: Catalog
    pods: dict[ContainerId, Pod] = field(default_factory=dict)
    places: dict[Place, ContainerId] = field(default_factory=dict)
    left: dict[Place, tuple[float, Owner | None]] = field(default_factory=dict)
    granted: int = 0
    recalling: Store | None = None  # in the minute after it went back

    def lives(
        self, ask: Ask, node: NodeName, leases: tuple[Lease, ...], now: float, *, risky: bool
    ) -> None:
        """A pod starts with what it was granted; `risky`: by a node that could not know better."""
        known = self.pods.get(ask.container)
        if known:
            if known.leases != leases:
                raise Breach(f"{ask.container} asked again and got {leases}, not {known.leases}")
            return
        for lease in () if risky else leases:
            self._check(ask, node, lease, now)
        for lease in leases:
            if not risky:
                self.places[lease.network, lease.address] = ask.container
        self.pods[ask.container] = Pod(ask, node, leases, at_risk=risky)
        self.granted += len(leases)

    def _check(self, ask: Ask, node: NodeName, lease: Lease, now: float) -> None:
        place = (lease.network, lease.address)
        holder = self.pods.get(self.places.get(place, ContainerId("")))
        if holder and not holder.at_risk:
            raise Breach(
                f"{place} given to {ask.container} on {node}, but {holder.ask.container} on "
                f"{holder.node} has it"
            )
        when, owner = self.left.get(place, (-1e9, None))
        rest = self.catalog[lease.pool][0].rest
        if now - when < rest and (owner is None or owner != lease.owner):
            raise Breach(f"{place} given {now - when:.1f} s after it was left")
        cell, bit = cell_of(*place)
        if not any(mask(zone, cell) & bit for zone in self.catalog[lease.pool]):
            raise Breach(f"{place} is not of pool {lease.pool}")

    def dies(self, container: ContainerId, now: float) -> None:
        """A pod is gone, and its interfaces with it."""
        pod = self.pods.pop(container, None)
        for lease in pod.leases if pod else ():
            place = (lease.network, lease.address)
            if pod and not pod.at_risk and self._is_held(lease, pod):
                self.left[place] = (now, lease.owner)
            if self.places.get(place) == container:
                del self.places[place]

    def _is_held(self, lease: Lease, pod: Pod) -> bool:
        """The node has it, or can still ask it back: in the minute of a recall only the former."""
        if self.recalling is None:
            return True
        cell, bit = cell_of(lease.network, lease.address)
        return bool(holds_of(self.recalling.blocks.get(cell), pod.node) & bit)

    def of(self, node: NodeName) -> list[ContainerId]:
        """The node's living containers."""
        return [container for container, pod in self.pods.items() if pod.node == node]

    def alive(self, owner: Owner) -> bool:
        """A pod of this StatefulSet's place lives."""
        return any(nic.owner == owner for pod in self.pods.values() for nic in pod.ask.nics)

    def fenced(self, node: NodeName) -> None:
        """The node was declared dead; what lives there from before is at risk."""
        for container in self.of(node):
            self.pods[container].at_risk = True

    def recalled(self, store: Store, *, strict: bool) -> None:
        """The minute is over in which all nodes ask back what they have.

        Strict: each could do it. Else what a node could not ask back is at risk from now on.
        """
        for pod in self.pods.values():
            for lease in pod.leases:
                cell, bit = cell_of(lease.network, lease.address)
                if pod.at_risk or holds_of(store.blocks.get(cell), pod.node) & bit:
                    continue
                if strict:
                    raise Breach(f"{pod.node} did not ask back {lease.address}")
                pod.at_risk = True

    def audit(self, store: Store) -> None:
        """Every block has one holder for each address, and each living pod's node is it."""
        for block in store.blocks.values():
            for conflict in conflicts(block):
                raise Breach(str(conflict))
        for pod in self.pods.values():
            for lease in pod.leases:
                cell, bit = cell_of(lease.network, lease.address)
                if not pod.at_risk and not holds_of(store.blocks.get(cell), pod.node) & bit:
                    raise Breach(f"{pod.node} does not hold {lease.address} of a living pod")

    def capacity(self, pool: PoolName) -> int:
        """How many pods with one NIC the pool serves."""
        return self.catalog[pool][0].size
