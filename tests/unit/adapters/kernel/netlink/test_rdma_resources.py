"""Queue pairs out of the kernel's answer to RES_QP_GET, laid out as fill_res_qp_entry does."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.adapters.kernel.netlink.rdma_read import decode_queue_pairs
from kube_rdma.model.device import QueuePair

NESTED = 0x8000  # NLA_F_NESTED
QP, ENTRY, LQPN, TYPE, STATE, PID, KERN_NAME = 19, 20, 21, 26, 27, 28, 29


def entry(kind, state, pid=None, name=None):
    """A queue pair: of a process it has a pid, of the kernel a name."""
    parts = [
        Attribute(LQPN, struct.pack("=I", 17)),
        Attribute(TYPE, struct.pack("=B", kind)),
        Attribute(STATE, struct.pack("=B", state)),
    ]
    if pid is not None:
        parts.append(Attribute(PID, struct.pack("=I", pid)))
    if name is not None:
        parts.append(Attribute(KERN_NAME, name.encode() + b"\0"))
    return Attribute(ENTRY | NESTED, encode_attributes(parts))


def table(*entries):
    index = Attribute(1, struct.pack("=I", 3))
    return encode_attributes([index, Attribute(QP | NESTED, encode_attributes(entries))])


def test_those_of_processes_are_read():
    answer = table(
        entry(1, 3, name="ib_core"),
        entry(2, 3, 77),
        entry(4, 1, 78),
        entry(255, 3, 77),
        entry(42, 0, 79),
        entry(2, 3, 0),  # its process is a zombie
    )
    assert list(decode_queue_pairs("mlx5_0", answer)) == [
        QueuePair("mlx5_0", "RC", 77, ready=True),
        QueuePair("mlx5_0", "UD", 78),
        QueuePair("mlx5_0", "DRIVER", 77, ready=True),
        QueuePair("mlx5_0", "42", 79),
    ]


def test_a_device_without_any_answers_an_empty_table():
    assert list(decode_queue_pairs("mlx5_0", table())) == []
    assert list(decode_queue_pairs("mlx5_0", b"")) == []


@given(st.binary(max_size=200))
def test_nonsense_is_unavailable_or_nothing(payload):
    try:
        for pair in decode_queue_pairs("mlx5_0", payload):
            assert pair.pid
    except Unavailable:
        pass


def test_half_an_attribute_is_refused():
    with pytest.raises(Unavailable):
        list(decode_queue_pairs("mlx5_0", table(entry(2, 3, 7))[:-1]))
