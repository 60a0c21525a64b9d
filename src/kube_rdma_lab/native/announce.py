"""Announces device events in the network namespace that it is run in, as the kernel would.

A program of its own, because it has to be inside: replay.py starts it with the events as JSON on
stdin. Root may hand the kernel an event, which it then sends to all listeners as its own
(uevent_net_rcv_skb, lib/kobject_uevent.c, Linux 4.18).
"""

from __future__ import annotations

import json
import socket
import sys

from kube_rdma.adapters.kernel.netlink.codec import Flag, Message, encode

NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h
DATA = 16  # NLMSG_MIN_TYPE: the lowest type that is not netlink's own


def datagram(action: str, subsystem: str, devpath: str) -> bytes:
    """Return the uevent datagram of one device; the kernel adds its sequence number."""
    lines = (
        f"{action}@{devpath}",
        f"ACTION={action}",
        f"DEVPATH={devpath}",
        f"SUBSYSTEM={subsystem}",
    )
    text = "".join(f"{line}\0" for line in lines)
    return encode(Message(DATA, int(Flag.REQUEST), 1, text.encode()))


def main() -> None:
    """Read uevents from stdin, a JSON list of [action, subsystem, devpath], and send them."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as kernel:
        for event in json.load(sys.stdin):
            kernel.sendto(datagram(*event), (0, 0))


if __name__ == "__main__":
    main()
