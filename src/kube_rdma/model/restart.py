"""What an agent asks for when a pod runs without the networks that it should have had.

It stands on the pod itself, as a label to find it by and an annotation with the rest, because this
is what an agent may write: an eviction is the controller's (docs/decisions/0025-restarts.md).
"""

from __future__ import annotations

from kube_rdma.model.frozen import Frozen

RESTART = "kube-rdma.io/needs-restart"
"""Label (with the value "true") and annotation."""


class RestartRequest(Frozen):
    """Which node's agent asks, when it did so last in seconds of the Unix epoch, and why."""

    node: str
    at: int
    why: str
