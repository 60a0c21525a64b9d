"""PFC, trust and ECN as the kernel tells them: bytes of dcbnl_ieee_fill, and files of MLNX_OFED."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink import dcb
from kube_rdma.adapters.kernel.netlink.codec import decode_attributes
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.doctor import ObservedFlowControl
from kube_rdma_lab.native.tree_text import write
from tests.kit.dcb import answer


@pytest.mark.parametrize(
    ("facts", "driver", "seen"),
    [
        ({"pfc": 0}, "mlx5_core", ((), "pcp")),
        ({"pfc": 0b1000, "dscp": 64}, "mlx5_core", ((3,), "dscp")),
        ({"pfc": 0b100001, "dscp": 1}, "ice", ((0, 5), "")),
        ({"pfc": 0xFF, "trusted": (5, 255)}, "ice", (tuple(range(8)), "dscp, pcp")),
        ({"trusted": (255,), "dscp": 4}, "mlx5_core", (None, "pcp")),
        ({"trusted": (1,)}, "sparx5", (None, "1")),
        ({}, "bnxt_en", (None, "")),
    ],
)
def test_an_answer_tells_priorities_and_the_trusted_field(facts, driver, seen):
    decoded = dcb.decode_flow_control(answer("eth0", **facts), "eth0", driver)
    assert decoded == ObservedFlowControl("eth0", *seen)


def test_a_request_names_the_interface():
    """DCB_CMD_IEEE_GET with DCB_ATTR_IFNAME, a text that ends with a zero."""
    asked = dcb.request("ens1f0np0")
    assert asked[:4] == bytes([0, 21, 0, 0])
    (name,) = decode_attributes(asked[4:])
    assert (name.type, name.value) == (1, b"ens1f0np0\0")


@given(st.binary(max_size=200))
def test_no_answer_is_too_strange(payload):
    try:
        seen = dcb.decode_flow_control(payload, "eth0", "mlx5_core")
    except Unavailable:
        return
    assert set(seen.pfc or ()) <= set(range(8))


@given(st.integers(0, 255))
def test_every_priority_of_the_mask_is_told(mask):
    seen = dcb.decode_flow_control(answer("eth0", pfc=mask), "eth0", "")
    assert sum(1 << number for number in seen.pfc) == mask


def test_ecn_is_told_by_files_for_each_priority(tmp_path):
    folder = "class/net/eth0/ecn/roce_np/enable"
    for number in range(8):
        write(tmp_path, f"{folder}/{number}", str(int(number in (3, 5))))
    tree = SysfsTree(tmp_path)
    assert dcb.read_ecn(tree, "eth0") == (3, 5)
    assert dcb.read_ecn(tree, "eth1") is None
    (tmp_path / folder / "7").unlink()
    assert dcb.read_ecn(tree, "eth0") is None


def test_this_kernel_says_nothing_of_an_interface_without_dcb():
    """The loopback interface has no driver that could."""
    with pytest.raises(Unavailable, match="no driver of a RoCE port"):
        dcb.read_flow_control([("lo", "")])
    assert dcb.read_flow_control([]) == ()


def test_a_struct_that_is_too_short_tells_no_pfc():
    cut = struct.pack("=BBH", 0, 21, 0) + struct.pack("=HH", 8, 13) + struct.pack("=HH", 4, 2)
    assert dcb.decode_flow_control(cut, "eth0", "").pfc is None
