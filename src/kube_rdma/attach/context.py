"""What the node's pod networks stand on now: written by its owners, read by all others.

One value for the programs of this folder. The device plugin's loop (through service.py) owns what
is offered, cni_wiring.py who calls the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from kube_rdma.model.cni_conf import Wiring
from kube_rdma.model.pools.pool import Pool


class NodeContext(Struct):
    """The state of one node.

    `pools` are those that the kubelet is offered, by resource, None until the node was looked at;
    `withdrawn` are kube-rdma's resources that are not among them while pods hold shares of them.
    `wiring` says who calls the agent for pods, `network` is the name of the cluster's own network.
    """

    pools: Mapping[str, Pool] | None = None
    withdrawn: Sequence[str] = ()
    wiring: Wiring = Wiring.NONE
    network: str = ""
