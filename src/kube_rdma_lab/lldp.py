"""Sends the LLDP frames of a lab's leaf switches: `python -m kube_rdma_lab.lldp HOME SECONDS`.

The supervisor runs it in the namespace where the bridges are. A bridge forwards no such frame, so
each leaves through the lab's end of a card's cable, as a switch sends it through a port. The cables
(cables.py) are read anew each time. Asked to end, it sends a last frame that is valid for no time;
killed, it falls silent.
"""

from __future__ import annotations

import hashlib
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from kube_rdma_lab import cables
from kube_rdma_lab.cables import Cable

PROGRAM = "lldp"  # its name in the lab
# IEEE 802.1AB-2016: clauses 7 (address and EtherType), 8 (TLVs) and 9.2.5 (time to live).
NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
ETHERTYPE = 0x88CC
END, CHASSIS_ID, PORT_ID, TIME_TO_LIVE, SYSTEM_NAME = 0, 1, 2, 3, 5
CHASSIS_MAC, PORT_INTERFACE_NAME = 4, 5  # subtypes
HOLD = 4  # msgTxHold: a frame is valid until so many more should have come
SHORTEST = 60  # of an Ethernet frame, without its checksum


def mac(leaf: str, port: int = 0) -> bytes:
    """Return the locally administered MAC of a leaf switch's port; 0 stands for the switch."""
    return b"\x02" + hashlib.sha256(leaf.encode()).digest()[:4] + bytes([port])


def frame(cable: Cable, ttl: int) -> bytes:
    """Return a switch port's LLDP frame for the card at the other end, valid for `ttl` seconds."""
    values = (
        (CHASSIS_ID, bytes([CHASSIS_MAC]) + mac(cable.leaf)),
        (PORT_ID, bytes([PORT_INTERFACE_NAME]) + cable.port_name.encode()),
        (TIME_TO_LIVE, struct.pack("!H", ttl)),
        (SYSTEM_NAME, cable.leaf.encode()),
        (END, b""),
    )
    header = NEAREST_BRIDGE + mac(cable.leaf, cable.port) + struct.pack("!H", ETHERTYPE)
    tlvs = b"".join(struct.pack("!H", kind << 9 | len(value)) + value for kind, value in values)
    return (header + tlvs).ljust(SHORTEST, b"\0")


def send(wire: socket.socket, plugged: Iterable[Cable], ttl: int) -> None:
    """Send a frame through each cable that is plugged in; print what an interface refuses."""
    for cable in plugged:
        if cable.leaf:
            try:
                wire.sendto(frame(cable, ttl), (cable.interface, ETHERTYPE))
            except OSError as error:  # a native node that was killed takes its cables along
                print(f"{cable.leaf} {cable.port_name}: {error.strerror}", flush=True)


def main(home: Path, seconds: int) -> None:
    """Send a frame through each plugged cable every `seconds`, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    # Of protocol 0 a socket receives nothing.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        try:
            while True:
                send(wire, cables.read(home), HOLD * seconds + 1)
                time.sleep(seconds)
        finally:
            send(wire, cables.read(home), 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
