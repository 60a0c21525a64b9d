"""Five faults of other people's issue threads: each has its cause first, as seen from a laptop.

They were drawn and planted before any check for them was made; then the doctor named one of the
five, the MTU (docs/decisions/0118). Each is planted into the tree of a recorded machine, one of
five of its kind. The bundles of all five are judged together, as `doctor --all-nodes` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.kernel.netlink.dcb import decode_flow_control
from kube_rdma.adapters.kernel.proc import read_hypervisor
from kube_rdma.doctor.beside_sysfs import watched_errors
from kube_rdma.doctor.evidence import DoctorPlaces, observe
from kube_rdma.doctor.rules.diagnose import diagnose_fleet
from kube_rdma.doctor.rules.errors import roce_interfaces
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
    """The recorded machine with the files that the record has not, and with the fault."""
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


async def nobody():
    raise AssertionError("a recorded tree asks no cluster")


async def seen(root, name, fault):
    """What the doctor sees there; netlink's part is what the kernel would answer."""
    plant(root, fault)
    observed: Observation = await observe(DoctorPlaces(name, sysfs=root), nobody)

    async def pause(_seconds):
        for folder, counter, more in fault.rises:
            was = (COUNTERS | HARDWARE)[counter]
            write_counters(root, f"{fault.device}/ports/1", folder, {counter: was + more})

    interfaces = roce_interfaces(observed.survey)
    netdevs = [port.netdev for device in observed.survey.devices for port in device.ports]
    return replace(
        observed,
        virtual_machine=read_hypervisor(root),
        flow_control=tuple(
            decode_flow_control(answer(interface, pfc=1 << 5, dscp=DSCP), interface, driver)
            for interface, driver in interfaces
        ),
        errors=await watched_errors(2.0, root=root, pause=pause),
        links=tuple(ObservedLink(netdev, fault.mtu, True, True) for netdev in netdevs),
    )


async def fleet_of(tmp_path, fault):
    """Five nodes, one with the fault, judged by their bundles."""
    answers = []
    for name, own in [("node-17", fault), *((f"node-{number}", WELL) for number in range(4))]:
        sent = bundle.encode(await seen(tmp_path / name, name, own))
        answers.append(NodeAnswer(name, bundle.decode(sent, name)))
    return diagnose_fleet(answers)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.thread)
async def test_the_cause_of_a_thread_stands_first(tmp_path, fault):
    fleet = await fleet_of(tmp_path, fault)
    first = fleet.findings[0]
    assert (first.code, first.nodes, first.follows) == (fault.code, ("node-17",), "")
    assert first.places[0].finding.subject == fault.about


async def test_five_well_machines_have_nothing_to_say(tmp_path):
    fleet = await fleet_of(tmp_path, WELL)
    assert fleet.findings == ()
    passed = {code for node in fleet.nodes for code in node.diagnosis.passed}
    assert passed >= {fault.code for fault in FAULTS} - {"KR128"}
