"""Nodes of files answer the doctor as live ones do, with five faults of other people's threads.

The faults were drawn and planted before any check for them was made; then the doctor named one of
the five, the MTU. Each is planted into the tree of an example machine, one of
five of its kind, whose bundles are judged together, as `doctor --all-nodes` does. Then one machine
is recorded as `kube-rdma devices --record` does, with fakes for what is no file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.kernel.netlink.dcb import decode_flow_control
from kube_rdma.adapters.kernel.proc import read_hypervisor
from kube_rdma.adapters.kernel.sysfs.record import record
from kube_rdma.doctor import beside_sysfs
from kube_rdma.doctor.recorded import (
    observe_recorded,
    recorded_beside_sysfs,
    with_beside_sysfs,
)
from kube_rdma.doctor.rules.diagnose import diagnose, diagnose_fleet
from kube_rdma.model.doctor import NodeAnswer, Observation, ObservedLink
from kube_rdma_lab.native.tree_text import link_to, unpack, write
from kube_rdma_testing.kernel.tree_counters import write_counters
from tests.kit.dcb import answer
from tests.kit.pci_config import config

TREES = Path(__file__).parents[2] / "data/trees"
MACHINE = (TREES / "xe9680-like/tree.txt").read_text()
CARD = "0000:1d:00.0"  # of mlx5_0
DSCP = 64


class Fault(Frozen):
    """What a thread is about: where it is, and what is otherwise on the node that has it.

    `acs` is the control register of the card's port, `domain` the type of its IOMMU group, `rises`
    what counters of a device rise by, `mtu` that of its interfaces.
    """

    thread: str
    code: str
    about: str
    acs: int = 0
    domain: str = "identity"
    device: str = "mlx5_0"
    rises: tuple[tuple[str, str, int], ...] = ()
    mtu: int = 4200


# What was wrong, by the threads: ACS was on, and four RoCE cards had half of their bandwidth; GPUs
# hung or crawled until the kernel had no IOMMU or iommu=pt; PFC was on for priority 5 alone, and
# the traffic had DSCP 0; a link flapped, and jobs ended now and then; peers had MTU 4096 and 1024.
FAULTS = (
    Fault("NVIDIA/nccl-tests#112", "KR141", "mlx5_0, mlx5_1", acs=0x1D),
    Fault("NVIDIA/nccl-tests#115", "KR142", "mlx5_0", domain="DMA-FQ"),
    Fault(
        "NVIDIA/nccl#2383",
        "KR127",
        "mlx5_0",
        rises=(("hw_counters", "out_of_sequence", 77), ("hw_counters", "packet_seq_err", 3)),
    ),
    Fault(
        "NVIDIA/nccl#905",
        "KR129",
        "mlx5_2",
        device="mlx5_2",
        rises=(("counters", "link_downed", 1), ("counters", "link_error_recovery", 2)),
    ),
    Fault("kvcache-ai/Mooncake#3868", "KR128", "mlx5_0", mtu=1500),
)
WELL = Fault("", "", "")


def plant(root, fault):
    """The example machine with the files that its tree has not, and with the fault."""
    unpack(MACHINE, root)
    for number, folder in enumerate(sorted(root.glob("devices/pci*/**/0000:*"))):
        control = fault.acs if folder == next(root.glob(f"devices/**/{CARD}")).parent else 0
        (folder / "config").write_bytes(config(control))
        kind = fault.domain if folder.name == CARD else "identity"
        write(root, f"kernel/iommu_groups/{number}/type", kind)
        place = folder.relative_to(root)
        if not (root / f"bus/pci/devices/{folder.name}").exists():  # of ports nobody recorded it
            link_to(root, f"bus/pci/devices/{folder.name}", str(place))
        link_to(root, f"{place}/iommu_group", f"kernel/iommu_groups/{number}")
    write(root, "cpuinfo", "processor : 0\nflags : fpu vme de pse")
    for name in ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"):
        write_counters(root, f"{name}/ports/1", "counters", COUNTERS)
        write_counters(root, f"{name}/ports/1", "hw_counters", HARDWARE)


COUNTERS = dict.fromkeys(("symbol_error", "link_downed", "link_error_recovery"), 4)
HARDWARE = dict.fromkeys(("out_of_sequence", "packet_seq_err", "np_cnp_sent"), 40)


def readers(root, fault, statistics=lambda _interface: {}):
    """Stand-ins for the kernel: netlink's bytes, counters that rise, statistics, /proc."""

    def flow_control(interfaces):
        return tuple(
            decode_flow_control(answer(interface, pfc=1 << 5, dscp=DSCP), interface, driver)
            for interface, driver in interfaces
        )

    async def watch(seconds, read):
        async def pause(_seconds):
            for folder, counter, more in fault.rises:
                was = (COUNTERS | HARDWARE)[counter]
                write_counters(root, f"{fault.device}/ports/1", folder, {counter: was + more})

        return await beside_sysfs.watched_errors(seconds, read, root=root, pause=pause)

    return beside_sysfs.KernelReaders(
        flow_control, watch, statistics, lambda: read_hypervisor(root)
    )


async def seen(root, name, fault):
    """What the doctor sees there; netlink's part is what the kernel would answer."""
    plant(root, fault)
    observed: Observation = observe_recorded(name, root)
    beside = await beside_sysfs.read_beside_sysfs(observed.survey, 2.0, readers(root, fault))
    netdevs = [port.netdev for device in observed.survey.devices for port in device.ports]
    links = tuple(ObservedLink(netdev, fault.mtu, True, True) for netdev in netdevs)
    return replace(with_beside_sysfs(observed, beside), links=links)


async def fleet_of(tmp_path, fault):
    """Five nodes, one with the fault, judged by their bundles."""
    answers = []
    for name, own in [("node-17", fault), *((f"node-{number}", WELL) for number in range(4))]:
        sent = bundle.encode(await seen(tmp_path / name, name, own))
        answers.append(NodeAnswer(name, bundle.decode(sent, name)))
    return diagnose_fleet(answers)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.thread)
async def test_the_cause_of_a_thread_stands_first(tmp_path, fault):
    first = (await fleet_of(tmp_path, fault)).findings[0]
    assert (first.code, first.nodes, first.follows) == (fault.code, ("node-17",), "")
    assert first.places[0].finding.subject == fault.about


async def test_five_well_machines_have_nothing_to_say(tmp_path):
    fleet = await fleet_of(tmp_path, WELL)
    assert fleet.findings == ()
    passed = {code for node in fleet.nodes for code in node.diagnosis.passed}
    assert passed >= {fault.code for fault in FAULTS} - {"KR128"}


CODES = {fault.code for fault in FAULTS} - {"KR128"}  # which takes several nodes
BY_THE_DOCTOR = {*CODES, "KR125", "KR126"}


def nothing():
    return None


async def live_and_recorded(tmp_path, fault, **more):
    """What the doctor sees of the machine, and of its recording."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    plant(live, fault)
    narrow(live)
    seen = observe_recorded("node-1", live)
    beside = await beside_sysfs.read_beside_sysfs(seen.survey, 2.0, readers(live, fault, **more))
    _, faults = record(live, nothing, nothing, copy)
    assert faults == ()
    beside_sysfs.write_beside_sysfs(beside, copy)
    return with_beside_sysfs(seen, beside), observe_recorded("node-1", copy)


def narrow(root):
    """The card's PCIe link has half of its lanes, and so has that of the switch above it."""
    (folder,) = root.glob(f"devices/**/{CARD}")
    for name, value in (("current", "8"), ("max", "16")):
        for place in (folder, *list(folder.parents)[:3]):
            where = str(place.relative_to(root))
            write(root, f"{where}/{name}_link_width", value)
            write(root, f"{where}/{name}_link_speed", "32.0 GT/s PCIe")


@pytest.mark.parametrize("fault", [*FAULTS, WELL], ids=lambda fault: fault.thread or "well")
async def test_a_recorded_machine_has_the_findings_of_the_live_one(tmp_path, fault):
    live, recorded = await live_and_recorded(tmp_path, fault)
    assert diagnose(recorded) == diagnose(live)
    judged = {*diagnose(live).passed, *(one.code for one in diagnose(live).findings)}
    assert judged >= BY_THE_DOCTOR, "a check was not made, so its recording was not tried"
    slow = [one.subject for one in diagnose(recorded).findings if one.code == "KR125"]
    assert slow == ["mlx5_0", "mlx5_0, mlx5_1"]
    assert len(recorded.pcie) == len(set(recorded.pcie)), "a link that two share is told once"
    if fault.code in CODES:
        assert fault.code in {one.code for one in diagnose(recorded).findings}


async def test_what_could_not_be_read_is_not_seen_in_the_recording_either(tmp_path):
    def refuses(interface):
        raise Unavailable(f"the driver of {interface} tells no statistics")

    live, recorded = await live_and_recorded(tmp_path, WELL, statistics=refuses)
    assert recorded.not_seen == live.not_seen
    assert "statistics of interfaces" in {one.part for one in recorded.not_seen}


async def test_a_recording_of_an_older_release_lacks_these_parts_alone(tmp_path):
    unpack((TREES / "xe9680-like/tree.txt").read_text(), tmp_path)
    assert recorded_beside_sysfs(tmp_path) is None
    seen = observe_recorded("node-1", tmp_path)
    assert (seen.errors, seen.flow_control, seen.virtual_machine) == (None, None, None)


async def test_a_recording_of_a_recording_is_the_same(tmp_path):
    _, recorded = await live_and_recorded(tmp_path, FAULTS[0])
    again = tmp_path / "again"
    record(tmp_path / "copy", nothing, nothing, again)
    beside_sysfs.write_beside_sysfs(recorded_beside_sysfs(tmp_path / "copy"), again)
    assert observe_recorded("node-1", again) == recorded


async def test_the_file_beside_the_tree_has_these_parts_alone(tmp_path):
    """Whoever sends a recording sends no name of a pod or a node."""
    _, recorded = await live_and_recorded(tmp_path, FAULTS[0])
    alone = Observation(
        "",
        errors=recorded.errors,
        flow_control=recorded.flow_control,
        virtual_machine=recorded.virtual_machine,
        not_seen=recorded_beside_sysfs(tmp_path / "copy").not_seen,
    )
    assert recorded_beside_sysfs(tmp_path / "copy") == alone
