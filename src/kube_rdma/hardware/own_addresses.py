"""By which addresses the node is known and reached: what carries them never moves into a pod.

The agent sees its Node object all the time and speaks with the API server; whoever asks once reads
both. hardware/survey finds the interfaces, pools/rules/selection spares their cards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from kube_base.errors import Unavailable
from kube_rdma.model.node import NodeState

if TYPE_CHECKING:
    from kube_client.objects import Cluster

_COUNTED = ("InternalIP", "ExternalIP")


class OwnAddresses:
    """Those of one node."""

    def __init__(self) -> None:
        self._local: Callable[[], str | None] = lambda: None
        self._node: Mapping[str, str] = {}

    def connected(self, local: Callable[[], str | None]) -> None:
        """Take note who tells this side's address of the connection to the API server."""
        self._local = local

    def seen(self, node: NodeState) -> bool:
        """Take note of the Node object; True when it has other addresses than before."""
        before = self._node
        counted = (pair for pair in node.addresses if pair[0] in _COUNTED)
        self._node = {address: f"the node's {kind} {address}" for kind, address in counted}
        return self._node != before

    def now(self) -> Mapping[str, str]:
        """Each address with what it is, for sentences."""
        local = self._local()
        way = {local: f"the connection to the API server, from {local}"} if local else {}
        return {**way, **self._node}


async def read_own(name: str, door: AbstractAsyncContextManager[Cluster]) -> Mapping[str, str]:
    """Those of the node of this name as the API server has it now; raise KubeError."""
    # Imported here: role `plugin` alone needs neither the memory nor the time of the client.
    from kube_rdma.adapters.cluster.nodes import Nodes

    async with door as cluster:
        node = await Nodes(cluster).read(name)
        if node is None:
            raise Unavailable(f"The API server has no node {name}.")
        own = OwnAddresses()
        own.connected(cluster.local_address)
        own.seen(node)
        return own.now()
