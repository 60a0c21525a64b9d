"""Devices that a kernel can show, drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Function, Netdev
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

GUIDS = st.integers(1, 2**64 - 1).map(lambda n: _groups(n, 4))
GID_VALUES = st.integers(1, 2**128 - 1).map(lambda n: _groups(n, 8))


def _groups(number: int, count: int) -> str:
    digits = f"{number:0{4 * count}x}"
    return ":".join(digits[i : i + 4] for i in range(0, len(digits), 4))


@st.composite
def gid_tables(draw, own: str | None, bond: str | None, layer: LinkLayer):
    """A table whose entries name the port's interface, its bond or one in a pod (net1)."""
    ethernet = layer is LinkLayer.ETHERNET
    types = [GidType.IB_OR_ROCE_V1, GidType.ROCE_V2] if ethernet else [GidType.IB_OR_ROCE_V1]
    netdevs = [None, "net1", *filter(None, (own, bond))] if ethernet else [None]
    indexes = sorted(draw(st.sets(st.integers(0, 12), max_size=4)))
    return tuple(
        Gid(i, draw(GID_VALUES), draw(st.sampled_from(types)), draw(st.sampled_from(netdevs)))
        for i in indexes
    )


@st.composite
def ports(draw, number: int, netdev: str, layer: LinkLayer):
    own = draw(st.sampled_from([None, netdev]))
    bond = draw(st.sampled_from([None, f"bond{netdev}"])) if own else None
    lids = st.one_of(st.none(), st.integers(1, 0xFFFE))
    fabric = layer is LinkLayer.INFINIBAND
    return Port(
        number=number,
        state=draw(st.sampled_from(PortState)),
        physical_state=draw(st.sampled_from(PhysicalState)),
        link_layer=layer,
        rate_gbps=draw(st.sampled_from([2.5, 10.0, 100.0, 400.0])),
        netdev=own,
        gids=draw(gid_tables(own, bond, layer)),
        lid=draw(lids) if fabric else None,
        sm_lid=draw(lids) if fabric else None,
        bond=bond,
        pkey=draw(st.sampled_from([None, 0x7FFF, 0xFFFF, 0x8001])) if fabric else None,
    )


@st.composite
def positions(draw, bus: int):
    """A function below a bridge: plain, physical with virtual ones, or virtual."""
    segment = draw(st.sampled_from(["0000:80", "10000:e0"]))
    first, *virtual = (PciAddress(f"0000:{bus:02x}:00.{n}") for n in range(4))
    root, above = f"pci{segment}", (PciAddress(f"{segment}:{bus & 15 | 16:02x}.0"),)
    node = draw(st.sampled_from([None, 0, 1]))
    kind = draw(st.sampled_from(["plain", "physical", "virtual"]))
    if kind == "virtual":
        return PciPosition(virtual[0], root, (*above, virtual[0]), node, first)
    total = draw(st.integers(0, 3)) if kind == "physical" else None
    listed = tuple(draw(st.permutations(virtual))[: total or 0])
    return PciPosition(first, root, (*above, first), node, None, listed, total)


@st.composite
def hard_devices(draw, i: int):
    position = draw(positions(0x81 + i))
    layer = draw(st.sampled_from(LinkLayer))
    count = draw(st.integers(0, 3))
    auxiliary = draw(st.sampled_from([None, f"mlx5_core.sf.{i}"]))
    return Device(
        name=f"card_{i}",
        identity=auxiliary or str(position.pci),
        node_guid=draw(GUIDS),
        node_type=draw(st.sampled_from(["CA", "RNIC", "unspecified", "<unknown>"])),
        driver=draw(st.sampled_from([None, "mlx5_core", "efa"])),
        firmware=draw(st.sampled_from([None, "16.35.4506"])),
        pci=position.pci,
        numa_node=position.numa_node,
        ports=tuple(draw(ports(n + 1, f"eth{i}p{n}", layer)) for n in range(count)),
        char_devices=draw(char_devices(i)),
        position=position,
        auxiliary=auxiliary,
        subfunction=draw(st.one_of(st.none(), st.integers(0, 99))) if auxiliary else None,
    )


@st.composite
def gpus(draw):
    """The GPUs of a node, each on a bus of its own."""
    buses = sorted(draw(st.sets(st.integers(0xC0, 0xC8), max_size=3)))
    return tuple(
        Gpu(
            draw(positions(bus)),
            draw(st.sampled_from([0x030000, 0x030200, 0x120000])),
            draw(st.integers(0, 0xFFFF)),
            draw(st.integers(0, 0xFFFF)),
            draw(st.sampled_from([None, "nvidia", "amdgpu"])),
        )
        for bus in buses
    )


@st.composite
def soft_devices(draw, i: int):
    name = f"rxe_{i}"
    port = draw(ports(1, f"veth{i}", LinkLayer.ETHERNET))
    position = draw(st.one_of(st.none(), positions(0xA1 + i))) if port.netdev else None
    return Device(
        name=name,
        identity=f"{name}@{port.netdev}" if port.netdev else name,
        node_guid=draw(GUIDS),
        node_type="CA",
        driver=None,
        firmware=None,
        pci=None,
        numa_node=position.numa_node if position else None,
        ports=(port,),
        char_devices=draw(char_devices(i)),
        position=position,
    )


@st.composite
def char_devices(draw, i: int):
    every = (
        CharDevice(CharKind.UVERBS, f"/dev/infiniband/uverbs{i}", 231, 192 + i),
        CharDevice(CharKind.ISSM, f"/dev/infiniband/issm{i}", 231, 64 + i),
        CharDevice(CharKind.UMAD, f"/dev/infiniband/umad{i}", 231, i),
    )
    return tuple(char for char in every if draw(st.booleans()))


@st.composite
def worlds(draw):
    """All the devices of a node, in the order of their names."""
    drawn = (
        draw(st.sampled_from([hard_devices, soft_devices]).flatmap(lambda kind, i=i: kind(i)))
        for i in range(draw(st.integers(0, 3)))
    )
    return tuple(sorted(drawn, key=lambda device: device.name))


@st.composite
def functions(draw, devices):
    """Functions below some of `devices` with all their virtual ones, and plain cards besides."""
    families = [_family(device) for device in devices if device.position]
    families += [
        _family(replace(device, position=draw(positions(0xB1 + i)), ports=(), driver="igb"))
        for i, device in enumerate(devices)
    ]
    found = []
    for device, members in families:
        netdevs = () if device.auxiliary else draw(netdevs_of(device))
        if not draw(st.booleans()) or (netdevs and not device.driver and device.pci):
            continue
        vendor, *ids = (draw(st.integers(0, 0xFFFF)) for _ in range(3))
        for position in members:
            virtual = position.physical_function is not None
            above = members[0].virtual_functions
            mine = position.pci == device.position.pci
            found.append(
                Function(
                    position,
                    vendor,
                    ids[virtual],
                    device.driver or (None if device.pci else "virtio-pci"),
                    netdevs if mine else (),
                    None if virtual else draw(st.sampled_from([None, 0, 101])),
                    above.index(position.pci) if virtual else None,
                )
            )
    return tuple(sorted(found, key=lambda function: function.position.pci))


def _family(device):
    """The device, and the positions of its card: the physical function, then the virtual ones."""
    position = device.position
    physical = position.physical_function
    first, node = position, position.numa_node
    if physical:
        path = (*position.path[:-1], physical)
        first = PciPosition(physical, position.root, path, node, None, (position.pci,), 1)
    others = (
        PciPosition(name, position.root, (*position.path[:-1], name), node, first.pci)
        for name in first.virtual_functions
    )
    return device, (first, *others)


@st.composite
def netdevs_of(draw, device):
    found = []
    for port in device.ports:
        if port.netdev:
            carrier = draw(st.sampled_from([None, False, True]))
            fabric = port.link_layer is LinkLayer.INFINIBAND
            kind = "infiniband" if fabric else "ether"
            netdev = Netdev(port.netdev, kind, carrier is not None, carrier)
            bridge = None if port.bond else draw(st.sampled_from([None, f"br{port.netdev}"]))
            master, bonded = port.bond or bridge, port.bond is not None
            found.append(replace(netdev, master=master, bonded=bonded))
    return tuple(found)


RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)
