"""Reads PFC, trust and ECN of an interface, by Data Center Bridging netlink and sysfs.

The doctor and `devices --record` ask; doctor/rules/errors judges. Numbers and layouts are those of
include/uapi/linux/dcbnl.h; what fills them is dcbnl_ieee_fill in net/dcb/dcbnl.c. Reading needs no
capability. ECN of RoCE stands in files of MLNX_OFED and DOCA alone; the kernel's own driver has
none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from socket import AF_UNSPEC

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink import codec
from kube_rdma.adapters.kernel.netlink.rtnl_read import open_rtnl
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.doctor import ObservedFlowControl

_GETDCB = 78  # RTM_GETDCB, include/uapi/linux/rtnetlink.h
_IEEE_GET = 21  # DCB_CMD_IEEE_GET
_MESSAGE = struct.Struct("=BBH")  # struct dcbmsg: family, command, padding
_IFNAME, _IEEE = 1, 13  # DCB_ATTR_*
_PFC, _APP_TABLE, _TRUST_TABLE = 2, 3, 11  # DCB_ATTR_IEEE_PFC, _APP_TABLE, DCB_ATTR_DCB_APP_TRUST_…
_PFC_ENABLED = 1  # where pfc_en stands in struct ieee_pfc
_DSCP, _PCP = 5, 255  # IEEE_8021QAZ_APP_SEL_DSCP, DCB_APP_SEL_PCP
_TRUSTED = {_DSCP: "dscp", _PCP: "pcp"}
_PRIORITIES = range(8)
# Drivers that put one entry for each DSCP into the table while they trust it, and none otherwise
# (mlx5e_dcbnl_dscp_app in mlx5/core/en_dcbnl.c).
_TELLING = frozenset({"mlx5_core"})


def read_flow_control(interfaces: Iterable[tuple[str, str]]) -> tuple[ObservedFlowControl, ...]:
    """Return the flow control settings of interfaces, given as pairs of name and driver.

    An interface whose driver has no Data Center Bridging is left out. Raise Unavailable if none
    answers.
    """
    wanted = tuple(dict.fromkeys(interfaces))
    tree = SysfsTree()
    with open_rtnl() as netlink:
        read = []
        for interface, driver in wanted:
            with suppress(Unavailable):
                for payload in netlink.ask(_GETDCB, request(interface)):
                    seen = decode_flow_control(payload, interface, driver)
                    read.append(replace(seen, ecn=read_ecn(tree, interface)))
    if wanted and not read:
        raise Unavailable("no driver of a RoCE port tells its PFC (Data Center Bridging netlink)")
    return tuple(read)


def decode_flow_control(payload: bytes, interface: str, driver: str) -> ObservedFlowControl:
    """Decode the flow control in one answer; raise Unavailable when it is cut short."""
    _, attributes = codec.split(_MESSAGE, payload)
    ieee = codec.values_by_type(attributes.get(_IEEE, b""))
    pfc = ieee.get(_PFC, b"")
    enabled = None
    if len(pfc) > _PFC_ENABLED:
        enabled = tuple(n for n in _PRIORITIES if pfc[_PFC_ENABLED] >> n & 1)
    return ObservedFlowControl(interface, enabled, _trust(ieee, driver))


def read_ecn(tree: SysfsTree, interface: str) -> tuple[int, ...] | None:
    """Return the priorities with ECN for RoCE; None without the driver's files."""
    folder = f"class/net/{interface}/ecn/roce_np/enable"
    values = {n: tree.text(f"{folder}/{n}", required=False) for n in _PRIORITIES}
    if None in values.values():
        return None
    return tuple(number for number, value in values.items() if value == "1")


def request(interface: str) -> bytes:
    """Return the request for an interface's settings of IEEE 802.1Qaz."""
    name = codec.Attribute(_IFNAME, interface.encode() + b"\0")
    return _MESSAGE.pack(AF_UNSPEC, _IEEE_GET, 0) + codec.encode_attributes([name])


def _trust(ieee: dict[int, bytes], driver: str) -> str:
    """Return which field of packets sets their priority, such as "dscp"; "" if unknown."""
    if _TRUST_TABLE in ieee:
        selectors = (one.value[:1] for one in codec.decode_attributes(ieee[_TRUST_TABLE]))
        return ", ".join(_TRUSTED.get(one[0], str(one[0])) for one in selectors if one)
    if driver not in _TELLING or _APP_TABLE not in ieee:
        return ""
    entries = codec.decode_attributes(ieee[_APP_TABLE])
    return "dscp" if any(one.value[:1] == bytes([_DSCP]) for one in entries) else "pcp"
