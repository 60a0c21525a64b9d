"""The files by which CNI plugins learn of a granted function."""

import json

import pytest

from kube_rdma.adapters.files.device_info import DeviceInfoFolder, file_name
from kube_rdma.model.device import PciAddress
from kube_rdma.model.errors import Unavailable
from kube_rdma.model.pool import DeviceInfo, ShareId

VF, PF = PciAddress("0000:81:00.2"), PciAddress("0000:81:00.0")
SHARE = ShareId(VF)
INFO = DeviceInfo(VF, ("mlx5_2",), PF)


def test_the_name_and_the_block_are_those_of_the_specification(tmp_path):
    DeviceInfoFolder(tmp_path / "dp").write("intel.com/vf", SHARE, INFO)
    (path,) = (tmp_path / "dp").iterdir()
    assert path.name == "intel.com-vf-0000:81:00.2-device.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads(path.read_text()) == {
        "type": "pci",
        "version": "1.1.0",
        "pci": {"pci-address": VF, "rdma-device": "mlx5_2", "pf-pci-address": PF},
    }


def test_what_is_not_known_is_left_out(tmp_path):
    DeviceInfoFolder(tmp_path).write("intel.com/vf", SHARE, DeviceInfo(VF, ()))
    found = json.loads((tmp_path / file_name("intel.com/vf", SHARE)).read_text())
    assert found["pci"] == {"pci-address": VF}


def test_a_later_grant_writes_it_anew(tmp_path):
    folder = DeviceInfoFolder(tmp_path)
    folder.write("intel.com/vf", SHARE, INFO)
    folder.write("intel.com/vf", SHARE, DeviceInfo(VF, ("mlx5_9",)))
    (path,) = tmp_path.iterdir()
    assert "mlx5_9" in path.read_text()


def test_only_the_files_of_the_resource_are_removed(tmp_path):
    folder = DeviceInfoFolder(tmp_path)
    folder.write("intel.com/vf", SHARE, INFO)
    folder.write("intel.com/other", SHARE, INFO)
    folder.remove("intel.com/vf")
    assert [path.name for path in tmp_path.iterdir()] == [file_name("intel.com/other", SHARE)]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "dp").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="cannot be written"):
        DeviceInfoFolder(tmp_path / "dp").write("intel.com/vf", SHARE, INFO)
