"""What an agent asks for when only a new pod helps: it lacks its networks, or cannot start.

It stands on the pod itself, as a label to find it by and an annotation with the rest, because this
is what an agent may write: an eviction is the controller's (docs/decisions/0025-restarts.md).
"""

from __future__ import annotations

from kube_base.frozen import Frozen

RESTART = "kube-rdma.io/needs-restart"
"""Label (with the value "true") and annotation."""


class RestartRequest(Frozen):
    """Which node's agent asks, when it did so last in seconds of the Unix epoch, and why.

    `outdated`: the pod does not lack its networks while it runs, it cannot start at all, for its
    containers hold another device's nodes.
    """

    node: str
    at: int
    why: str
    outdated: bool = False
