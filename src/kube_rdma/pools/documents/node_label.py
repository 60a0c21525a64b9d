"""The node label ``vke.node.rdma.mode``: Volcengine's way to wish for one pool of a node.

No document and no file: the value of the label is the whole wish.
"""

from __future__ import annotations

from kube_base.errors import Refused
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import near
from kube_rdma.model.pools.pool import Mode, PoolSpec

LABEL = "vke.node.rdma.mode"
RESOURCE = "vke.volcengine.com/rdma"

_MODES = (Mode.EXCLUSIVE, Mode.SHARED, Mode.SHARED_MULTI)


def label_pools(value: str | None) -> tuple[PoolSpec, ...]:
    """The pool that the label's `value` wishes for, none where the node does not have the label.

    Raise Refused for a value that is not a mode.
    """
    if value is None:
        return ()
    for mode in _MODES:
        if value == mode:
            return (PoolSpec(RESOURCE, mode, source=f"label {LABEL}"),)
    meant = near(value, _MODES)
    raise Refused(
        f"{shown(value)} is not a mode of nodes",
        remedy=(f"Did you mean {shown(meant)}? " if meant else "")
        + f"Label the node with one of {', '.join(_MODES)}",
        where=f"label {LABEL}",
    )
