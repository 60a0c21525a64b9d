"""The netlink wire: what goes out comes back, and nothing that comes in can crash us."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import (
    Attribute,
    ChangedMeanwhileError,
    Control,
    Flag,
    Message,
    Netlink,
    answer,
    decode,
    decode_attributes,
    encode,
    encode_attributes,
)

U16, U32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
MESSAGES = st.builds(Message, U16, U16, U32, st.binary(max_size=40))
ATTRIBUTES = st.builds(Attribute, st.integers(0, 0x3FFF), st.binary(max_size=20))

SEQUENCE = 7
DATA = 0x1401


def reply(*messages):
    return b"".join(map(encode, messages))


def result(code, *, kind=Control.ERROR, flags=0, more=b""):
    return Message(kind, flags, SEQUENCE, struct.pack("=i", -code) + more)


def said(text):
    return encode_attributes([Attribute(1, text.encode() + b"\0")])


REQUEST = encode(Message(DATA, Flag.REQUEST, SEQUENCE, b"12345678"))
PART = Message(DATA, Flag.MULTI, SEQUENCE, b"part")
DONE = result(0, kind=Control.DONE)


@given(st.lists(MESSAGES, max_size=4))
def test_messages_survive_the_wire(messages):
    assert decode(reply(*messages)) == tuple(messages)


@given(st.lists(ATTRIBUTES, max_size=4))
def test_attributes_survive_the_wire(attributes):
    assert decode_attributes(encode_attributes(attributes)) == tuple(attributes)


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_a_message_cut_short_is_said_to_be(messages, data):
    whole = encode(messages[-1])
    length = 16 + len(messages[-1].payload)
    cut = data.draw(st.integers(1, length - 1))
    with pytest.raises(Unavailable):
        decode(reply(*messages[:-1]) + whole[:cut])


@given(st.binary(max_size=120))
def test_garbage_is_an_answer_or_our_error(garbage):
    for read in (decode, decode_attributes, lambda data: answer([data], SEQUENCE)):
        with suppress(Unavailable, ChangedMeanwhileError):
            read(garbage)


@given(st.lists(MESSAGES, max_size=3), st.binary(max_size=60), st.sampled_from(Control), U16)
def test_garbage_inside_an_acknowledgement_is_an_answer_or_our_error(before, inside, kind, flags):
    with suppress(Unavailable, ChangedMeanwhileError):
        answer([reply(*before, Message(kind, flags, SEQUENCE, inside))], SEQUENCE)


def test_a_dump_ends_with_done_over_several_datagrams():
    assert answer([reply(PART, PART), reply(PART), reply(DONE)], SEQUENCE) == (b"part",) * 3


def test_a_single_answer_ends_with_its_acknowledgement():
    assert answer([reply(Message(DATA, 0, SEQUENCE, b"one"), result(0))], SEQUENCE) == (b"one",)


def test_messages_of_an_earlier_request_are_passed_over():
    stale = Message(Control.ERROR, 0, SEQUENCE - 1, struct.pack("=i", -errno.EPERM))
    assert answer([reply(stale, PART, DONE)], SEQUENCE) == (b"part",)


def test_a_refusal_carries_the_kernels_sentence_and_its_errno():
    flags = Flag.ACK_TLVS | Flag.CAPPED
    refused = result(errno.EPERM, flags=flags, more=REQUEST[:16] + said("not in this namespace"))
    with pytest.raises(Unavailable, match="not in this namespace") as caught:
        answer([reply(refused)], SEQUENCE)
    assert caught.value.__cause__.errno == errno.EPERM


def test_the_sentence_is_found_behind_a_request_quoted_in_full():
    refused = result(errno.EINVAL, flags=Flag.ACK_TLVS, more=REQUEST + said("no such link type"))
    with pytest.raises(Unavailable, match="no such link type"):
        answer([reply(refused)], SEQUENCE)


def test_a_refusal_without_a_sentence_says_the_errno():
    refused = result(errno.EOPNOTSUPP, more=REQUEST)
    with pytest.raises(Unavailable, match=os.strerror(errno.EOPNOTSUPP)):
        answer([reply(refused)], SEQUENCE)


@pytest.mark.parametrize("number", [-(2**31), -4096, 5])
def test_a_result_that_is_no_error_number_is_said_to_be_none(number):
    message = Message(Control.ERROR, 0, SEQUENCE, struct.pack("=i", number))
    with pytest.raises(Unavailable, match="no error number"):
        answer([encode(message)], SEQUENCE)


def test_a_dump_that_ends_in_an_error_is_refused_with_its_sentence():
    done = result(
        errno.ENODEV, kind=Control.DONE, flags=Flag.ACK_TLVS | Flag.MULTI, more=said("gone")
    )
    with pytest.raises(Unavailable, match="gone"):
        answer([reply(PART, done)], SEQUENCE)


def test_an_interrupted_dump_is_not_believed():
    torn = Message(DATA, Flag.MULTI | Flag.DUMP_INTR, SEQUENCE, b"part")
    with pytest.raises(ChangedMeanwhileError):
        answer([reply(torn, PART, DONE)], SEQUENCE)


def test_an_overrun_is_not_believed():
    with pytest.raises(ChangedMeanwhileError):
        answer([reply(PART, Message(Control.OVERRUN, 0, SEQUENCE))], SEQUENCE)


def test_an_answer_that_does_not_end_is_an_error():
    with pytest.raises(Unavailable, match="too soon"):
        answer([reply(PART)], SEQUENCE)


ROUTE, RTM_GETLINK = 0, 18


def test_the_running_kernel_answers_a_dump_and_refuses_in_words():
    """Route netlink is in every kernel; RDMA netlink speaks the same way."""
    every, nobody = (struct.pack("=BxHiII", 0, 0, index, 0, 0) for index in (0, 0x7FFFFFF0))
    with Netlink(ROUTE) as netlink:
        links = netlink.ask(RTM_GETLINK, every, dump=True)
        again = netlink.ask(RTM_GETLINK, every, dump=True)
    assert len(links) >= 1
    assert len(again) == len(links)
    with Netlink(ROUTE) as netlink, pytest.raises(Unavailable) as caught:
        netlink.ask(RTM_GETLINK, nobody)
    assert caught.value.__cause__.errno == errno.ENODEV


def test_only_the_kernel_is_believed():
    """A refusal that another socket sent to our port, ahead of the answer, changes nothing."""
    every = struct.pack("=BxHiII", 0, 0, 0, 0, 0)
    forged = encode(Message(Control.ERROR, 0, 1, struct.pack("=i", -errno.EPERM) + bytes(16)))
    with Netlink(ROUTE) as netlink, socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as forger:
        try:
            forger.sendto(forged, netlink._socket.getsockname())
        except PermissionError:
            pytest.skip("only root may write to another's port")
        assert netlink.ask(RTM_GETLINK, every, dump=True)


def test_an_unknown_family_is_an_error_of_the_system():
    with pytest.raises(OSError, match=os.strerror(errno.EPROTONOSUPPORT)):
        Netlink(31)
