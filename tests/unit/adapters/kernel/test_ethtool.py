"""Statistics of an interface: what the kernel writes is read, by a fake of it and by the real one.

The fake has the layouts of include/uapi/linux/ethtool.h, and writes no more than it was given room
for.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.ethtool import read_private_flags, read_statistics
from tests.unit.adapters.kernel.pod.test_namespaces import needs_root

SETS, STRINGS, NUMBERS = 0x37, 0x1B, 0x1D
NAMES = st.text(st.sampled_from("abcdefgh_0123.[]:"), min_size=1, max_size=32)


def kernel(statistics, later=None):
    """A driver with these statistics; `later` is what it has once it was counted."""
    later = statistics if later is None else later

    def ask(interface, message):
        assert interface == "eth0"
        (command,) = struct.unpack_from("=I", message)
        if command == SETS:
            assert struct.unpack_from("=Q", message, 8) == (1 << 1,)
            return struct.pack("=IIQI", SETS, 0, bool(statistics) << 1, len(statistics))
        if command == STRINGS:
            head = struct.pack("=III", STRINGS, 1, len(later))
            body = b"".join(name.encode().ljust(32, b"\0") for name in later)
        else:
            assert command == NUMBERS
            head = struct.pack("=II", NUMBERS, len(later))
            body = struct.pack(f"={len(later)}Q", *later.values())
        answer = head + body
        assert len(answer) <= len(message), "the kernel writes where no room was made"
        return answer.ljust(len(message), b"\0")

    return ask


@given(st.dictionaries(NAMES, st.integers(0, 2**64 - 1), max_size=40))
def test_every_name_has_its_number(statistics):
    assert read_statistics("eth0", kernel(statistics)) == statistics


def test_a_driver_may_have_more_by_the_time_it_is_asked():
    """Queues were added: their statistics stand behind the count that was told first."""
    before, after = {"a": 1}, {f"queue_{n}": n for n in range(500)}
    assert read_statistics("eth0", kernel(before, after)) == after


def test_the_name_with_a_space_of_older_kernels_is_the_name():
    """mlx5/core/en_stats.c had "tx_pause_storm_warning_events "."""
    name = "tx_pause_storm_warning_events"
    assert read_statistics("eth0", kernel({f"{name} ": 3})) == {name: 3}


def test_names_and_numbers_that_do_not_fit_each_other_are_not_told():
    fewer = kernel({"a": 1, "b": 2}, {"a": 1, "b": 2})

    def ask(interface, message):
        (command,) = struct.unpack_from("=I", message)
        lost = struct.pack("=IIQ", NUMBERS, 1, 7)
        return lost if command == NUMBERS else fewer(interface, message)

    assert read_statistics("eth0", ask) == {}


@pytest.mark.parametrize("name", ["nowhere0", "a-name-that-no-interface-can-have"])
def test_an_interface_that_is_not_there_is_not_seen(name):
    with pytest.raises(Unavailable, match=f"{name} tells no statistics"):
        read_statistics(name)


@needs_root
def test_a_veth_of_this_kernel_tells_the_index_of_its_peer():
    script = (
        "import json\n"
        "from kube_rdma.adapters.kernel.ethtool import read_statistics\n"
        "print(json.dumps(read_statistics('here')))"
    )
    words = f'ip link add here type veth peer name there && exec {sys.executable} -c "$0"'
    argv = ["unshare", "--net", "sh", "-c", words, script]
    printed = subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout
    assert json.loads(printed)["peer_ifindex"] > 1


FLAGS = 0x27


def driver(flags):
    """A driver with these private flags, each on or off."""

    def ask(interface, message):
        (command,) = struct.unpack_from("=I", message)
        if command == SETS:
            assert struct.unpack_from("=Q", message, 8) == (1 << 2,)
            return struct.pack("=IIQI", SETS, 0, bool(flags) << 2, len(flags))
        if command == STRINGS:
            assert struct.unpack_from("=II", message) == (STRINGS, 2)
            body = b"".join(name.encode().ljust(32, b"\0") for name in flags)
            return (struct.pack("=III", STRINGS, 2, len(flags)) + body).ljust(len(message), b"\0")
        bits = sum(on << number for number, on in enumerate(flags.values()))
        return struct.pack("=II", FLAGS, bits)

    return ask


@given(st.dictionaries(NAMES, st.booleans(), max_size=32))
def test_every_private_flag_is_on_or_off(flags):
    assert read_private_flags("eth0", driver(flags)) == flags


def test_a_driver_without_private_flags_has_none():
    def ask(interface, message):
        raise OSError(95, "Operation not supported")

    assert read_private_flags("eth0", ask) == {}
    assert read_private_flags("lo") == {}
