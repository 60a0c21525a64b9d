"""Receives LLDP frames on a packet socket for each interface.

fabric/neighbours reads them. The kernel wakes the agent for frames of LLDP alone: it compares type,
length and address itself, and leaves out what this node sends. Each packet socket gets a copy, so
lldpd beside it misses nothing. To open one takes CAP_NET_RAW.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress

GROUPS = tuple(bytes.fromhex(f"0180c20000{last}") for last in ("0e", "03", "00"))
"""The addresses that a switch sends to: nearest bridge, non-TPMR bridge and customer bridge."""
LLDP = 0x88CC  # ETH_P_LLDP
MOST_BYTES = 1518  # of a frame: IEEE 802.3 has no longer ones

# Python has no names for these (asm-generic/socket.h, linux/if_packet.h, linux/filter.h).
_SO_ATTACH_FILTER = 26
_SOL_PACKET, _ADD_MEMBERSHIP, _MULTICAST = 263, 1, 0
_MEMBERSHIP = struct.Struct("=iHH8s")  # struct packet_mreq
_INSTRUCTION, _PROGRAM = struct.Struct("=HBBI"), struct.Struct("@HP")
_WORD, _HALF, _LENGTH, _EQUAL, _GREATER, _RETURN = 0x20, 0x28, 0x80, 0x15, 0x25, 0x06
_PACKET_TYPE, _PACKET_MULTICAST = 0xFFFFF000 + 4, 2  # SKF_AD_OFF + SKF_AD_PKTTYPE
_ROOM = 1 << 15  # bytes of frames that wait; a flood beyond them is lost

# Each line: code, lines to skip if true and if false, value. The last but one takes a frame.
_FILTER = (
    (_HALF, 0, 0, 12),
    (_EQUAL, 0, 11, LLDP),
    (_WORD, 0, 0, _PACKET_TYPE),  # no frame of this node, none of a VLAN that it does not have
    (_EQUAL, 0, 9, _PACKET_MULTICAST),
    (_LENGTH, 0, 0, 0),
    (_GREATER, 7, 0, MOST_BYTES),
    (_WORD, 0, 0, 0),
    (_EQUAL, 0, 5, 0x0180C200),
    (_HALF, 0, 0, 4),
    (_EQUAL, 2, 0, 0x000E),
    (_EQUAL, 1, 0, 0x0003),
    (_EQUAL, 0, 1, 0x0000),
    (_RETURN, 0, 0, MOST_BYTES),
    (_RETURN, 0, 0, 0),
)


class LldpSocket:
    """A packet socket for the LLDP frames of one interface, which may be renamed meanwhile."""

    def __init__(self, interface: str) -> None:
        """Open the socket; raise OSError if the kernel refuses."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_PACKET, kind, 0)  # receives nothing before bind
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
            code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*one) for one in _FILTER))
            program = _PROGRAM.pack(len(_FILTER), ctypes.addressof(code))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            index = socket.if_nametoindex(interface)
            for group in GROUPS:
                joined = _MEMBERSHIP.pack(index, _MULTICAST, len(group), group.ljust(8, b"\0"))
                self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, joined)
            self._socket.bind((interface, LLDP))
        except OSError:
            self._socket.close()
            raise

    @property
    def interface(self) -> str:
        """Return the name of the interface; "" if it has left the namespace, or is gone."""
        return str(self._socket.getsockname()[0])

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a frame waits."""
        return self._socket.fileno()

    def receive(self) -> bytes | None:
        """Return the next frame that waits; None if none waits, or the socket has an error."""
        with suppress(OSError):
            return self._socket.recv(MOST_BYTES)
        return None

    def close(self) -> None:
        """Close the socket; it may take 15 ms (synchronize_net in packet_release, af_packet.c)."""
        self._socket.close()
