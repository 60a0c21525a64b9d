"""ACS of PCIe ports, domains of the IOMMU, PCIe links of cards; what cannot be read is not seen."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.pci import read_pcie
from kube_rdma.adapters.kernel.sysfs.pci_paths import acs_control, read_bridges, read_domains
from kube_rdma.model.device import PciAddress, PcieLink
from kube_rdma.model.doctor import ObservedBridge, ObservedDomain
from kube_rdma_lab.native.tree_text import link_to, write
from tests.kit.nodes import device, function, node, position
from tests.kit.pci_config import config

PORT = PciAddress("0000:17:02.0")
FOLDER = f"bus/pci/devices/{PORT}"


def put(root, data):
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "config").write_bytes(data)


@pytest.mark.parametrize("ahead", [(), (0x01,), (0x01, 0x19, 0x25)])
@pytest.mark.parametrize("control", [0, 0x1D, 0xFFFF])
def test_acs_control_stands_behind_whatever_other_capabilities(tmp_path, ahead, control):
    put(tmp_path, config(control, ahead))
    assert read_bridges([PORT], tmp_path) == (ObservedBridge(PORT, control),)


@pytest.mark.parametrize("data", [config(None), config(None, (0x01,)), bytes(256)])
def test_a_port_without_acs_redirects_nothing(data):
    assert acs_control(data) == 0


@pytest.mark.parametrize("size", [0, 64, 128, 255, 4095])
def test_what_may_not_be_read_whole_is_not_seen(tmp_path, size):
    put(tmp_path, config(0x1D)[:size])
    with pytest.raises(Unavailable, match=r"0000:17:02\.0 cannot be read as a whole"):
        read_bridges([PORT], tmp_path)


def test_a_port_without_the_file_is_not_seen(tmp_path):
    with pytest.raises(Unavailable):
        read_bridges([PORT], tmp_path)


@given(st.lists(st.integers(0, 0xFFFFFFFF), max_size=200))
def test_no_list_of_capabilities_is_too_strange(words):
    """Of a circle, and of places outside of the configuration, too."""
    data = bytearray(4096)
    struct.pack_into(f"<{len(words)}I", data, 0x100, *words)
    assert 0 <= (acs_control(bytes(data)) or 0) <= 0xFFFF


def test_the_domain_is_that_of_the_functions_group(tmp_path):
    write(tmp_path, "kernel/iommu_groups/7/type", "DMA-FQ")
    link_to(tmp_path, f"{FOLDER}/iommu_group", "kernel/iommu_groups/7")
    other = PciAddress("0000:18:00.0")
    assert read_domains([PORT, other], tmp_path) == (ObservedDomain(PORT, "DMA-FQ"),)


def test_a_group_that_tells_no_type_is_not_seen(tmp_path):
    """Of kernels before 4.12."""
    (tmp_path / "kernel/iommu_groups/7").mkdir(parents=True)
    link_to(tmp_path, f"{FOLDER}/iommu_group", "kernel/iommu_groups/7")
    with pytest.raises(Unavailable, match="IOMMU group 7"):
        read_domains([PORT], tmp_path)
    with pytest.raises(Unavailable):
        read_domains([PORT], tmp_path / "kernel")


SLOT = "0000:80:01.0"
CARD = position(0x81)
ABOVE = replace(CARD, path=(SLOT, CARD.pci))
LINK = {
    "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
}


def survey(at=ABOVE, *functions):
    return node(function(at, "eth0"), *functions, devices=(device(0, at, "eth0"),)).survey


def put_files(root, pci, **facts):
    folder = root / "bus/pci/devices" / pci
    folder.mkdir(parents=True)
    for name, text in facts.items():
        (folder / name).write_text(f"{text}\n")


def test_a_link_is_told_with_what_card_and_slot_can(tmp_path):
    put_files(tmp_path, CARD.pci, **LINK)
    put_files(tmp_path, SLOT, max_link_speed="16.0 GT/s PCIe", max_link_width="16")
    assert read_pcie(survey(), tmp_path) == (PcieLink(CARD.pci, 8, 16.0, 16, 16.0),)


def test_without_a_word_of_the_slot_the_card_counts(tmp_path):
    put_files(tmp_path, CARD.pci, **LINK)
    put_files(tmp_path, SLOT, max_link_speed="Unknown", max_link_width="255")
    assert read_pcie(survey(), tmp_path) == (PcieLink(CARD.pci, 8, 16.0, 16, 32.0),)


@pytest.mark.parametrize("missing", LINK)
@pytest.mark.parametrize("text", ["Unknown", "", "0", "-8", "²", "9" * 40])
def test_what_is_not_told_is_not_seen(tmp_path, missing, text):
    put_files(tmp_path, CARD.pci, **{**LINK, missing: text})
    with pytest.raises(Unavailable, match="tells no PCIe link"):
        read_pcie(survey(), tmp_path)


def test_a_machine_without_cards_has_no_link(tmp_path):
    assert read_pcie(node().survey, tmp_path) == ()


def test_the_link_of_a_virtual_function_is_its_cards(tmp_path):
    part = replace(position(0x81, 2), physical_function=CARD.pci, path=(SLOT, "0000:81:00.2"))
    of_part = device(0, part, "eth1")
    whole = node(function(ABOVE, "eth0"), function(part, "eth1"), devices=(of_part,)).survey
    put_files(tmp_path, CARD.pci, **LINK)
    assert [one.pci for one in read_pcie(whole, tmp_path)] == [CARD.pci]


GEN5 = ("16", "32.0 GT/s PCIe")


def put_link(root, pci, now=GEN5, most=GEN5):
    values = (*now, *most)
    names = [f"{when}_link_{what}" for when in ("current", "max") for what in ("width", "speed")]
    put_files(root, pci, **dict(zip(names, values, strict=True)))


def chain(levels):
    """The ports above a card: a root port, and each switch with one port up and one down."""
    return tuple(PciAddress(f"0000:{16 + place:02x}:00.0") for place in range(2 * levels + 1))


HALF = ("8", "16.0 GT/s PCIe")
SLOW = (8, 16.0, 16, 32.0)


@pytest.mark.parametrize(
    ("levels", "slow"), [(1, 0), (2, 0), (2, 2), (3, 0), (3, 2), (3, 4)], ids=str
)
def test_the_slow_one_of_the_links_up_to_the_root_port_is_told(tmp_path, levels, slow):
    above = chain(levels)
    for place, pci in enumerate(above):
        put_link(tmp_path, pci, HALF if place in (slow, slow + 1) else GEN5)
    put_link(tmp_path, CARD.pci)
    links = read_pcie(survey(replace(CARD, path=(*above, CARD.pci))), tmp_path)
    assert [one.pci for one in links] == [CARD.pci, *above[1::2][::-1]]
    narrow = [one for one in links if one.width < one.most_width or one.speed < one.most_speed]
    assert narrow == [PcieLink(above[slow + 1], *SLOW)]


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_card_of_fewer_lanes_below_a_wide_switch_is_well(tmp_path, levels):
    """Nothing stands between the two sides of a switch that could be slow."""
    above = chain(levels)
    for pci in above[:-1]:
        put_link(tmp_path, pci)
    put_link(tmp_path, above[-1], now=HALF)
    put_link(tmp_path, CARD.pci, now=HALF, most=HALF)
    links = read_pcie(survey(replace(CARD, path=(*above, CARD.pci))), tmp_path)
    assert all((one.width, one.speed) == (one.most_width, one.most_speed) for one in links)


def test_a_link_above_is_compared_with_what_both_of_its_ends_can(tmp_path):
    """A switch of generation 5 in a slot of generation 4."""
    root, up, down = chain(1)
    gen4 = ("16", "16.0 GT/s PCIe")
    put_link(tmp_path, root, now=gen4, most=gen4)
    put_link(tmp_path, up, now=gen4)
    put_link(tmp_path, down)
    put_link(tmp_path, CARD.pci)
    links = read_pcie(survey(replace(CARD, path=(root, up, down, CARD.pci))), tmp_path)
    assert links[1] == PcieLink(up, 16, 16.0, 16, 16.0)


@pytest.mark.parametrize("facts", [{"now": HALF}, {"most": ("255", "Unknown")}])
def test_two_ends_that_do_not_say_the_same_are_no_link(tmp_path, facts):
    root, up, down = chain(1)
    put_link(tmp_path, root, **facts)
    for pci in (up, down, CARD.pci):
        put_link(tmp_path, pci)
    links = read_pcie(survey(replace(CARD, path=(root, up, down, CARD.pci))), tmp_path)
    assert [one.pci for one in links] == [CARD.pci]


@pytest.mark.parametrize("above", [(), ("0000:00:0e.0", "10000:00:01.0")])
def test_a_card_of_the_root_complex_or_below_a_vmd_has_its_own_link_alone(tmp_path, above):
    """A VMD is a function with a root complex below it: not the other end of any link."""
    for pci in (*above, CARD.pci):
        put_link(tmp_path, pci, now=HALF)
    path = (*map(PciAddress, above), CARD.pci)
    assert read_pcie(survey(replace(CARD, path=path)), tmp_path) == (PcieLink(CARD.pci, *SLOW),)
