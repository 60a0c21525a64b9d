"""Reads devices, ports, the namespace mode and queue pairs from RDMA netlink.

hardware/survey joins devices and mode with sysfs by link_view, the doctor reads queue pairs.
Command and attribute numbers are those of include/uapi/rdma/rdma_netlink.h; what fills them is
drivers/infiniband/core/nldev.c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.link_view import LinkDevice, LinkPort, LinkView
from kube_rdma.adapters.kernel.netlink import codec
from kube_rdma.model.device import PhysicalState, PortState, QueuePair
from kube_rdma.model.survey import Fault, NamespaceMode

NETLINK_RDMA = 20  # include/uapi/linux/netlink.h
NLDEV = 5 << 10  # RDMA_NL_NLDEV, in the upper bits of the message type (RDMA_NL_GET_TYPE)
_U8, _U32, _U64 = struct.Struct("=B"), struct.Struct("=I"), struct.Struct("=Q")


class Command(IntEnum):
    """Numbers of RDMA netlink commands (enum rdma_nldev_command), as far as needed."""

    GET = 1
    PORT_GET = 5
    SYS_GET = 6
    RES_QP_GET = 10


class Attr(IntEnum):
    """Numbers of RDMA netlink attributes (enum rdma_nldev_attr), as far as needed."""

    DEV_INDEX = 1  # u32
    DEV_NAME = 2  # string
    PORT_INDEX = 3  # u32; of a device: how many ports, of a port: which one
    FW_VERSION = 5  # string
    NODE_GUID = 6  # u64
    PORT_STATE = 12  # u8, enum ib_port_state
    PORT_PHYS_STATE = 13  # u8, enum ib_port_phys_state
    RES_QP = 19  # nested: entries
    RES_QP_ENTRY = 20  # nested: one queue pair
    RES_TYPE = 26  # u8
    RES_STATE = 27  # u8, enum ib_qp_state
    RES_PID = 28  # u32; objects of the kernel have none
    NDEV_NAME = 51  # string; only when the interface is in the asker's network namespace
    NETNS_MODE = 66  # u8, RDMA_NLDEV_SYS_ATTR_NETNS_MODE: 1 shared, 0 exclusive
    DEV_TYPE = 99  # u8, enum rdma_nl_dev_type; only of a sub-device, since Linux 6.11


_SMI = 1  # RDMA_DEVICE_TYPE_SMI

# None stands for an attribute that the answer does not carry.
_STATES: dict[int | None, PortState] = dict(zip(range(6), PortState, strict=False))
_PHYSICAL_STATES: dict[int | None, PhysicalState] = dict(
    zip(range(1, 8), PhysicalState, strict=False)
)


def read_links() -> LinkView:
    """Return the RDMA devices of this thread's network namespace, with the namespace mode.

    Raise Unavailable when the kernel has no RDMA at all or does not list its devices. What fails
    after that is a fault: an old kernel without a namespace mode, a device that has just gone.
    """
    try:
        netlink = codec.Netlink(NETLINK_RDMA)
    except OSError as error:
        raise Unavailable(
            f"the kernel offers no RDMA netlink ({error.strerror}); is ib_core loaded?"
        ) from error
    faults: list[Fault] = []
    with netlink:
        devices = []
        for payload in netlink.ask(NLDEV | Command.GET, dump=True):
            device = decode_device(payload)
            try:
                ports = netlink.ask(NLDEV | Command.PORT_GET, by_index(device), dump=True)
                device = replace(device, ports=tuple(decode_port(port) for port in ports))
            except Unavailable as error:
                faults.append(Fault(f"RDMA netlink, ports of {device.name}", str(error)))
            devices.append(device)
        mode = NamespaceMode.UNKNOWN
        try:
            mode = decode_mode(*netlink.ask(NLDEV | Command.SYS_GET))
        except Unavailable as error:
            faults.append(Fault("RDMA netlink, namespace mode", str(error)))
    return LinkView(tuple(devices), mode, tuple(faults))


def read_mode() -> NamespaceMode:
    """Return the namespace mode alone; UNKNOWN where the kernel has no RDMA or does not say."""
    try:
        with codec.Netlink(NETLINK_RDMA) as netlink:
            return decode_mode(*netlink.ask(NLDEV | Command.SYS_GET))
    except (OSError, Unavailable):
        return NamespaceMode.UNKNOWN


def by_index(device: LinkDevice) -> bytes:
    """Return the body of a request about this RDMA device, which names the device's index."""
    return codec.encode_attributes([codec.Attribute(Attr.DEV_INDEX, _U32.pack(device.index))])


def decode_device(payload: bytes) -> LinkDevice:
    """Return the device in one answer to GET; raise Unavailable if it has no index or name."""
    attributes = codec.values_by_type(payload)
    index, name = codec.number(attributes, Attr.DEV_INDEX), _string(attributes, Attr.DEV_NAME)
    if index is None or name is None:
        raise Unavailable("RDMA netlink: a device without index or name")
    guid = codec.number(attributes, Attr.NODE_GUID, _U64)
    text = None if guid is None else guid.to_bytes(8).hex(":")
    smi = codec.number(attributes, Attr.DEV_TYPE, _U8) == _SMI
    return LinkDevice(index, name, _string(attributes, Attr.FW_VERSION), guid=text, smi=smi)


def decode_port(payload: bytes) -> LinkPort:
    """Return the port in one answer to PORT_GET; raise Unavailable if it has no number."""
    attributes = codec.values_by_type(payload)
    index = codec.number(attributes, Attr.PORT_INDEX)
    if index is None:
        raise Unavailable("RDMA netlink: a port without a number")
    return LinkPort(
        index,
        _STATES.get(codec.number(attributes, Attr.PORT_STATE, _U8)),
        _PHYSICAL_STATES.get(codec.number(attributes, Attr.PORT_PHYS_STATE, _U8)),
        _string(attributes, Attr.NDEV_NAME),
    )


def decode_mode(*payloads: bytes) -> NamespaceMode:
    """Return the namespace mode in the answer to SYS_GET; UNKNOWN before Linux 5.2."""
    for payload in payloads:
        shared = codec.number(codec.values_by_type(payload), Attr.NETNS_MODE, _U8)
        if shared is not None:
            return NamespaceMode.SHARED if shared else NamespaceMode.EXCLUSIVE
    return NamespaceMode.UNKNOWN


def _string(attributes: Mapping[int, bytes], which: Attr) -> str | None:
    try:
        return attributes.get(which, b"").rstrip(b"\0").decode() or None
    except UnicodeDecodeError as error:
        raise Unavailable(f"RDMA netlink: {which.name} is not text") from error


# Queue pairs: which processes use which devices.

# enum ib_qp_type (include/rdma/ib_verbs.h); a driver has its own, as DC of mlx5 and SRD of EFA.
_TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "RAW", 9: "XRC", 10: "XRC", 255: "DRIVER"}
_READY = 3  # IB_QPS_RTS: it may send


def read_queue_pairs() -> tuple[QueuePair, ...]:
    """Return the queue pairs of processes on devices of this thread's network namespace.

    Raise Unavailable when the kernel has no RDMA, or does not list them.
    """
    try:
        netlink = codec.Netlink(NETLINK_RDMA)
    except OSError as error:
        raise Unavailable(f"the kernel offers no RDMA netlink ({error.strerror})") from error
    pairs: list[QueuePair] = []
    with netlink:
        for payload in netlink.ask(NLDEV | Command.GET, dump=True):
            device = decode_device(payload)
            for table in netlink.ask(NLDEV | Command.RES_QP_GET, by_index(device), dump=True):
                pairs += decode_queue_pairs(device.name, table)
    return tuple(pairs)


def decode_queue_pairs(device: str, payload: bytes) -> Iterator[QueuePair]:
    """Yield the queue pairs of processes in an answer to RES_QP_GET.

    Raise Unavailable if it is malformed.
    """
    table = codec.values_by_type(payload).get(Attr.RES_QP, b"")
    for entry in codec.decode_attributes(table):
        if entry.type != Attr.RES_QP_ENTRY:
            continue
        fields = codec.values_by_type(entry.value)
        pid, kind = codec.number(fields, Attr.RES_PID), codec.number(fields, Attr.RES_TYPE, _U8)
        if pid and kind is not None:
            ready = codec.number(fields, Attr.RES_STATE, _U8) == _READY
            yield QueuePair(device, _TYPES.get(kind, str(kind)), pid, ready=ready)
