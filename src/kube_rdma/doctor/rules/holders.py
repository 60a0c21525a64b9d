"""Which containers of a pod hold RDMA cards, by shares or by claims, and which devices they have.

Below doctor/rules/pod and doctor/rules/use, which judge these containers.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.admission.rules.shares import matches
from kube_rdma.doctor.rules.claimed_cards import pod_cards
from kube_rdma.model.admission.facts import USUAL
from kube_rdma.model.device import Device
from kube_rdma.model.doctor import Observation, ObservedContainer


def is_share(resource: str) -> bool:
    """Whether an extended resource is one of RDMA cards, by its name."""
    return matches(resource, USUAL.shares)


def has_share(container: ObservedContainer) -> bool:
    """Whether a container asks for such a resource."""
    return any(is_share(resource) for resource, _ in container.asks)


def sharing(seen: Observation) -> list[ObservedContainer]:
    """Containers that hold shares, or cards by claims."""
    by_claim = {one.container for one in pod_cards(seen)}
    every = (seen.pod.containers or ()) if seen.pod else ()
    return [one for one in every if has_share(one) or one.name in by_claim]


def devices_of(seen: Observation) -> Iterator[tuple[ObservedContainer, Device]]:
    """The RDMA devices whose doors each container has."""
    survey = seen.pod.survey if seen.pod else None
    for container in sharing(seen):
        for device in survey.devices if survey else ():
            if any(char.path in (container.nodes or ()) for char in device.char_devices):
                yield container, device
