"""RDMA netlink: answers become values, and the two readings of one kernel become one Survey."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kernel.netlink import rdma_read
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.device import PhysicalState, PortState, QueuePair
from kube_rdma.model.survey import Fault, NamespaceMode
from kube_rdma_lab.native.tree_text import unpack

TREES = Path(__file__).parents[4] / "data/trees"


def payload(**values):
    """An answer's payload: numbers as (format, number), strings as themselves."""
    return encode_attributes(
        Attribute(
            rdma_read.Attr[name],
            value.encode() + b"\0" if isinstance(value, str) else struct.pack(*value),
        )
        for name, value in values.items()
    )


@given(
    st.integers(0, 0xFFFFFFFF),
    st.from_regex(r"[a-z0-9_]{1,20}", fullmatch=True),
    st.one_of(st.none(), st.from_regex(r"[0-9.]{1,12}", fullmatch=True)),
)
def test_a_device_is_read_from_its_attributes(index, name, firmware):
    values = {"DEV_INDEX": ("=I", index), "DEV_NAME": name}
    values |= {"FW_VERSION": firmware} if firmware else {}
    assert rdma_read.decode_device(payload(**values)) == link_view.LinkDevice(index, name, firmware)


@pytest.mark.parametrize(
    ("number", "state"), [(1, PortState.DOWN), (4, PortState.ACTIVE), (9, None)]
)
def test_a_port_is_read_from_its_attributes(number, state):
    data = payload(
        PORT_INDEX=("=I", 1), PORT_STATE=("=B", number), PORT_PHYS_STATE=("=B", 5), NDEV_NAME="eth0"
    )
    assert rdma_read.decode_port(data) == link_view.LinkPort(
        1, state, PhysicalState.LINK_UP, "eth0"
    )


def test_what_an_answer_does_not_carry_is_not_made_up():
    assert rdma_read.decode_port(payload(PORT_INDEX=("=I", 2))) == link_view.LinkPort(
        2, None, None, None
    )


@pytest.mark.parametrize(
    ("answers", "mode"),
    [
        ([payload(NETNS_MODE=("=B", 1))], NamespaceMode.SHARED),
        ([payload(NETNS_MODE=("=B", 0))], NamespaceMode.EXCLUSIVE),
        ([payload(DEV_INDEX=("=I", 1))], NamespaceMode.UNKNOWN),
        ([], NamespaceMode.UNKNOWN),
    ],
)
def test_the_namespace_mode_is_shared_exclusive_or_not_told(answers, mode):
    assert rdma_read.decode_mode(*answers) is mode


@given(st.binary(max_size=60))
def test_garbage_is_a_value_or_unavailable(garbage):
    for read in (rdma_read.decode_device, rdma_read.decode_port, rdma_read.decode_mode):
        with suppress(Unavailable):
            read(garbage)


@pytest.mark.parametrize(
    "data",
    [
        payload(DEV_INDEX=("=B", 1), DEV_NAME="rxe0"),
        payload(DEV_INDEX=("=I", 1)),
        payload(DEV_NAME="rxe0"),
        encode_attributes([Attribute(rdma_read.Attr.DEV_NAME, b"\xff")]),
    ],
)
def test_a_device_without_index_or_name_is_refused(data):
    with pytest.raises(Unavailable):
        rdma_read.decode_device(data)


@pytest.fixture(scope="module")
def soft(tmp_path_factory):
    root = tmp_path_factory.mktemp("rxe")
    unpack((TREES / "rxe-two/tree.txt").read_text(), root)
    return read_survey(root)


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    root = tmp_path_factory.mktemp("mlx5")
    unpack((TREES / "mlx5-dual-port/tree.txt").read_text(), root)
    return read_survey(root)


def view_of(survey, netdev="same", **changes):
    """What netlink says when it agrees with sysfs, but for `changes` of every port."""
    devices = []
    for index, device in enumerate(survey.devices):
        ports = tuple(
            replace(
                link_view.LinkPort(p.number, p.state, p.physical_state, p.netdev),
                **changes | ({} if netdev == "same" else {"netdev": netdev}),
            )
            for p in device.ports
        )
        devices.append(link_view.LinkDevice(index, device.name, device.firmware, ports))
    return link_view.LinkView(tuple(devices), NamespaceMode.SHARED)


def test_where_both_agree_only_the_namespace_mode_is_new(hard, soft):
    for survey in (hard, soft):
        assert link_view.merge(survey, view_of(survey)) == replace(
            survey, namespace_mode=NamespaceMode.SHARED
        )


def test_netlink_wins_on_state_firmware_and_interface(hard):
    view = view_of(hard, netdev="bond0", state=PortState.ARMED)
    view = replace(view, devices=tuple(replace(d, firmware="99") for d in view.devices))
    device = link_view.merge(hard, view).devices[0]
    port = device.ports[0]
    assert (port.state, port.netdev, device.firmware) == (PortState.ARMED, "bond0", "99")
    assert (port.gids, port.rate_gbps) == (hard.devices[0].ports[0].gids, 100.0)


@pytest.mark.parametrize(("netdev", "bond"), [(None, "bond0"), ("bond0", "bond0"), ("eth9", None)])
def test_a_bond_stays_unless_netlink_names_another_interface(hard, netdev, bond):
    port = replace(hard.devices[0].ports[0], bond="bond0")
    bonded = replace(hard, devices=(replace(hard.devices[0], ports=(port,)),))
    assert link_view.merge(bonded, view_of(bonded, netdev=netdev)).devices[0].ports[0].bond == bond


def test_silence_of_netlink_takes_nothing_from_hardware(hard):
    view = view_of(hard, netdev=None, state=None, physical_state=None)
    assert link_view.merge(hard, view).devices == hard.devices


def test_a_soft_link_in_a_pod_has_no_interface_here_and_keeps_its_identity(soft):
    device = link_view.merge(soft, view_of(soft, netdev=None)).devices[0]
    assert (device.identity, device.ports[0].netdev) == ("rxe0@eth0", None)
    assert (device.position, device.numa_node) == (None, None)


def test_a_soft_link_that_sysfs_cannot_place_is_placed_by_netlink(soft):
    unplaced = replace(soft, devices=(replace(soft.devices[0], identity="rxe0"),))
    assert link_view.merge(unplaced, view_of(soft)).devices[0].identity == "rxe0@eth0"


def test_a_device_that_only_one_of_them_shows_is_a_fault(soft):
    view = view_of(soft)
    faults = link_view.merge(replace(soft, devices=soft.devices[:1]), view).faults
    assert [f.path for f in faults] == ["class/infiniband/rxe1"]
    assert "sysfs does not" in faults[0].reason
    faults = link_view.merge(soft, replace(view, devices=view.devices[1:])).faults
    assert faults == (
        Fault("class/infiniband/rxe0", "sysfs shows this device, RDMA netlink does not"),
    )


def test_the_running_kernel_answers_or_says_that_it_has_no_rdma():
    try:
        found = " ".join(device.name for device in rdma_read.read_links().devices)
    except Unavailable as error:
        found = str(error)
    # /sys/class/infiniband is there exactly when ib_core is loaded.
    assert ("no RDMA netlink" in found) is not Path("/sys/class/infiniband").exists()


NESTED = 0x8000  # NLA_F_NESTED
QP, ENTRY, LQPN, QP_TYPE, QP_STATE, QP_PID, KERN_NAME = 19, 20, 21, 26, 27, 28, 29


def entry(kind, state, pid=None, name=None):
    """A queue pair: of a process it has a pid, of the kernel a name."""
    parts = [
        Attribute(LQPN, struct.pack("=I", 17)),
        Attribute(QP_TYPE, struct.pack("=B", kind)),
        Attribute(QP_STATE, struct.pack("=B", state)),
    ]
    if pid is not None:
        parts.append(Attribute(QP_PID, struct.pack("=I", pid)))
    if name is not None:
        parts.append(Attribute(KERN_NAME, name.encode() + b"\0"))
    return Attribute(ENTRY | NESTED, encode_attributes(parts))


def table(*entries):
    index = Attribute(1, struct.pack("=I", 3))
    return encode_attributes([index, Attribute(QP | NESTED, encode_attributes(entries))])


def test_queue_pairs_of_processes_are_read():
    answer = table(
        entry(1, 3, name="ib_core"),
        entry(2, 3, 77),
        entry(4, 1, 78),
        entry(255, 3, 77),
        entry(42, 0, 79),
        entry(2, 3, 0),  # its process is a zombie
    )
    assert list(rdma_read.decode_queue_pairs("mlx5_0", answer)) == [
        QueuePair("mlx5_0", "RC", 77, ready=True),
        QueuePair("mlx5_0", "UD", 78),
        QueuePair("mlx5_0", "DRIVER", 77, ready=True),
        QueuePair("mlx5_0", "42", 79),
    ]


def test_a_device_without_queue_pairs_answers_an_empty_table():
    assert list(rdma_read.decode_queue_pairs("mlx5_0", table())) == []
    assert list(rdma_read.decode_queue_pairs("mlx5_0", b"")) == []


@given(st.binary(max_size=200))
def test_nonsense_of_queue_pairs_is_unavailable_or_nothing(payload):
    try:
        for pair in rdma_read.decode_queue_pairs("mlx5_0", payload):
            assert pair.pid
    except Unavailable:
        pass


def test_half_a_queue_pair_is_refused():
    with pytest.raises(Unavailable):
        list(rdma_read.decode_queue_pairs("mlx5_0", table(entry(2, 3, 7))[:-1]))
