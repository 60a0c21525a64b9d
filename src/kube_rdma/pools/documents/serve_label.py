"""The node label ``kube-rdma.io/serve``: by which way the pools of a node are served.

A cluster goes from shares of the device plugin to claims node by node, with documents that are the
same for all nodes; so the node says it, for each pool whose document does not.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_rdma.lib.text.document import shown
from kube_rdma.model.pools.pool import Serving

LABEL = "kube-rdma.io/serve"


def label_serving(value: str | None, *, claims: bool) -> Serving:
    """What the label's `value` says, PLUGIN where the node does not have the label.

    Raise Refused for a value that means nothing, and for claims where the agent serves none.
    """
    if value is None or value == Serving.PLUGIN:
        return Serving.PLUGIN
    if value == Serving.CLAIMS and claims:
        return Serving.CLAIMS
    if value == Serving.CLAIMS:
        problem, first = (
            "this agent does not serve claims",
            "Install it with claims.enabled=true, or ",
        )
    else:
        problem, first = f"{shown(value)} is no way to serve cards", ""
    ways = f"label the node with {LABEL}=plugin" + ("" if first else f" or {LABEL}=claims")
    remedy = f"{first}{ways}, or remove the label"
    raise Refused(problem, remedy=remedy[0].upper() + remedy[1:], where=f"label {LABEL}")
