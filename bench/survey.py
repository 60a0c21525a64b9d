"""How long a survey of the largest nodes takes, in time and in CPU.

One has 16 cards × 256 GIDs × 128 plain virtual functions, without RDMA devices of their own. The
other has 8 cards × 128 virtual functions with an RDMA device each, whose GID table is as long as
mlx5's; of it the agent reads the first entry (`brief`), `kube-rdma devices` reads all.

The nodes are made up in a temporary folder, so what is measured is our own part: the kernel takes
longer to answer some files of a real sysfs than a file system of memory does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma_testing.kernel.tree import write_tree

CARDS, GIDS, VIRTUAL = 16, 256, 128
ROUNDS = 7
RDMA_CARDS, TABLE = 8, 255  # MLX5_CAP_ROCE: roce_address_table_size


def measure(context: Context) -> Iterator[Row]:
    """Take the survey of both nodes; medians of some times in this process."""
    for name, part in (("large_node", _of_cards), ("rdma_functions", _of_functions)):
        yield from attempt(name, partial(part, context))


def _of_cards(context: Context) -> Iterator[Figure]:
    count = context.times(CARDS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        begin = time.perf_counter()
        cards = [card(number) for number in range(count)]
        write_tree(root, cards, functions=[each for one in cards for each in functions(one)])
        built = time.perf_counter() - begin
        times = [seconds(root, count) for _ in range(context.times(ROUNDS, 1))]
    spread = f"{min(times) * 1000:.0f}–{max(times) * 1000:.0f} ms; written in {built:.1f} s"
    yield Figure("large_node_ms", median(times) * 1000, "ms", "≤ 300", spread)


def _of_functions(context: Context) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        cards = [card(number) for number in range(context.times(RDMA_CARDS))]
        parts = [each for one in cards for each in functions(one)]
        most = context.times(VIRTUAL, 4)
        below = [each for each in parts if each.vf_index is not None and each.vf_index < most]
        devices = [virtual_device(number, one) for number, one in enumerate(below)]
        netdevs = {one.position.pci: one.ports[0].netdev for one in devices if one.position}
        parts = [_with_netdev(one, netdevs.get(one.position.pci)) for one in parts]
        write_tree(root, sorted((*cards, *devices), key=lambda one: one.name), functions=parts)
        count = len(cards) * (most + 1)
        rounds = context.times(ROUNDS, 1)
        whole, brief = (
            median(cpu_seconds(root, count, brief=brief) for _ in range(rounds))
            for brief in (False, True)
        )
    note = f"{count} devices, {brief / count * 1000:.2f} ms each"
    yield Figure("rdma_functions_cpu_s", brief, "s", "≤ 0.5", note)
    yield Figure("brief_ratio", whole / brief, "×", "", f"whole tables: {whole:.2f} s CPU")


def cpu_seconds(root: Path, devices: int, *, brief: bool) -> float:
    """Return the CPU time of one survey."""
    begin = time.process_time()
    survey = read_survey(root, brief=brief)
    taken = time.process_time() - begin
    assert len(survey.devices) == devices
    assert not survey.faults
    return taken


def virtual_device(number: int, function: Function) -> Device:
    """Return the RDMA device of a virtual function: two GIDs of its own, and the table's last."""
    position, netdev = function.position, f"v{number}"
    gids = tuple(
        Gid(n, f"fe80:0000:0000:0000:0000:{n:04x}:{number:04x}:0001", GidType.ROCE_V2, netdev)
        for n in (0, 1, TABLE - 1)
    )
    port = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 400.0, netdev, gids)
    uverbs = CharDevice(CharKind.UVERBS, f"/dev/infiniband/uverbs{100 + number}", 231, 300 + number)
    return Device(
        name=f"mlx5_v{number:04}",
        identity=str(position.pci),
        node_guid=f"b8ce:f603:000b:{number + 1:04x}",
        node_type="CA",
        driver=function.driver,
        firmware="28.39.1002",
        pci=position.pci,
        numa_node=position.numa_node,
        ports=(port,),
        char_devices=(uverbs,),
        position=position,
    )


def _with_netdev(function: Function, name: str | None) -> Function:
    return replace(function, netdevs=(Netdev(name, "ether", True, True),)) if name else function


def seconds(root: Path, cards: int) -> float:
    """Return the time of one survey of the large node."""
    begin = time.perf_counter()
    survey = read_survey(root)
    taken = time.perf_counter() - begin
    positions = [device.position for device in survey.devices if device.position]
    assert sum(len(position.virtual_functions) for position in positions) == cards * VIRTUAL
    assert len(survey.functions) == cards * (1 + VIRTUAL)
    assert sum(len(d.ports[0].gids) for d in survey.devices) == cards * GIDS
    assert not survey.faults
    return taken


def card(number: int) -> Device:
    """Return one card with a full GID table; `number` is below 16."""
    bus = 0x10 * number + 1
    pci = PciAddress(f"0000:{bus:02x}:00.0")
    bridge = PciAddress(f"0000:{bus - 1:02x}:01.0")
    # 8 functions a device: 16 devices after the card itself hold 128 virtual functions.
    virtual = tuple(PciAddress(f"0000:{bus:02x}:{1 + n // 8:02x}.{n % 8}") for n in range(VIRTUAL))
    root, node = f"pci0000:{bus - 1:02x}", number // (CARDS // 2)
    gids = tuple(
        Gid(n, f"0000:0000:0000:0000:0000:ffff:0a{number:02x}:{n + 1:04x}", GidType.ROCE_V2, "net1")
        for n in range(GIDS)
    )
    ethernet, up = LinkLayer.ETHERNET, PhysicalState.LINK_UP
    return Device(
        name=f"mlx5_{number:02}",
        identity=str(pci),
        node_guid=f"b8ce:f603:000a:{number + 1:04x}",
        node_type="CA",
        driver="mlx5_core",
        firmware="28.39.1002",
        pci=pci,
        numa_node=node,
        ports=(Port(1, PortState.ACTIVE, up, ethernet, 400.0, f"eth{number}", gids),),
        char_devices=(
            CharDevice(CharKind.UVERBS, f"/dev/infiniband/uverbs{number}", 231, 192 + number),
        ),
        position=PciPosition(pci, root, (bridge, pci), node, None, virtual, VIRTUAL),
    )


def functions(card: Device) -> list[Function]:
    """Return the functions of a card; the virtual ones have no interface, as while in pods."""
    position = card.position
    assert position
    netdev = Netdev(str(card.ports[0].netdev), "ether", True, True)
    virtual = (
        PciPosition(
            pci, position.root, (*position.path[:-1], pci), position.numa_node, position.pci
        )
        for pci in position.virtual_functions
    )
    return [
        Function(position, 0x15B3, 0x1021, card.driver, (netdev,)),
        *(
            Function(each, 0x15B3, 0x101E, card.driver, vf_index=number)
            for number, each in enumerate(virtual)
        ),
    ]
