"""What a pod asks for, counted as the kubelet will hold it.

First of the rules of admission: a pod without a share or a network is not looked at further. An
init container's devices are free again before the main ones start, a sidecar's are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.model.admission.pod_template import (
    ContainerRole,
    ContainerTemplate,
    PodTemplate,
    ResourceAsk,
)


def matches(resource: str, patterns: Sequence[str]) -> bool:
    """Whether a resource is one of `patterns`; ``rdma/*`` is every one with this prefix."""
    return resource in patterns or f"{resource.partition('/')[0]}/*" in patterns


def asked(
    template: PodTemplate, patterns: Sequence[str]
) -> Iterator[tuple[ContainerTemplate, ResourceAsk]]:
    """Each wish for at least one of these resources, with the container that has it."""
    for container in template.containers:
        for ask in container.asks:
            if ask.count > 0 and matches(ask.resource, patterns):
                yield container, ask


def held(template: PodTemplate, resource: str) -> int:
    """How many of a resource the pod holds when it runs, or while the greediest init runs."""
    beside, most = 0, 0
    for container in template.containers:
        count = sum(ask.count for ask in container.asks if ask.resource == resource)
        if container.role is ContainerRole.INIT:
            most = max(most, count)
        else:
            beside += count
    return beside or most
