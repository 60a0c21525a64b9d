"""LLDP as a card gets it: what a frame says, and the next frame of a node's card."""

from socket import htons

from kube_rdma_lab import cluster, lldp

# perl is on every Debian; Python is not on the nodes. 17 is AF_PACKET, 3 SOCK_RAW; a sockaddr_ll of
# the EtherType and the interface takes the frames of that card alone.
HEAR = f"""
socket(my $wire, 17, 3, {htons(lldp.ETHERTYPE)}) or die $!;
bind($wire, pack("SnlSCCa8", 17, {lldp.ETHERTYPE}, shift, 0, 0, 0, "")) or die $!;
recv($wire, my $frame, 2000, 0) // die $!;
print unpack("H*", $frame);
"""


def tlvs(frame):
    """The TLVs of a frame by type, read as IEEE 802.1AB has them."""
    found, rest = {}, frame[14:]
    while kind_and_length := int.from_bytes(rest[:2], "big"):
        kind, length = kind_and_length >> 9, kind_and_length & 0x1FF
        found[kind], rest = rest[2 : 2 + length], rest[2 + length :]
    return found


def neighbour(frame):
    """The switch, the port and the seconds that a frame of the lab's leaves says."""
    said = tlvs(frame)
    return said[5].decode(), said[2][1:].decode(), int.from_bytes(said[3], "big")


def heard(lab, node, card):
    """The switch and the port that the next frame on a card names."""
    # A native node's /sys is a tree that knows no numbers of its interfaces.
    index = cluster.shell(lab, node, "ip", "-o", "link", "show", card).partition(":")[0]
    frame = bytes.fromhex(cluster.shell(lab, node, "perl", "-e", HEAR, index))
    return neighbour(frame)[:2]
