"""PCIe links of cards as sysfs tells them: what both ends can is what the narrower one can."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.pci import read_pcie
from kube_rdma.model.device import PcieLink
from tests.kit.nodes import device, function, node, seat

SLOT = "0000:80:01.0"
CARD = seat(0x81)
ABOVE = replace(CARD, path=(SLOT, CARD.pci))
LINK = {
    "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
}


def survey(at=ABOVE, *functions):
    on = function(at, "eth0")
    return node(on, *functions, devices=(device(0, at, "eth0"),)).survey


def put(root, pci, **facts):
    folder = root / "bus/pci/devices" / pci
    folder.mkdir(parents=True)
    for name, text in facts.items():
        (folder / name).write_text(f"{text}\n")


def test_a_link_is_told_with_what_card_and_slot_can(tmp_path):
    put(tmp_path, CARD.pci, **LINK)
    put(tmp_path, SLOT, max_link_speed="16.0 GT/s PCIe", max_link_width="16")
    assert read_pcie(survey(), tmp_path) == (PcieLink(CARD.pci, 8, 16.0, 16, 16.0),)


def test_without_a_word_of_the_slot_the_card_counts(tmp_path):
    put(tmp_path, CARD.pci, **LINK)
    put(tmp_path, SLOT, max_link_speed="Unknown", max_link_width="255")
    assert read_pcie(survey(), tmp_path) == (PcieLink(CARD.pci, 8, 16.0, 16, 32.0),)


@pytest.mark.parametrize("missing", LINK)
@pytest.mark.parametrize("text", ["Unknown", "", "0", "-8", "²", "9" * 40])
def test_what_is_not_told_is_not_seen(tmp_path, missing, text):
    put(tmp_path, CARD.pci, **{**LINK, missing: text})
    with pytest.raises(Unavailable, match="tells no PCIe link"):
        read_pcie(survey(), tmp_path)


def test_a_machine_without_cards_has_no_link(tmp_path):
    assert read_pcie(node().survey, tmp_path) == ()


def test_the_link_of_a_virtual_function_is_its_cards(tmp_path):
    part = replace(seat(0x81, 2), physical_function=CARD.pci, path=(SLOT, "0000:81:00.2"))
    of_part = device(0, part, "eth1")
    whole = node(function(ABOVE, "eth0"), function(part, "eth1"), devices=(of_part,)).survey
    put(tmp_path, CARD.pci, **LINK)
    assert [one.pci for one in read_pcie(whole, tmp_path)] == [CARD.pci]
