"""Which processes have queue pairs on which devices, by RDMA netlink: what a program really uses.

doctor/pod_here asks. The kernel lists objects of processes that the asker's process
namespace shows, and no others (drivers/infiniband/core/restrack.c, rdma_is_visible_in_pid_ns).
Numbers are those of include/uapi/rdma/rdma_netlink.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import (
    Attribute,
    Netlink,
    decode_attributes,
    encode_attributes,
    number,
    values_by_type,
)
from kube_rdma.adapters.kernel.netlink.rdma_read import (
    NETLINK_RDMA,
    NLDEV,
    Command,
    decode_device,
)
from kube_rdma.model.queue_pairs import QueuePair

_QP_GET = 10  # RDMA_NLDEV_CMD_RES_QP_GET
_U8, _U32 = struct.Struct("=B"), struct.Struct("=I")
# enum ib_qp_type (include/rdma/ib_verbs.h); a driver has its own, as DC of mlx5 and SRD of EFA.
_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "RAW", 9: "XRC", 10: "XRC", 255: "DRIVER"}
_READY = 3  # IB_QPS_RTS: it may send


class _Attr(IntEnum):
    DEV_INDEX = 1
    QP = 19  # nested: entries
    QP_ENTRY = 20  # nested: one queue pair
    TYPE = 26  # u8
    STATE = 27  # u8, enum ib_qp_state
    PID = 28  # u32; objects of the kernel have none


def read_queue_pairs() -> tuple[QueuePair, ...]:
    """Those of processes, on all devices of this thread's network namespace; raise Unavailable."""
    try:
        netlink = Netlink(NETLINK_RDMA)
    except OSError as error:
        raise Unavailable(f"the kernel offers no RDMA netlink ({error.strerror})") from error
    pairs: list[QueuePair] = []
    with netlink:
        for payload in netlink.ask(NLDEV | Command.GET, dump=True):
            device = decode_device(payload)
            which = encode_attributes([Attribute(_Attr.DEV_INDEX, _U32.pack(device.index))])
            for table in netlink.ask(NLDEV | _QP_GET, which, dump=True):
                pairs += decode_queue_pairs(device.name, table)
    return tuple(pairs)


def decode_queue_pairs(device: str, payload: bytes) -> Iterator[QueuePair]:
    """Those of processes out of one answer to RES_QP_GET; raise Unavailable for nonsense."""
    table = values_by_type(payload).get(_Attr.QP, b"")
    for entry in decode_attributes(table):
        if entry.type != _Attr.QP_ENTRY:
            continue
        fields = values_by_type(entry.value)
        pid, kind = number(fields, _Attr.PID), number(fields, _Attr.TYPE, _U8)
        if pid and kind is not None:
            ready = number(fields, _Attr.STATE, _U8) == _READY
            yield QueuePair(device, _TYPES.get(kind, str(kind)), pid, ready=ready)
