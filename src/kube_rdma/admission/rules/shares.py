"""Counts the shares that a pod asks for, as the kubelet will hold them.

Most rules of admission judge only pods that ask for shares, or have the annotation pod-networks. An
init container's devices are free again before the main ones start; a sidecar's are not.

A resource means shares if an administrator says so, or if it is not of GPUs and a known pool,
policy or network names it. So no list has to name the prefixes that other device plugins use
(intel.com, nvidia.com, openshift.io).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules.requests import RESOURCE
from kube_rdma.model import admission
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.pools import Bind, Mode, PoolSpec, Serving
from kube_rdma.pools.rules.labels import MODE
from kube_rdma.pools.rules.modes import terms


def matches(resource: str, patterns: Sequence[str]) -> bool:
    """Decide whether `patterns` contain a resource; ``rdma/*`` matches all of this prefix."""
    return resource in patterns or f"{resource.partition('/')[0]}/*" in patterns


def offered(facts: admission.AdmissionFacts) -> tuple[str, ...]:
    """Return the resources that known pools, policies and networks name, in order and once."""
    networks = (network.resource for network in facts.networks if network.resource)
    return tuple(dict.fromkeys((*of_pools(facts), *facts.resources, *networks)))


def of_pools(facts: admission.AdmissionFacts) -> tuple[str, ...]:
    """Return the resources of the known pools of kube-rdma, in order and once."""
    return tuple(dict.fromkeys(pool.spec.resource for pool in facts.pools))


def with_shares(
    settings: admission.AdmissionSettings, resources: Iterable[str]
) -> admission.AdmissionSettings:
    """Return settings in which these resources count as shares too, except those of GPUs."""
    others = (*settings.gpus, *settings.mgpu)
    named = (one for one in resources if not matches(one, others))
    return replace(settings, shares=(*settings.shares, *named))


_QUOTAS = ("requests.", "count/")
_OF_KUBERNETES = ("k8s.io", "kubernetes.io")  # as of storage classes and device classes


def uncounted(key: str) -> str:
    """Return what to write in place of a ResourceQuota's key that has no effect; "" for others.

    Of an extended resource a quota counts requests alone: isExtendedResourceNameForQuota in
    kubernetes@v1.34 pkg/quota/v1/evaluator/core/pods.go. The API server takes other keys too.
    """
    resource = key.removeprefix("limits.")
    prefix = resource.partition("/")[0]
    counts = "/" not in resource or resource.startswith(_QUOTAS)
    return "" if counts or prefix.endswith(_OF_KUBERNETES) else f"requests.{resource}"


def asked(
    template: admission.PodTemplate, patterns: Sequence[str]
) -> Iterator[tuple[admission.ContainerTemplate, admission.ResourceAsk]]:
    """Yield each container's request for at least one share of these resources."""
    for container in template.containers:
        for ask in container.asks:
            if ask.count > 0 and matches(ask.resource, patterns):
                yield container, ask


class PodReview(Frozen):
    """The input of a rule: a pod, what is known of its cluster, and the settings."""

    pod: admission.PodTemplate
    facts: admission.AdmissionFacts
    settings: admission.AdmissionSettings

    @property
    def shares(self) -> Iterator[tuple[admission.ContainerTemplate, admission.ResourceAsk]]:
        """Return the pod's requests for shares, each with its container."""
        return asked(self.pod, self.settings.shares)


def held_shares(template: admission.PodTemplate, resource: str) -> int:
    """Return how many shares of a resource the pod's containers hold together.

    If only init containers ask, return the most that one of them holds.
    """
    beside, most = 0, 0
    for container in template.containers:
        count = sum(ask.count for ask in container.asks if ask.resource == resource)
        if container.role is admission.ContainerRole.INIT:
            most = max(most, count)
        else:
            beside += count
    return beside or most


# The mode that a pod's cards will have, where its selector or affinity leaves no choice.

_MODES = frozenset(Mode)
_LAYERS = {"ether": LinkLayer.ETHERNET, "infiniband": LinkLayer.INFINIBAND}


def possible(template: admission.PodTemplate, label: str) -> frozenset[str] | None:
    """Return the possible values of a label of the pod's node.

    Return None where they are not restricted.
    """
    values = [frozenset((value,)) for key, value in template.selector if key == label]
    choices = [
        [frozenset(demand.values) for demand in demands if demand.label == label]
        for demands in template.alternatives
    ]
    if choices and all(choices):
        values.append(frozenset().union(*(_common(choice) for choice in choices)))
    return _common(values) if values else None


def candidates(
    template: admission.PodTemplate, resource: str, facts: admission.AdmissionFacts
) -> tuple[admission.OfferedPool, ...]:
    """Return the pools of a resource that may be on the pod's node, by its labels."""
    return tuple(
        pool
        for pool in facts.pools
        if pool.spec.resource == resource and not _elsewhere(template, pool)
    )


def is_shared(spec: PoolSpec) -> bool:
    """Decide whether pods with networks of their own share each card by the device plugin."""
    row = terms(spec)
    shares_cards = row.bind is Bind.PER_CARD and not row.owns
    return shares_cards and not spec.host_network and spec.serve is not Serving.CLAIMS


def layers_of(pool: admission.OfferedPool) -> frozenset[LinkLayer]:
    """Return the link layers of a pool's cards; empty if they are not known."""
    ports = [port for card in pool.cards for device in card.devices for port in device.ports]
    layers = [port.link_layer for port in ports]
    for selector in pool.spec.selectors if not pool.cards else ():
        if not selector.link_types and not {"efa"} & {*selector.drivers}:
            return frozenset()
        layers += [_LAYERS.get(word, LinkLayer.UNKNOWN) for word in selector.link_types or ("",)]
    return frozenset(layers)


def fixed_mode(
    template: admission.PodTemplate, resource: str, facts: admission.AdmissionFacts
) -> Mode | None:
    """Return the mode of all cards that the pod can get of a resource; None if it is not certain.

    A label with the mode is believed. Otherwise one of the pools must surely be on the pod's nodes,
    and no other may have a different mode.
    """
    labels = (admission.VKE_LABEL, MODE) if resource == RESOURCE else (MODE,)
    for label in labels:
        values = possible(template, label)
        if values is not None:
            return Mode(*values) if len(values) == 1 and values <= _MODES else None
    pools = candidates(template, resource, facts)
    modes = {pool.spec.mode for pool in pools}
    sure = any(_selected(template, pool.selector) for pool in pools)
    return modes.pop() if sure and len(modes) == 1 else None


def _elsewhere(template: admission.PodTemplate, pool: admission.OfferedPool) -> bool:
    """Decide whether the pod's node cannot have the labels of the pool."""
    for label, value in pool.selector:
        values = possible(template, label)
        if values is not None and value not in values:
            return True
    return False


def _selected(template: admission.PodTemplate, selector: tuple[tuple[str, str], ...]) -> bool:
    """Decide whether every possible node of the pod has these labels."""
    return all(possible(template, label) == frozenset((value,)) for label, value in selector)


def _common(choices: list[frozenset[str]]) -> frozenset[str]:
    """Return the values that are in all of the sets."""
    return frozenset.intersection(*choices)
