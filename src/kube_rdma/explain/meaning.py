"""Says what a pod's annotations mean, whatever source has the documents that they name.

networks.py hands in the documents of a cluster, recorded.py the documents of files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.attach import annotated_networks
from kube_rdma.attach.rules import requests
from kube_rdma.attach.rules.claim_networks import ask_of, with_claims
from kube_rdma.explain.rules.claims import claimed_devices
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.explain import PodEvidence
from kube_rdma.model.finding import Finding, Stage
from kube_rdma.model.kubernetes import PodState

_OTHERS = (requests.ANNOTATION, requests.POD_NETWORKS_DEFINITION)


class ListedNetworks(annotated_networks.NamedNetworks, Protocol):
    """A source of networks by name, which can also list the names."""

    async def others(self, namespaces: Iterable[str]) -> tuple[str, ...]:
        """Return the names of networks that can be listed: of all namespaces, else of these."""


async def with_meaning(
    evidence: PodEvidence,
    documents: ListedNetworks,
    reader: PartReader,
    global_namespaces: Collection[str] | None = None,
) -> PodEvidence:
    """Return the evidence with the networks that the pod asks for; raise nothing.

    `global_namespaces` is as for annotated_networks.meant. Refusals are in the returned evidence.
    Parts that could not be read are also noted with the reader.
    """
    seen = evidence
    template = evidence.template
    pod = PodState(
        template.namespace,
        template.name,
        "",
        template.annotations,
        host_network=template.host_network,
        init_containers=template.init_containers,
    )
    try:
        if evidence.phase == "Pending":  # else a policy may add them yet, or it had no ADD
            requests.refuse_unmeasured(pod)
        asked = _asking(template, pod)
        seen = replace(seen, asks=asked.asks)
        requests.refuse_host_network(pod, asked.asks, asked.annotation)
        asks, definitions = await annotated_networks.meant(asked, documents, global_namespaces)
        devices = claimed_devices(evidence)
        of_claims = tuple(map(ask_of, devices))
        requests.refuse_isolated(asked.namespace, of_claims, global_namespaces)
        definitions |= await annotated_networks.claimed_definitions(devices, documents)
        asks = with_claims(asks, of_claims) if devices else asks
    except Refused as error:
        return replace(seen, misread=Finding.of_refused(error, Stage.AGENT))
    except Unavailable as error:
        reader.keep("the networks", error)
        return replace(seen, unread=True)
    brought = {one.ipam.pool.name: one.ipam.pool for one in definitions.values() if one.ipam.pool}
    others: tuple[str, ...] = ()
    networks = {one.network.name: one.network for one in definitions.values()}
    if any(f"{one.namespace}/{one.network}" not in networks for one in asks):
        others = await documents.others(dict.fromkeys(one.namespace for one in asks))
    return replace(
        seen,
        asks=asks,
        networks=tuple(networks.values()),
        other_networks=others,
        ip_pools={**brought, **seen.ip_pools},
    )


def _asking(template: PodTemplate, pod: PodState) -> annotated_networks.AnnotatedNetworks:
    """Return the networks that a pod's annotations ask for, read as the agent reads them.

    The name of the cluster's own network is not known here.
    """
    annotations = dict(template.annotations)
    alone = not any(annotations.get(key, "").strip() for key in _OTHERS)
    if template.blocks is not None and alone and not template.faults:
        return annotated_networks.AnnotatedNetworks(
            requests.POD_NETWORKS, template.blocks, template.namespace
        )
    return annotated_networks.asking(pod, "")
