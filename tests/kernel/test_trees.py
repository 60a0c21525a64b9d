"""Every recorded or constructed tree gives the picture that its SOURCE.md promises."""

from __future__ import annotations

import pytest

from kube_rdma.adapters.kernel.fake import unpack
from kube_rdma.adapters.kernel.sysfs import read_survey
from kube_rdma.model.device import PciAddress

from .picture import TREES, picture, promised

NAMES = sorted(folder.name for folder in TREES.iterdir())


@pytest.fixture(scope="module")
def surveys(tmp_path_factory):
    """The survey of each tree, by the tree's name."""
    found = {}
    for name in NAMES:
        root = tmp_path_factory.mktemp(name)
        unpack((TREES / name / "tree.txt").read_text(), root)
        found[name] = read_survey(root)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_shows_what_its_source_promises(surveys, name):
    assert picture(surveys[name]) == promised(TREES / name)


@pytest.mark.parametrize("name", NAMES)
def test_an_intact_tree_has_no_faults(surveys, name):
    assert surveys[name].faults == ()


def test_every_kind_of_card_is_among_the_trees():
    """The set that the survey is held to; a new tree needs no line here."""
    assert {
        "bnxt-re",
        "dgx-like",
        "efa",
        "irdma-iwarp",
        "mlx5-bond",
        "mlx5-dual-port",
        "mlx5-ib-pf-vfs",
        "mlx5-subfunction",
        "rxe-two",
    } <= set(NAMES)


def test_a_virtual_function_without_a_device_is_seen_through_its_physical_one(surveys):
    survey = surveys["mlx5-ib-pf-vfs"]
    physical = survey.devices[0].seat
    with_device = {device.pci for device in survey.devices}
    assert PciAddress("0000:41:00.5") in set(physical.virtual_functions) - with_device


def test_a_gpu_and_a_card_of_one_switch_have_it_in_common(surveys):
    survey = surveys["dgx-like"]
    assert (len(survey.devices), len(survey.gpus)) == (8, 8)
    for device, gpu in zip(survey.devices, survey.gpus, strict=True):
        common = [a for a, b in zip(device.seat.path, gpu.seat.path, strict=True) if a == b]
        assert len(common) == 2  # the root port and the upper side of the switch
        assert device.numa_node == gpu.seat.numa_node
