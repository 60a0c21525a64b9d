"""What the fake kubelet knows of devices: which there are, who holds them, which one to give next.

Follows devicesToAllocate and its neighbours in pkg/kubelet/cm/devicemanager (Kubernetes 1.36).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kube_rdma.adapters.kubelet.device_plugin import HEALTHY
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """A container of a pod, with the NUMA nodes that the topology manager chose (`affinity`)."""

    pod: str = "pod"
    container: str = "c"
    namespace: str = "default"
    affinity: tuple[int, ...] | None = None
    uid: str = "uid"  # the pod's


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of a GetPreferredAllocation call that the kubelet makes."""

    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int


Prefer = Callable[[Question], Awaitable[Sequence[str]]]


@dataclass
class Devices:
    """The fake device manager's state: devices by resource, and those that containers hold.

    What containers hold outlives a restart, as do the names of registered resources: the
    checkpoint has them.
    """

    devices: dict[str, dict[str, bool]] = field(default_factory=dict)  # id -> healthy
    nodes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)  # id -> NUMA nodes
    holdings: dict[tuple[ContainerPlace, str], tuple[str, ...]] = field(default_factory=dict)
    init: set[ContainerPlace] = field(
        default_factory=set
    )  # init containers, whose devices are used again
    registered: set[str] = field(default_factory=set)  # resources that were ever offered

    def receive(self, resource: str, state: pb.ListAndWatchResponse) -> None:
        """Store the list that a plugin sent as all devices of the resource."""
        self.registered.add(resource)
        self.devices[resource] = {d.ID: d.health == HEALTHY for d in state.devices}
        self.nodes[resource] = {
            d.ID: tuple(node.ID for node in d.topology.nodes) for d in state.devices
        }

    def checkpoint(self) -> str:
        """Return the device manager's checkpoint file as text, without a valid checksum."""
        entries = [
            {
                "PodUID": place.uid,
                "ContainerName": place.container,
                "ResourceName": resource,
                "DeviceIDs": {"-1": list(names)},
                "AllocResp": "",
            }
            for (place, resource), names in self.holdings.items()
        ]
        names = {resource: self.healthy(resource) for resource in sorted(self.registered)}
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": names}
        return json.dumps({"Data": data, "Checksum": 0})

    def lose(self, resource: str) -> None:
        """Mark all devices of a resource unhealthy, as when its plugin is gone."""
        self.devices[resource] = dict.fromkeys(self.devices.get(resource, ()), False)

    def restart(self) -> None:
        """Forget all lists of devices; registrations and holdings stay, as in the checkpoint."""
        self.devices.clear()

    def healthy(self, resource: str) -> list[str]:
        """Return the healthy devices of a resource, allocated or not."""
        return [name for name, healthy in self.devices.get(resource, {}).items() if healthy]

    def held(self, resource: str) -> set[str]:
        """Return the devices of a resource that containers hold."""
        return {
            name for (_, held), names in self.holdings.items() if held == resource for name in names
        }

    def available(self, resource: str) -> tuple[str, ...]:
        """Return healthy devices that no container holds; raise RuntimeError if none is healthy."""
        if resource not in self.registered:
            raise RuntimeError(f"cannot allocate unregistered device {resource}")
        if not (healthy := self.healthy(resource)):
            raise RuntimeError(f"no healthy devices present; cannot allocate {resource}")
        held = self.held(resource)
        return tuple(name for name in healthy if name not in held)

    def reusable(self, resource: str, place: ContainerPlace) -> tuple[str, ...]:
        """Return the devices of the pod's init containers that none of its containers has yet."""
        pod = [
            (other, names)
            for (other, of), names in self.holdings.items()
            if of == resource and (other.namespace, other.pod) == (place.namespace, place.pod)
        ]
        taken = {name for other, names in pod if other not in self.init for name in names}
        free = (name for other, names in pod if other in self.init for name in names)
        return tuple(dict.fromkeys(name for name in free if name not in taken))

    def aligned(
        self, resource: str, available: Sequence[str], place: ContainerPlace
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the devices near the container's NUMA nodes, and the others by preference.

        Without an affinity, or when no device of the resource names a node, none is near.
        """
        nodes = self.nodes.get(resource, {})
        if place.affinity is None or not any(nodes.values()):
            return (), tuple(available)
        near = tuple(d for d in available if set(nodes.get(d, ())) & set(place.affinity))
        far = tuple(d for d in available if nodes.get(d) and d not in near)
        nowhere = tuple(d for d in available if not nodes.get(d))
        return near, far + nowhere


async def choose(
    devices: Devices, resource: str, place: ContainerPlace, count: int, prefer: Prefer
) -> tuple[str, ...]:
    """Choose devices for a container; raise RuntimeError if the device manager would give up.

    Devices of the pod's init containers come first. `prefer` makes the GetPreferredAllocation call.
    It is not called where those devices are enough, or just enough with all near the container's
    NUMA nodes.
    """
    reused = devices.reusable(resource, place)
    chosen = list(reused[:count])

    def take(names: Iterable[str]) -> bool:
        missing = (name for name in names if name not in chosen)
        chosen.extend(islice(missing, count - len(chosen)))
        return len(chosen) == count

    if len(chosen) == count:
        return tuple(chosen)
    available = devices.available(resource)
    if len(available) < count - len(chosen):
        raise RuntimeError(f"requested {count} of {resource}, available {len(available)}")
    near, others = devices.aligned(resource, available, place)
    if count - len(chosen) < len(near):
        available = others = near
    elif take(near):
        return tuple(chosen)
    question = Question((*available, *(c for c in chosen if c not in available)), (*chosen,), count)
    # A plugin may answer something else than it was asked for: only what was offered counts.
    if not take(name for name in await prefer(question) if name in available):
        take(others)
    return tuple(chosen)
