"""GUIDs of InfiniBand: which one a pod asks for, and whether it can be the GUID of a port.

A GUID is an EUI-64: eight octets, here as ``02:00:00:00:00:00:00:01``. sysfs prints four groups of
four digits, and the address of an IPoIB interface ends with that of its port (RFC 4391, 9.1.1).
"""

from __future__ import annotations

from kube_rdma.model.attach.attachment import Wish

NONE = "ff:ff:ff:ff:ff:ff:ff:ff"
"""What a function without a GUID is set back to, as ib-sriov-cni does."""

_ZERO = "00:00:00:00:00:00:00:00"
_OF_NO_MAC = "00:00:00:ff:fe:00:00:00"  # what mlx5 makes of an administrative MAC of zeros
_LENGTH = len(_ZERO)
_WIDE = 59  # characters of an IPoIB interface's address


def asked(wish: Wish) -> tuple[str, str] | None:
    """The field that says which GUID the interface has, and the GUID; None where none does."""
    for field, guid in (
        ("infiniband-guid", wish.ask.guid),
        ("cni-args.guid", wish.ask.argued_guid),
        ("args.cni.guid", wish.network.guid),
    ):
        if guid:
            return field, guid.lower()
    return None


def wrong(guid: str) -> str | None:
    """Why this is not the GUID of a port; None when it can be one."""
    octets = guid.split(":")
    try:
        first, *_ = numbers = [int(octet, 16) for octet in octets]
    except ValueError:
        numbers = []
    if len(numbers) != 8 or any(len(octet) != 2 for octet in octets):
        return "is not a GUID of eight octets"
    if guid.lower() in (NONE, _OF_NO_MAC) or not any(numbers):
        return "stands for no GUID"
    return "is the GUID of a group, for its first octet is odd" if first & 1 else None


def usable(guid: str | None) -> bool:
    """Whether a port can talk with this GUID."""
    return guid is not None and wrong(guid) is None


def of_sysfs(text: str | None) -> str | None:
    """``0200:0000:0000:0001`` in the usual form."""
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def of_address(mac: str) -> str | None:
    """The GUID of the port in an IPoIB interface's address; None in any other."""
    return mac.lower()[-_LENGTH:] if len(mac) == _WIDE else None
