"""What Data Center Bridging netlink answers: bytes in the layout of include/uapi/linux/dcbnl.h.

A fake of dcbnl_ieee_fill (net/dcb/dcbnl.c): nested attributes of IEEE 802.1Qaz behind struct dcbmsg
and the interface's name.
"""

from __future__ import annotations

import struct

from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes

_GET = 21
_DSCP_SELECTOR = 5


def answer(interface, *, pfc=None, dscp=0, trusted=None):
    """Of an interface: PFC by a mask, so many DSCP entries, and a table of trusted selectors."""
    ieee = []
    if pfc is not None:
        # struct ieee_pfc: capability, enabled, mbc, delay, eight requests, eight indications.
        ieee.append(Attribute(2, struct.pack("=BBBxHxx8Q8Q", 8, pfc, 0, 0, *[0] * 16)))
    entries = [Attribute(1, struct.pack("=BBH", _DSCP_SELECTOR, n >> 3, n)) for n in range(dscp)]
    ieee.append(Attribute(3, encode_attributes(entries)))
    if trusted is not None:
        selectors = [Attribute(1, bytes([one])) for one in trusted]
        ieee.append(Attribute(11, encode_attributes(selectors)))
    body = [Attribute(1, interface.encode() + b"\0"), Attribute(13, encode_attributes(ieee))]
    return struct.pack("=BBH", 0, _GET, 0) + encode_attributes(body)
