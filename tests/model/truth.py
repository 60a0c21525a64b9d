"""What is true in the world, whatever any program believes: which living pod has which address.

Two pods with one address are a breach, an address given again during its cool-down is one, and so
is an address that its pod's node does not hold. One risk is written down in the decision and left
out: a node that lives although somebody declared it dead keeps its pods, whose addresses other pods
may get. What that node grants after it was fenced is no such risk.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kube_rdma.ipam.rules.blocks import held_by
from kube_rdma.ipam.rules.grant import Catalog
from kube_rdma.ipam.rules.reclaim import conflicts
from kube_rdma.ipam.rules.subpools import key_of, mask
from kube_rdma.model import ipam

from .store import Store

Place = tuple[ipam.NetworkName, ipam.Address]


class Breach(AssertionError):
    """A promise of IPAM was broken."""


@dataclass
class Pod:
    """A sandbox that lives and has its addresses."""

    request: ipam.AddressRequest
    node: ipam.NodeName
    allocations: tuple[ipam.AddressAllocation, ...]
    at_risk: bool = False


@dataclass
class Truth:
    """The living pods, where they live, and when each address was last left."""

    catalog: Catalog
    pods: dict[ipam.ContainerId, Pod] = field(default_factory=dict)
    places: dict[Place, ipam.ContainerId] = field(default_factory=dict)
    left: dict[Place, tuple[float, ipam.Owner | None]] = field(default_factory=dict)
    granted: int = 0
    recalling: Store | None = None  # in the minute after it went back

    def lives(
        self,
        request: ipam.AddressRequest,
        node: ipam.NodeName,
        allocations: tuple[ipam.AddressAllocation, ...],
        now: float,
        *,
        risky: bool,
    ) -> None:
        """A pod starts with what it was granted; `risky`: by a node that could not know better."""
        known = self.pods.get(request.container)
        if known:
            if known.allocations != allocations:
                was = known.allocations
                raise Breach(f"{request.container} asked again and got {allocations}, not {was}")
            return
        for allocation in () if risky else allocations:
            self._check(request, node, allocation, now)
        for allocation in allocations:
            if not risky:
                self.places[allocation.network, allocation.address] = request.container
        self.pods[request.container] = Pod(request, node, allocations, at_risk=risky)
        self.granted += len(allocations)

    def _check(
        self,
        request: ipam.AddressRequest,
        node: ipam.NodeName,
        allocation: ipam.AddressAllocation,
        now: float,
    ) -> None:
        place = (allocation.network, allocation.address)
        holder = self.pods.get(self.places.get(place, ipam.ContainerId("")))
        if holder and not holder.at_risk:
            raise Breach(
                f"{place} given to {request.container} on {node}, but {holder.request.container} "
                f"on {holder.node} has it"
            )
        when, owner = self.left.get(place, (-1e9, None))
        cooldown = self.catalog[allocation.pool][0].cooldown
        if now - when < cooldown and (owner is None or owner != allocation.owner):
            raise Breach(f"{place} given {now - when:.1f} s after it was left")
        key, bit = key_of(*place)
        if not any(mask(subpool, key) & bit for subpool in self.catalog[allocation.pool]):
            raise Breach(f"{place} is not of pool {allocation.pool}")

        self._check_slice(request, node, allocation)

    def _check_slice(
        self, request: ipam.AddressRequest, node: ipam.NodeName, allocation: ipam.AddressAllocation
    ) -> None:
        """No two nodes give from one slice; its router is in it, and no pod has that address."""
        node_slice = allocation.node_slice
        if node_slice is None:
            return
        if allocation.address not in node_slice or allocation.address == allocation.gateway:
            raise Breach(f"{allocation.address} of {node_slice}, gateway {allocation.gateway}")
        if allocation.gateway and allocation.gateway not in allocation.subnet:
            raise Breach(f"gateway {allocation.gateway} is outside of {allocation.subnet}")
        for pod in self.pods.values():
            place = (allocation.network, node_slice)
            is_same = place in {(a.network, a.node_slice) for a in pod.allocations}
            if is_same and pod.node != node and not pod.at_risk:
                raise Breach(f"{node_slice}: {pod.node} and {node}, for {request.container}")

    def dies(self, container: ipam.ContainerId, now: float) -> None:
        """A pod is gone, and its interfaces with it."""
        pod = self.pods.pop(container, None)
        for allocation in pod.allocations if pod else ():
            place = (allocation.network, allocation.address)
            if pod and not pod.at_risk and self._is_held(allocation, pod):
                self.left[place] = (now, allocation.owner)
            if self.places.get(place) == container:
                del self.places[place]

    def _is_held(self, allocation: ipam.AddressAllocation, pod: Pod) -> bool:
        """The node has it, or can still ask it back: in the minute of a recall only the former."""
        if self.recalling is None:
            return True
        key, bit = key_of(allocation.network, allocation.address)
        return bool(held_by(self.recalling.blocks.get(key), pod.node) & bit)

    def of(self, node: ipam.NodeName) -> list[ipam.ContainerId]:
        """The node's living containers."""
        return [container for container, pod in self.pods.items() if pod.node == node]

    def alive(self, owner: ipam.Owner) -> bool:
        """A pod of this StatefulSet's place lives."""
        return any(nic.owner == owner for pod in self.pods.values() for nic in pod.request.nics)

    def fenced(self, node: ipam.NodeName) -> None:
        """The node was declared dead; what lives there from before is at risk."""
        for container in self.of(node):
            self.pods[container].at_risk = True

    def recalled(self, store: Store, *, strict: bool) -> None:
        """The minute is over in which all nodes ask back what they have.

        Strict: each could do it. Else what a node could not ask back is at risk from now on.
        """
        for pod in self.pods.values():
            for allocation in pod.allocations:
                key, bit = key_of(allocation.network, allocation.address)
                if pod.at_risk or held_by(store.blocks.get(key), pod.node) & bit:
                    continue
                if strict:
                    raise Breach(f"{pod.node} did not ask back {allocation.address}")
                pod.at_risk = True

    def audit(self, store: Store) -> None:
        """Every block has one holder for each address, and each living pod's node is it."""
        for block in store.blocks.values():
            for conflict in conflicts(block):
                raise Breach(str(conflict))
        for pod in self.pods.values():
            for allocation in pod.allocations:
                key, bit = key_of(allocation.network, allocation.address)
                if not pod.at_risk and not held_by(store.blocks.get(key), pod.node) & bit:
                    raise Breach(f"{pod.node} does not hold {allocation.address} of a living pod")

    def capacity(self, pool: ipam.PoolName) -> int:
        """How many pods with one NIC the pool serves."""
        return self.catalog[pool][0].size
