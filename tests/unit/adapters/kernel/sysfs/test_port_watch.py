"""A reading of port states agrees with the survey, also after one of them changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.sysfs.counters import PortReading, read_states
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.device import PhysicalState, PortState
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import remove_device

TREE = Path(__file__).parents[4] / "data/trees/mlx5-ib-pf-vfs/tree.txt"


@pytest.fixture
def root(tmp_path):
    unpack(TREE.read_text(), tmp_path)
    return tmp_path


def surveyed(root):
    return tuple(
        PortReading(device.name, port.number, port.state, port.physical_state)
        for device in read_survey(root).devices
        for port in device.ports
    )


def test_a_reading_is_what_a_survey_shows(root):
    before = surveyed(root)
    ports = [(reading.device, reading.number) for reading in before]
    assert read_states(root, ports) == before
    (root / "class/infiniband/mlx5_1/ports/1/state").write_text("4: ACTIVE\n")
    after = read_states(root, ports)
    assert after == surveyed(root) != before
    assert read_states(root, ports[::-1]) == after[::-1]


def test_a_port_that_is_gone_is_unknown(root):
    remove_device(root, "mlx5_0")
    gone = PortReading("mlx5_0", 1, PortState.UNKNOWN, PhysicalState.UNKNOWN)
    assert read_states(root, [("mlx5_0", 1)]) == (gone,)
    assert read_states(root, []) == ()
