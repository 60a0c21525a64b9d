"""Opens the rails of a user-mode kernel and becomes it: `python -m kube_rdma_lab.wires KERNEL ...`.

It is how user_mode_machine.py starts a node. A kernel that opens an interface by itself gets a
small buffer, and other nodes send faster than a starved processor takes them. Here each socket has
room for what 30 pairs of queues of Soft-RoCE may have on its way.
"""

from __future__ import annotations

import os
import re
import socket
import sys

# 30 pairs of queues, 128 packets of each unacknowledged (drivers/infiniband/sw/rxe/rxe_param.h,
# RXE_MAX_UNACKED_PSNS), and what the kernel counts for one of 4 KiB.
ROOM = 30 * 128 * 16384
ALL = 0x0003  # ETH_P_ALL
# Python has no names for these (asm-generic/socket.h, linux/socket.h, linux/if_packet.h).
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
FD = re.compile(r"(?<=,fd=)[a-z]\w*")


def opened(interface: str) -> int:
    """Open a raw socket for all frames that reach an interface; return its descriptor."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    wire.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, ROOM)
    wire.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    wire.bind((interface, ALL))
    wire.setblocking(False)
    wire.set_inheritable(True)
    return wire.detach()


if __name__ == "__main__":
    argv = [FD.sub(lambda name: str(opened(name[0])), word) for word in sys.argv[1:]]
    os.execv(argv[0], argv)  # noqa: S606 - the supervisor's own words
