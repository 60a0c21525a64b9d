"""Parameters of a claim as the wish of an attachment: the same that an annotation comes to.

Behind rules/claims/parameters, before rules/attach/seats. So a device of a claim goes the way of
every card: the same Steps, addresses and journal.
"""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import Network, NetworkAsk, NetworkKind, Wish
from kube_rdma.model.claims.parameters import ClaimParameters


def own_network(parameters: ClaimParameters, ask: NetworkAsk, resource: str) -> Network:
    """The network of a device whose parameters name none; `resource` is that of its pool."""
    return Network(
        name=f"{ask.namespace}/{ask.network}",
        kind=parameters.kind or NetworkKind.CARD,
        source=ask.source,
        mode=parameters.mode or "",
        resource=resource,
        pools=(parameters.pool,) if parameters.pool else (),
    )


def wish_of(parameters: ClaimParameters, ask: NetworkAsk, network: Network) -> Wish:
    """What is attached for a device.

    `ask` says the claim's namespace and name, the interface where the parameters say none, and
    where messages send a person. `network` is the one that the parameters name, or own_network.
    """
    if parameters.mtu is not None:
        network = replace(network, mtu=parameters.mtu or None)
    asked = replace(
        ask,
        interface=parameters.interface or ask.interface,
        addresses=parameters.addresses or (),
        routes=parameters.routes or (),
        default=bool(parameters.default_route),
        mac=parameters.mac,
        guid=parameters.guid,
    )
    return Wish(asked, network)
