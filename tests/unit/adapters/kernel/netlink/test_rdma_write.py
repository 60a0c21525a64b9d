"""Soft RDMA devices by netlink: a name that is about to be free is waited for, no other is."""

import errno
import struct

import pytest

from kube_base.errors import KubeError, Refused
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.adapters.kernel.netlink.rdma_read import Attr
from kube_rdma.adapters.kernel.netlink.rdma_write import make_device
from kube_rdma.model.attach.steps import MakeRdma
from kube_rdma_testing.kernel.network import refusal

GET, NEWLINK, PORT_GET = ((5 << 10) | command for command in (1, 3, 5))
STEP = MakeRdma("rxe-1", "rxe", "net1")


def u32(number):
    return struct.pack("=I", number)


class Netlink:
    """RDMA netlink of a kernel that has devices by name, each with its interface, or without.

    It refuses so many NEWLINKs.
    """

    def __init__(self, refused, present, code=errno.ENFILE):
        self.refused, self.present, self.code = refused, present, code
        self.made = False

    def ask(self, kind, body=b"", *, dump=False):
        if kind == NEWLINK:
            if self.refused:
                self.refused -= 1
                raise refusal(self.code)
            self.made = True
            return ()
        if kind == PORT_GET:
            return (self._port(list(self.present.values())[self._index(body)]),)
        return tuple(map(self._device, enumerate(self.present)))

    def _index(self, body):
        (index,) = struct.unpack_from("=I", body, 4)
        return index

    def _device(self, numbered):
        index, name = numbered
        attributes = [Attribute(Attr.DEV_INDEX, u32(index))]
        return encode_attributes([*attributes, Attribute(Attr.DEV_NAME, name.encode() + b"\0")])

    def _port(self, netdev):
        attributes = [Attribute(Attr.PORT_INDEX, u32(1))]
        if netdev:
            attributes.append(Attribute(Attr.NDEV_NAME, netdev.encode() + b"\0"))
        return encode_attributes(attributes)


@pytest.mark.parametrize(
    "present", [{}, {"rxe-1": None}, {"rxe0": "eth0"}, {"rxe-1": None, "rxe0": "eth0"}]
)
def test_a_name_that_is_about_to_be_free_is_waited_for(present):
    """Its device is shown without an interface, and then not at all."""
    netlink = Netlink(3, present)
    make_device(netlink, STEP)
    assert netlink.made


def test_a_device_that_is_there_is_not_made_again():
    netlink = Netlink(1, {"rxe-1": "net1"})
    make_device(netlink, STEP)
    assert not netlink.made


@pytest.mark.parametrize(
    ("present", "why"),
    [
        ({"rxe-1": "eth0"}, "a device of this name is on another interface"),
        ({"rxe0": "net1"}, "it has rxe0 already"),
        ({"rxe-1": None, "rxe0": "net1"}, "it has rxe0 already"),
    ],
)
def test_what_stays_is_said_at_once(present, why):
    netlink = Netlink(1, present)
    with pytest.raises(Refused, match=why):
        make_device(netlink, STEP)
    assert netlink.refused == 0


def test_a_name_that_never_gets_free_is_said_in_the_end():
    with pytest.raises(Refused, match="a device of this name is on another interface"):
        make_device(Netlink(1000, {}), STEP, patience=0.05)


def test_another_refusal_is_no_matter_of_names():
    with pytest.raises(KubeError, match="rxe-1 on net1"):
        make_device(Netlink(1, {}, code=errno.EPERM), STEP)
