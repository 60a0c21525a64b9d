"""What NCCL's topology file says of functions, links and processors, out of files."""

import pytest

from kube_rdma.adapters.kernel.sysfs.topology_facts import facts_of, read_processor
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.settings import PciFacts, PlacedNet, Processor

PORT, CARD = PciAddress("0000:00:01.0"), PciAddress("0000:01:00.0")
NET = PlacedNet("mlx5_0", PciPosition(CARD, "pci0000:00", (PORT, CARD), 0), 0)
CPUINFO = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC

processor\t: 1
model\t\t: 18
"""


def write(sysfs, pci, **files):
    folder = sysfs / "bus/pci/devices" / pci
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def link(speed, width):
    return {"max_link_speed": speed, "max_link_width": width}


@pytest.mark.parametrize(
    ("port", "card", "speed", "width"),
    [
        (link("16.0 GT/s PCIe", 8), link("32.0 GT/s PCIe", 16), "16.0 GT/s PCIe", 8),
        (link("32.0 GT/s PCIe", 16), link("16.0 GT/s PCIe", 16), "16.0 GT/s PCIe", 16),
        (link("8.0 GT/s PCIe", 16), link("16.0 GT/s PCIe", 4), "8.0 GT/s PCIe", 4),
        (link("16.0 GT/s PCIe", 16), link("Unknown", 0), "16.0 GT/s PCIe", 16),
        (link("Unknown speed", 255), {}, "", 0),
        ({}, {}, "", 0),
    ],
)
def test_a_link_does_what_both_of_its_ends_can(tmp_path, port, card, speed, width):
    write(tmp_path, PORT, **port)
    write(tmp_path, CARD, **card)
    functions = facts_of([NET], tmp_path).functions
    assert functions[CARD] == PciFacts(link_speed=speed, link_width=width)


def test_ids_are_as_sysfs_has_them(tmp_path):
    ids = {"vendor": "0x15b3", "device": "0x1021"}
    write(tmp_path, CARD, **{"class": "0x020700"}, **ids, subsystem_vendor="0x15b3")
    functions = facts_of([NET], tmp_path).functions
    assert functions[CARD] == PciFacts("0x020700", "0x15b3", "0x1021", "0x15b3")
    assert functions[PORT] == PciFacts()


def test_a_recorded_tree_says_nothing_of_this_machine(tmp_path):
    facts = facts_of([NET], tmp_path)
    assert (dict(facts.masks), facts.processor) == ({}, None)


def test_this_machine_has_a_processor():
    facts = facts_of([PlacedNet("a", None, None)])
    assert facts.processor is None or facts.processor.arch in {"x86_64", "arm64", "ppc64"}


@pytest.mark.parametrize(
    ("machine", "processor"),
    [
        ("x86_64", Processor("x86_64", "AuthenticAMD", 25, 17)),
        ("aarch64", Processor("arm64", "AuthenticAMD", 25, 17)),
        ("riscv64", None),
    ],
)
def test_the_first_processor_speaks_for_all(tmp_path, machine, processor):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(CPUINFO)
    assert read_processor(cpuinfo, machine) == processor


def test_a_machine_that_tells_nothing(tmp_path):
    assert read_processor(tmp_path / "none", "x86_64") == Processor("x86_64")
