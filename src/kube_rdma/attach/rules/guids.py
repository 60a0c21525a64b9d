"""GUIDs of RDMA devices and their ports, as texts.

A GUID is an EUI-64: eight octets, here as ``02:00:00:00:00:00:00:01``. sysfs prints four groups of
four digits, and the address of an IPoIB interface ends with the GUID of its port (RFC 4391, 9.1.1).
"""

from __future__ import annotations

NO_GUID = "ff:ff:ff:ff:ff:ff:ff:ff"
"""What a function without a GUID is set back to, as ib-sriov-cni does."""

_GUID_OF_NO_MAC = "00:00:00:ff:fe:00:00:00"  # what mlx5 makes of an administrative MAC of zeros

_GUID_LENGTH = len("00:00:00:00:00:00:00:00")
_ADDRESS_LENGTH = 59  # characters of an IPoIB interface's address


def wrong_guid(guid: str) -> str | None:
    """Return why this is not the GUID of a port; None when it can be one."""
    octets = guid.split(":")
    try:
        first, *_ = numbers = [int(octet, 16) for octet in octets]
    except ValueError:
        numbers = []
    if len(numbers) != 8 or any(len(octet) != 2 for octet in octets):
        return "is not a GUID of eight octets"
    if guid.lower() in (NO_GUID, _GUID_OF_NO_MAC) or not any(numbers):
        return "stands for no GUID"
    return "is the GUID of a group, for its first octet is odd" if first & 1 else None


def is_usable_guid(guid: str | None) -> bool:
    """Return whether a port can talk with this GUID."""
    return guid is not None and wrong_guid(guid) is None


def guid_of_sysfs(text: str | None) -> str | None:
    """Return ``0200:0000:0000:0001`` in the usual form."""
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def guid_of_address(mac: str) -> str | None:
    """Return the GUID of the port in an IPoIB interface's address; None in any other."""
    return mac.lower()[-_GUID_LENGTH:] if len(mac) == _ADDRESS_LENGTH else None
