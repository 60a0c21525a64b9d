"""Reads an interface's ethtool statistics (`-S`) and private flags, under its driver's names.

hardware/rules/error_counters says which statistics tell of a bad cable or of a pause storm, for
sysfs has no file of them. fabric/neighbours asks whether a card's firmware takes LLDP frames.
Numbers and layouts are those of include/uapi/linux/ethtool.h and sockios.h; what answers is
dev_ethtool in net/ethtool/ioctl.c. To read needs no right. An interface of another network
namespace does not exist here.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from collections.abc import Callable, Mapping

from kube_base.errors import Unavailable

Ask = Callable[[str, bytes], bytes]

_SIOCETHTOOL = 0x8946
_GSSET_INFO, _GSTRINGS, _GSTATS, _GPFLAGS = 0x37, 0x1B, 0x1D, 0x27  # ETHTOOL_*
_STATISTICS, _PRIVATE_FLAGS = 1, 2  # ETH_SS_STATS, ETH_SS_PRIV_FLAGS
_LENGTH = 32  # of a name: ETH_GSTRING_LEN
_REQUEST = struct.Struct("@16sP16x")  # struct ifreq with ifr_data
_LONGEST = 15  # bytes of an interface's name: IFNAMSIZ, without the zero behind it
_SETS = struct.Struct("=IIQI")  # struct ethtool_sset_info with one number behind it
_STRINGS = struct.Struct("=III")  # struct ethtool_gstrings
_NUMBERS = struct.Struct("=II")  # struct ethtool_stats
_MOST = 1 << 17  # names of an interface; 256 queues of mlx5 have below 20,000
_SPARE = 1024


def ask_kernel(interface: str, message: bytes) -> bytes:
    """Send an ethtool request about an interface and return the kernel's answer.

    Raise OSError when the kernel refuses, or the name is too long.
    """
    name = interface.encode()
    if len(name) > _LONGEST:
        raise OSError(0, "the kernel has no interface of such a long name")
    memory = array("B", message)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, _REQUEST.pack(name, memory.buffer_info()[0]))
    return memory.tobytes()


def read_statistics(interface: str, ask: Ask = ask_kernel) -> Mapping[str, int]:
    """Return a network interface's ethtool statistics by name.

    The result is empty where queues came or went meanwhile. Raise Unavailable where the driver
    gives none.
    """
    try:
        count, names = _names(interface, _STATISTICS, ask)
        room = 2 * count + _SPARE
        answer = ask(interface, _NUMBERS.pack(_GSTATS, count) + bytes(room * 8))
        count = min(_NUMBERS.unpack_from(answer)[1], room)
        numbers = struct.unpack_from(f"={count}Q", answer, _NUMBERS.size)
    except OSError as error:
        raise Unavailable(
            f"the driver of {interface} tells no statistics ({error.strerror})"
        ) from error
    # Two lengths: queues came or went meanwhile, and no name is sure to be that of its number.
    return dict(zip(names, numbers, strict=True)) if len(names) == len(numbers) else {}


def read_private_flags(interface: str, ask: Ask = ask_kernel) -> Mapping[str, bool]:
    """Return the private flags of an interface's driver by name; {} if it tells none."""
    try:
        _, names = _names(interface, _PRIVATE_FLAGS, ask)
        _, bits = _NUMBERS.unpack_from(ask(interface, _NUMBERS.pack(_GPFLAGS, 0)))
    except OSError:
        return {}
    return {name: bool(bits >> number & 1) for number, name in enumerate(names)}


def _names(interface: str, which: int, ask: Ask) -> tuple[int, list[str]]:
    """Return the size of a set of names, and its names, more or fewer if it just changed."""
    _, _, sets, number = _SETS.unpack(ask(interface, _SETS.pack(_GSSET_INFO, 0, 1 << which, 0)))
    count = min(number, _MOST) if sets else 0  # no set: the driver does not know it
    # The kernel asks the driver anew each time, and it may have more by then.
    room = 2 * count + _SPARE
    answer = ask(interface, _STRINGS.pack(_GSTRINGS, which, count) + bytes(room * _LENGTH))
    found = min(_STRINGS.unpack_from(answer)[2], room)
    texts = struct.unpack_from(f"={f'{_LENGTH}s' * found}", answer, _STRINGS.size)
    return count, [text.partition(b"\0")[0].decode("ascii", "replace").strip() for text in texts]
