"""What a pod asks for, counted as the kubelet will hold it.

First of the rules of admission: a pod without a share or a network is not looked at further. An
init container's devices are free again before the main ones start, a sidecar's are not.

A share is what an administrator calls so, and every resource that somebody offers: a pool, an
operator's policy, or a network that takes shares of it. So no list has to name the prefixes that
other device plugins use (intel.com, nvidia.com, openshift.io).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_base.frozen import replace
from kube_rdma.model.admission.facts import AdmissionFacts, AdmissionSettings
from kube_rdma.model.admission.pod_template import (
    ContainerRole,
    ContainerTemplate,
    PodTemplate,
    ResourceAsk,
)


def matches(resource: str, patterns: Sequence[str]) -> bool:
    """Whether a resource is one of `patterns`; ``rdma/*`` is every one with this prefix."""
    return resource in patterns or f"{resource.partition('/')[0]}/*" in patterns


def offered(facts: AdmissionFacts) -> tuple[str, ...]:
    """Every resource that the facts name, in order and once."""
    networks = (network.resource for network in facts.networks if network.resource)
    return tuple(dict.fromkeys((*of_pools(facts), *facts.resources, *networks)))


def of_pools(facts: AdmissionFacts) -> tuple[str, ...]:
    """Those of them that kube-rdma itself offers."""
    return tuple(dict.fromkeys(pool.spec.resource for pool in facts.pools))


def with_shares(settings: AdmissionSettings, resources: Iterable[str]) -> AdmissionSettings:
    """The settings with these shares too. A GPU is none, whatever network names it."""
    others = (*settings.gpus, *settings.mgpu)
    named = (one for one in resources if not matches(one, others))
    return replace(settings, shares=(*settings.shares, *named))


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
