"""The files by which CNI plugins learn of a granted function."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.files.device_info import DeviceInfoFolder, file_name
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import DeviceInfo, ShareId

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


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "share", [VF, f"{VF}-12", "0000ffff:81:00.2-0", "mlx5_core.sf.4", "mlx5_core.sf.4-1"]
)
def test_what_is_said_of_shares_that_are_no_more_goes(tmp_path, share):
    folder = DeviceInfoFolder(tmp_path)
    others = ("intel.com/vf-2", "intel.com/other", "x/intel.com-vf")
    for resource in ("intel.com/vf", *others):
        folder.write(resource, ShareId(share), INFO)
    (tmp_path / "intel.com-vf-whatever-device.json").touch()
    before = names(tmp_path)
    folder.keep("intel.com/vf", {ShareId(share)})
    assert names(tmp_path) == before
    folder.keep("intel.com/vf", ())
    assert before - names(tmp_path) == {file_name("intel.com/vf", ShareId(share))}


def test_a_folder_that_is_not_there_has_nothing_to_remove(tmp_path):
    DeviceInfoFolder(tmp_path / "dp").keep("intel.com/vf", ())


def test_an_id_has_no_folders(tmp_path):
    """As Multus spells it when it looks."""
    DeviceInfoFolder(tmp_path).write("a/b", ShareId("x/y"), INFO)
    assert names(tmp_path) == {"a-b-x-y-device.json"}


PATH = "/host/run/k8s.cni.cncf.io/devinfo/cni/default-net_net1"


@pytest.fixture
def of_plugin(tmp_path):
    return tmp_path / "cni" / "default-net_net1"


def told(tmp_path, info=INFO, path=PATH):
    DeviceInfoFolder(tmp_path / "dp").write_for_plugin(path, info)


def test_a_plugins_caller_is_told_where_nobody_did(tmp_path, of_plugin):
    told(tmp_path)
    assert json.loads(of_plugin.read_text())["pci"]["rdma-device"] == "mlx5_2"
    assert of_plugin.stat().st_mode & 0o777 == 0o444


def test_what_a_caller_knows_already_stays(tmp_path, of_plugin):
    """But a driver that was bound anew gave the RDMA device another name."""
    of_plugin.parent.mkdir()
    pci = {"pci-address": VF, "representor-device": "eth3", "rdma-device": "mlx5_9"}
    of_plugin.write_text(json.dumps({"type": "pci", "version": "1.0.0", "pci": pci}))
    told(tmp_path)
    found = json.loads(of_plugin.read_text())
    now = {**pci, "rdma-device": "mlx5_2", "pf-pci-address": PF}
    assert found == {"type": "pci", "version": "1.0.0", "pci": now}
    before = of_plugin.stat().st_ino
    told(tmp_path)
    assert of_plugin.stat().st_ino == before


@pytest.mark.parametrize(
    "text",
    ['{"type": "vdpa", "vdpa": {}}', '{"type": "pci", "pci": {"pci-address": "0000:01:00.0"}}'],
)
def test_a_file_about_another_device_is_not_ours_to_write(tmp_path, of_plugin, text):
    of_plugin.parent.mkdir()
    of_plugin.write_text(text)
    told(tmp_path)
    assert of_plugin.read_text() == text


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_file_that_says_nothing_is_as_none(tmp_path, of_plugin, text):
    of_plugin.parent.mkdir()
    of_plugin.write_text(text)
    told(tmp_path)
    assert json.loads(of_plugin.read_text())["pci"]["pci-address"] == VF


@pytest.mark.parametrize("path", ["/etc/passwd", "x", "/devinfo/dp/x", "/devinfo/cni/a/b"])
def test_a_path_outside_of_the_folder_is_refused(tmp_path, path):
    """The caller may name any; we are root."""
    with pytest.raises(Unavailable, match="not in the folder devinfo/cni"):
        told(tmp_path, path=path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "dp").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="cannot be written"):
        DeviceInfoFolder(tmp_path / "dp").write("intel.com/vf", SHARE, INFO)
