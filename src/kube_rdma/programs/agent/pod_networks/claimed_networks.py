"""The networks of a pod that the parameters of its claims name, or describe themselves.

Part of programs/agent/pod_networks/chain. rules/claims/interfaces says which there are; a named one
is read as those of the annotation are, with the resource of the device where its document is tied
to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kube_rdma.model.claims.prepared import ClaimDevice
from kube_rdma.programs.annotated_networks import all_of
from kube_rdma.rules.claims.interfaces import ask_of, own_network

if TYPE_CHECKING:
    from kube_rdma.api.attach.network_definition import NetworkDefinition
    from kube_rdma.programs.agent.pod_networks.node_view import NodeView


async def claimed_definitions(
    devices: Sequence[ClaimDevice], node: NodeView
) -> dict[str, NetworkDefinition]:
    """By namespace/name the networks of these devices; one that is not there is left out.

    Raise Refused for faults of the documents.
    """
    definitions = await all_of(_definition(device, node) for device in devices)
    return {one.network.name: one for one in definitions if one}


async def _definition(device: ClaimDevice, node: NodeView) -> NetworkDefinition | None:
    from kube_rdma.api.attach.network_definition import NetworkDefinition
    from kube_rdma.api.ipam.ip_conf import IpamConf

    if network := own_network(device):
        pools = tuple((None, pool) for pool in network.pools)
        return NetworkDefinition(network, IpamConf(pools=pools))
    ask = ask_of(device)
    return await node.definition(ask.namespace, ask.network, device.share.resource)
