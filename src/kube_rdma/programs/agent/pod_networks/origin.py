"""Which of a pod's networks a meta-plugin's call is about: the configuration does not say it.

First of what programs/agent/pod_networks/delegate asks. The pod's annotation and the document that
it names say to which resource the network is tied: share ids of two resources may be the same, so
without it a `deviceID` could mean the wrong card.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from kube_rdma.model.attachment import NetworkAsk
from kube_rdma.model.cni import Call
from kube_rdma.model.errors import Refused
from kube_rdma.model.pod import PodState


@dataclass(frozen=True, slots=True)
class Origin:
    """The network's name with its namespace, and its resource where it is tied to one.

    `table`: the caller leads what comes from the interface's addresses through this routing table.
    """

    name: str
    resource: str | None = None
    table: int | None = None


class Texts(Protocol):
    """Where networks are described; programs/agent/pod_networks/node_view has the real one."""

    async def written(self, namespace: str, name: str) -> tuple[bytes, str | None] | None:
        """Text and resource of a NetworkAttachmentDefinition; None where there is none."""

    async def configured_text(self, name: str) -> bytes | None:
        """The node's CNI configuration of this name."""


async def origin(call: Call, pod: PodState, texts: Texts) -> Origin:
    """Where a call comes from; raise Unavailable when nobody tells."""
    from kube_rdma.api import called_conf, networks, pod_networks

    annotations = dict(pod.annotations)
    asks: tuple[NetworkAsk, ...] = ()
    with suppress(Refused):  # the caller has understood it
        asks = networks.asks(annotations.get(networks.ANNOTATION, ""), pod.namespace)
    if by_definition := await _of_definition(call, asks, texts):
        return by_definition
    name = f"{pod.namespace}/{call.network}"
    resource = called_conf.resource(call.config)
    for block in called_conf.blocks(annotations.get(pod_networks.ANNOTATION, "")):
        if (block.interface, block.network) == (call.interface, call.network):
            if resource is None and (text := await texts.configured_text(call.network)):
                resource = called_conf.resource(text)
            return Origin(name, resource, block.table)
    return Origin(name, resource)


async def _of_definition(call: Call, asks: Sequence[NetworkAsk], texts: Texts) -> Origin | None:
    """The entry whose network this is, by the name in its configuration.

    The interface alone does not say it: a caller that gives each pod networks of its own besides
    counts those first. Of a deleted document only the interface is left.
    """
    from kube_rdma.api.called_conf import network_name

    documents: dict[str, tuple[bytes, str | None] | None] = {}
    for ask in sorted(asks, key=lambda ask: ask.interface != call.interface):
        name = f"{ask.namespace}/{ask.network}"
        if name not in documents:
            documents[name] = await texts.written(ask.namespace, ask.network)
        if document := documents[name]:
            config, resource = document
            if call.network in (ask.network, network_name(config)):
                return Origin(name, resource or None)
    gone = [name for name, document in documents.items() if document is None]
    mine = [f"{ask.namespace}/{ask.network}" for ask in asks if ask.interface == call.interface]
    return next((Origin(name) for name in mine if name in gone), None)
