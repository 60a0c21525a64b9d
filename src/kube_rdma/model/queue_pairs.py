"""A queue pair of a process, as the kernel lists it: what adapters/kernel/netlink reads.

The doctor counts them for each container; from a count follows whether a program uses RDMA at all.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class QueuePair(Frozen):
    """`type` is the transport (RC, UC, UD, DRIVER). `pid` is the process as the asker sees it.

    `ready`: it is connected, so it may send.
    """

    device: str
    type: str
    pid: int
    ready: bool = False
