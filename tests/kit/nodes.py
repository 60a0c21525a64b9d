"""Nodes and wishes for pools, made by hand or drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Card, CardId, Function, Netdev
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.pools import FunctionRange, Mode, PoolSpec, Preference, Selector
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict
from kube_rdma.pools.rules.selection import cards

RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)
CHAR_KINDS = (CharKind.UVERBS, CharKind.UMAD, CharKind.ISSM)
DOWN = "no port is ACTIVE"


def position(bus, number=0, *, numa=0, physical=None, virtual=()):
    """The function 0000:<bus>:00.<number> below a root port of its own."""
    pci = PciAddress(f"0000:{bus:02x}:00.{number}")
    path = (PciAddress(f"0000:00:{bus & 31:02x}.0"), pci)
    return PciPosition(pci, "pci0000:00", path, numa, physical, virtual)


def function(where, *netdevs, vendor=0x15B3, driver="mlx5_core", vf=None):
    """A ConnectX-7 at a position; its interfaces by name, up and with a link."""
    interfaces = tuple(Netdev(name, "ether", True, True) for name in netdevs)
    return Function(where, vendor, 0x1021, driver, interfaces, vf_index=vf)


def physical_with_virtual(bus, count, netdev="ens1f0", numa=0):
    """A physical function and its virtual ones, each a Function."""
    below = tuple(PciAddress(f"0000:{bus:02x}:00.{n + 1}") for n in range(count))
    above = function(position(bus, numa=numa, virtual=below), netdev)
    parts = [
        function(
            position(bus, n + 1, numa=numa, physical=above.position.pci), f"{netdev}v{n}", vf=n
        )
        for n in range(count)
    ]
    return (above, *parts)


def device(number, where=None, netdev=None, kinds=(CharKind.UVERBS,), **facts):
    """An RDMA device with one active port."""
    char_devices = tuple(CharDevice(k, f"/dev/infiniband/{k}{number}", 231, number) for k in kinds)
    port = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, netdev, ())
    name = f"mlx5_{number}" if where else f"rxe{number}"
    known = Device(name, name, None, "CA", None, None, None, None, (port,), char_devices)
    if where:
        known = replace(known, identity=where.pci, position=where, pci=where.pci)
        known = replace(known, numa_node=where.numa_node)
    return replace(known, **facts)


def hard_card(bus, number=0, *reasons, numa=0, kinds=(CharKind.UVERBS,)):
    """A physical card with one RDMA device."""
    where = position(bus, numa=numa)
    found = device(number, where, f"eth{number}", kinds)
    return Card(CardId(where.pci), (found,), function(where, f"eth{number}"), reasons)


@dataclass(frozen=True)
class Node:
    """A survey with the verdicts on its devices."""

    survey: Survey
    verdicts: tuple[Verdict, ...]

    @property
    def cards(self):
        return cards(self.survey, self.verdicts)


def node(*functions, devices=(), ill=(), rdma_cm=RDMA_CM):
    """A node of these functions and devices; those named in `ill` cannot be used."""
    survey = Survey(tuple(devices), rdma_cm, NamespaceMode.SHARED, functions=tuple(functions))
    return Node(survey, tuple(Verdict(d, (DOWN,) if d.name in ill else ()) for d in devices))


@st.composite
def nodes(draw):
    """Up to three slots: a card with virtual functions or sub-functions, a soft device, nothing.

    At most one interface carries the default route; a function may have no RDMA device, as in a
    pod, and a device may be ill.
    """
    functions, devices = [], []
    for slot in range(draw(st.integers(0, 3))):
        number = 10 * slot
        if draw(st.booleans()):
            devices.append(device(number, None, f"veth{slot}", draw(char_kinds())))
            continue
        count = draw(st.integers(0, 3))
        found = physical_with_virtual(0x10 + slot, count, f"ens{slot}f0", draw(NUMA))
        functions += [replace(f, vendor=draw(st.sampled_from([0x15B3, 0x8086]))) for f in found]
        for place, each in enumerate(found):
            if draw(st.booleans()):
                netdev = each.netdevs[0].name
                devices.append(device(number + place, each.position, netdev, draw(char_kinds())))
        if draw(st.booleans()):
            name = f"mlx5_core.sf.{number + 5}"
            facts = {"identity": name, "auxiliary": name, "subfunction": slot}
            devices.append(device(number + 5, found[0].position, None, draw(char_kinds()), **facts))
    if functions and draw(st.booleans()):
        place = draw(st.integers(0, len(functions) - 1))
        route = tuple(replace(n, default_route=True) for n in functions[place].netdevs)
        functions[place] = replace(functions[place], netdevs=route)
    ill = draw(st.sets(st.sampled_from([d.name for d in devices]))) if devices else set()
    return node(
        *functions, devices=devices, ill=ill, rdma_cm=draw(st.sampled_from([RDMA_CM, None]))
    )


NUMA = st.sampled_from([None, 0, 1])


def char_kinds():
    """Some kinds of device nodes of a device."""
    return st.lists(st.sampled_from(CHAR_KINDS), unique=True).map(tuple)


RANGES = st.builds(
    FunctionRange,
    parent=st.sampled_from(["ens0f0", "ens1f0", "0000:10:00.0"]),
    indexes=st.sampled_from([(), ((0, 0),), ((1, 2),)]),
)
SELECTORS = st.builds(
    Selector,
    vendors=st.sampled_from([(), ("15b3",), ("8086",), ("15b3", "8086")]),
    interfaces=st.sampled_from([(), (), ("ens0f0",), ("ens1f0", "veth0")]),
    physical=st.one_of(st.just(()), st.tuples(RANGES)),
    auxiliary_types=st.sampled_from([(), (), ("sf",)]),
    rdma=st.sampled_from([None, None, True, False]),
)


def specs(count=3, modes=tuple(Mode)):
    """Wishes for up to `count` resources, few shares each."""
    return st.lists(
        st.builds(
            PoolSpec,
            resource=st.just(""),
            mode=st.sampled_from(modes),
            source=st.just(""),
            selectors=st.lists(SELECTORS, max_size=2).map(tuple),
            shares=st.sampled_from([None, 1, 3]),
            prefer=st.sampled_from([None, *Preference]),
            numa_hints=st.booleans(),
        ),
        min_size=1,
        max_size=count,
    ).map(lambda wishes: tuple(_named(n, wish) for n, wish in enumerate(wishes)))


def _named(number, wish):
    return replace(wish, resource=f"rdma/r{number}", source=f"config.json:{number + 1}")
