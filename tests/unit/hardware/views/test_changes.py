"""What is told of two pictures: nothing when they are equal, everything when they are not."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.hardware.views.changes import ChangeKind, changes, entry, line
from kube_rdma.lib.json_values import camel_case
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    Gpu,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import Fault, NamespaceMode, Survey

AT = datetime(2026, 3, 1, 12, 30, 5, 42_000, tzinfo=UTC)
PCI = [PciAddress(f"0000:81:00.{i}") for i in range(3)]
POSITIONS = [
    PciPosition(PCI[0], "pci0000:80", (PCI[0],), 1),
    PciPosition(PCI[0], "pci0000:80", (PCI[0],), 1, None, (PCI[1], PCI[2]), 8),
    PciPosition(PCI[1], "pci0000:80", (PCI[1],), 1, PCI[0]),
]
GIDS = [
    Gid(0, "fe80:0000:0000:0000:0000:0000:0000:0001", GidType.ROCE_V2, "eth0"),
    Gid(1, "0000:0000:0000:0000:0000:ffff:0a00:0001", GidType.ROCE_V2, "eth0"),
    Gid(1, "0000:0000:0000:0000:0000:ffff:0a00:0002", GidType.ROCE_V2, "net1"),
]
UVERBS = CharDevice(CharKind.UVERBS, "/dev/infiniband/uverbs0", 231, 192)
RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)


def ports(number):
    return st.builds(
        Port,
        number=st.just(number),
        state=st.sampled_from([PortState.ACTIVE, PortState.DOWN]),
        physical_state=st.just(PhysicalState.LINK_UP),
        link_layer=st.just(LinkLayer.ETHERNET),
        rate_gbps=st.sampled_from([None, 100.0]),
        netdev=st.sampled_from([None, "eth0"]),
        gids=st.sampled_from([(), tuple(GIDS[:1]), tuple(GIDS[:2]), (GIDS[0], GIDS[2])]),
        lid=st.sampled_from([None, 7]),
        bond=st.sampled_from([None, "bond0"]),
    )


def devices(name):
    return st.builds(
        Device,
        name=st.just(name),
        identity=st.sampled_from([PCI[0], f"{name}@eth0"]),
        node_guid=st.just(None),
        node_type=st.just("CA"),
        driver=st.sampled_from([None, "mlx5_core"]),
        firmware=st.sampled_from(["1.0", "1.1"]),
        pci=st.sampled_from([None, PCI[0]]),
        numa_node=st.sampled_from([None, 0]),
        ports=st.sampled_from([(), (1,), (1, 2)]).flatmap(
            lambda numbers: st.tuples(*(ports(n) for n in numbers))
        ),
        char_devices=st.sampled_from([(), (UVERBS,)]),
        position=st.sampled_from([None, *POSITIONS]),
    )


def gpus(i):
    return st.builds(
        Gpu,
        position=st.just(PciPosition(PCI[i], "pci0000:80", (PCI[i],), 1)),
        pci_class=st.just(0x030200),
        vendor=st.just(0x10DE),
        device=st.sampled_from([1, 2]),
        driver=st.sampled_from([None, "nvidia"]),
    )


@st.composite
def surveys(draw):
    shown = draw(st.lists(st.sampled_from(["mlx5_0", "mlx5_1", "rxe0"]), unique=True))
    return Survey(
        devices=tuple(draw(devices(name)) for name in sorted(shown)),
        rdma_cm=draw(st.sampled_from([None, RDMA_CM])),
        namespace_mode=draw(st.sampled_from(NamespaceMode)),
        gpus=tuple(draw(gpus(i)) for i in sorted(draw(st.sets(st.integers(0, 2))))),
    )


def apply(survey, found):
    """What `found` makes of a survey: the check that a list of changes is complete."""
    shown = {device.name: device for device in survey.devices}
    accelerators = {gpu.position.pci: gpu for gpu in survey.gpus}
    for change in found:
        if change.kind is ChangeKind.NODE:
            survey = replace(survey, **{change.what: change.after})
        elif change.kind is ChangeKind.PORT:
            shown[change.subject] = with_port(shown[change.subject], change)
        else:
            things = shown if change.kind is ChangeKind.DEVICE else accelerators
            if change.event == "vanished":
                del things[change.subject]
            elif change.event == "appeared":
                things[change.subject] = change.after
            else:
                old = things[change.subject]
                names = dict(zip(old.__struct_encode_fields__, old.__struct_fields__, strict=True))
                things[change.subject] = replace(old, **{names[change.what]: change.after})
    return replace(
        survey,
        devices=tuple(shown[name] for name in sorted(shown)),
        gpus=tuple(accelerators[pci] for pci in sorted(accelerators)),
    )


def with_port(device, change):
    shown = {port.number: port for port in device.ports}
    if change.event == "vanished":
        del shown[change.port]
    elif change.event == "appeared":
        shown[change.port] = change.after
    else:
        shown[change.port] = replace(shown[change.port], **{change.what: change.after})
    return replace(device, ports=tuple(shown[number] for number in sorted(shown)))


@given(surveys())
def test_equal_pictures_differ_in_nothing(survey):
    assert changes(survey, survey) == ()


@given(surveys(), surveys())
def test_the_changes_lead_from_one_picture_to_the_other(before, after):
    assert apply(before, changes(before, after)) == after


@given(surveys(), surveys())
def test_the_way_back_is_the_same_way(before, after):
    there = {(c.kind, c.subject, c.port, c.what, c.before, c.after) for c in changes(before, after)}
    back = {(c.kind, c.subject, c.port, c.what, c.after, c.before) for c in changes(after, before)}
    assert there == back


@given(surveys(), surveys())
def test_every_change_is_one_line_and_one_json_line(before, after):
    for change in changes(before, after):
        assert "\n" not in line(change, AT)
        shown = json.loads(json.dumps(entry(change, AT)))
        assert shown["event"] in {"appeared", "vanished", "changed"}


PORT = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, "eth0", ())
CARD = Device(
    "mlx5_0", PCI[0], None, "CA", "mlx5_core", "1.0", PCI[0], 1, (PORT,), (UVERBS,), POSITIONS[0]
)
EMPTY = Survey((), None, NamespaceMode.SHARED)
ONE = replace(EMPTY, devices=(CARD,))


def lines(before, after):
    return [line(change, AT) for change in changes(before, after)]


def port_changed(**values):
    return replace(ONE, devices=(replace(CARD, ports=(replace(PORT, **values),)),))


def test_a_device_comes_and_goes():
    assert lines(EMPTY, ONE) == [
        "12:30:05.042  mlx5_0: appeared, mlx5_core, 0000:81:00.0, port 1 ACTIVE on eth0"
    ]
    assert lines(ONE, EMPTY) == ["12:30:05.042  mlx5_0: vanished"]


def test_a_port_changes():
    down = port_changed(state=PortState.DOWN, physical_state=PhysicalState.DISABLED)
    assert lines(ONE, down) == [
        "12:30:05.042  mlx5_0 port 1: state ACTIVE → DOWN",
        "12:30:05.042  mlx5_0 port 1: physical state LinkUp → Disabled",
    ]
    assert lines(ONE, port_changed(rate_gbps=25.0, netdev=None)) == [
        "12:30:05.042  mlx5_0 port 1: rate 100G → 25G",
        "12:30:05.042  mlx5_0 port 1: netdev eth0 → -",
    ]


def test_gids_are_counted_and_an_exchange_is_seen():
    one, other = port_changed(gids=(GIDS[0], GIDS[1])), port_changed(gids=(GIDS[0], GIDS[2]))
    assert lines(ONE, one) == ["12:30:05.042  mlx5_0 port 1: GIDs 0 → 2 (2 new, 0 gone)"]
    assert lines(one, other) == ["12:30:05.042  mlx5_0 port 1: GIDs 2 → 2 (1 new, 1 gone)"]


def test_virtual_functions_device_nodes_gpus_and_the_node():
    gpu = Gpu(POSITIONS[2], 0x030200, 0x10DE, 0x2330, "nvidia")
    after = Survey(
        (replace(CARD, position=POSITIONS[1], char_devices=()),),
        RDMA_CM,
        NamespaceMode.EXCLUSIVE,
        gpus=(gpu,),
    )
    assert lines(ONE, after) == [
        "12:30:05.042  mlx5_0: character devices uverbs0 → -",
        "12:30:05.042  mlx5_0: PCI position 0000:81:00.0 with 0 VFs → 0000:81:00.0 with 2 VFs",
        "12:30:05.042  GPU 0000:81:00.1: appeared, nvidia",
        "12:30:05.042  node: rdma_cm - → rdma_cm",
        "12:30:05.042  node: RDMA namespace mode shared → exclusive",
    ]


def test_faults_are_no_news():
    assert changes(ONE, replace(ONE, faults=(Fault("class/x", "is empty"),))) == ()


def test_a_change_key_by_key():
    (change,) = changes(ONE, port_changed(gids=(GIDS[0],)))
    assert json.loads(json.dumps(entry(change, AT))) == {
        "time": "2026-03-01T12:30:05.042+00:00",
        "event": "changed",
        "kind": "port",
        "subject": "mlx5_0",
        "port": 1,
        "what": "gids",
        "before": [],
        "after": [
            {
                "index": 0,
                "value": "fe80:0000:0000:0000:0000:0000:0000:0001",
                "type": "RoCE v2",
                "netdev": "eth0",
            }
        ],
    }


def test_the_whole_device_stands_in_the_entry_of_one_that_appeared():
    (change,) = changes(EMPTY, ONE)
    shown = json.loads(json.dumps(entry(change, AT)))
    assert (shown["event"], shown["what"], shown["before"]) == ("appeared", None, None)
    assert {*map(camel_case, Device.__struct_encode_fields__)} <= shown["after"].keys()
