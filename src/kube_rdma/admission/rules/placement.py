"""Which mode a pod's cards will have, where its selector or affinity leaves no choice.

The mode belongs to the node, which is not chosen when a pod is admitted. So a rule about a mode
holds at admission only for a pod that can run on no node of another one.
"""

from __future__ import annotations

from kube_rdma.attach.rules.requests import RESOURCE
from kube_rdma.model.admission.facts import AdmissionFacts, OfferedPool
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.pools.pool import Mode
from kube_rdma.pools.rules.labels.table import MODE

VKE_LABEL = "vke.node.rdma.mode"
"""By which VKE says how its nodes give their cards; pools/documents/node_label reads it."""

_MODES = frozenset(Mode)


def possible(template: PodTemplate, label: str) -> frozenset[str] | None:
    """The values that a label of the pod's node can have; None where the pod does not say."""
    values = [frozenset((value,)) for key, value in template.selector if key == label]
    choices = [
        [frozenset(demand.values) for demand in demands if demand.label == label]
        for demands in template.alternatives
    ]
    if choices and all(choices):
        values.append(frozenset().union(*(_common(choice) for choice in choices)))
    return _common(values) if values else None


def candidates(
    template: PodTemplate, resource: str, facts: AdmissionFacts
) -> tuple[OfferedPool, ...]:
    """The pools of a resource on whose nodes the pod may run."""
    return tuple(
        pool
        for pool in facts.pools
        if pool.spec.resource == resource and not _elsewhere(template, pool)
    )


def fixed_mode(template: PodTemplate, resource: str, facts: AdmissionFacts) -> Mode | None:
    """The mode of every card that the pod can get of a resource, None where there are several.

    A label that says the mode is believed; else one of the pools has to be on the pod's nodes for
    sure, and no other may differ.
    """
    labels = (VKE_LABEL, MODE) if resource == RESOURCE else (MODE,)
    for label in labels:
        values = possible(template, label)
        if values is not None:
            return Mode(*values) if len(values) == 1 and values <= _MODES else None
    pools = candidates(template, resource, facts)
    modes = {pool.spec.mode for pool in pools}
    sure = any(_selected(template, pool.selector) for pool in pools)
    return modes.pop() if sure and len(modes) == 1 else None


def _elsewhere(template: PodTemplate, pool: OfferedPool) -> bool:
    """Whether the pod can run on no node with the labels of the pool."""
    for label, value in pool.selector:
        values = possible(template, label)
        if values is not None and value not in values:
            return True
    return False


def _selected(template: PodTemplate, selector: tuple[tuple[str, str], ...]) -> bool:
    """Whether each node on which the pod can run has these labels."""
    return all(possible(template, label) == frozenset((value,)) for label, value in selector)


def _common(choices: list[frozenset[str]]) -> frozenset[str]:
    """What all of them allow."""
    return frozenset.intersection(*choices)
