"""LLDP frames as switches send them: a tiny encoder, which the parser's tests read back."""

GROUP, SWITCH = bytes.fromhex("0180c200000e"), bytes.fromhex("5254000000aa")
MAC, ADDRESS, LOCAL = 4, 5, 7  # of a chassis ID


def tlv(kind, value):
    return ((kind << 9) | len(value)).to_bytes(2) + value


def head(to=GROUP, source=SWITCH, kind=0x88CC):
    return to + source + kind.to_bytes(2)


def frame(name="leaf-1", port="Ethernet1/1", *, ttl=120, chassis=SWITCH, more=b""):
    """A frame of a switch; without a name it has none."""
    ids = tlv(1, bytes([MAC]) + chassis) + tlv(2, b"\5" + port.encode())
    own = tlv(5, name.encode()) if name else b""
    return head() + ids + tlv(3, ttl.to_bytes(2)) + own + more + tlv(0, b"")
