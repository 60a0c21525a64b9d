"""The folder of settings: one for each device, and none left when the last has gone."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.runtime.settings import NCCL_ENV, SettingsFolder, Shelf


@pytest.fixture
def folder(tmp_path):
    return SettingsFolder(tmp_path / "settings")


def test_what_is_written_lies_there_for_root_alone(folder):
    made = folder.write("c1", "n1", {"nccl.conf": "A=1\n"})
    assert (made / "nccl.conf").read_text() == "A=1\n"
    assert made.stat().st_mode & 0o777 == 0o700
    assert (made / "nccl_env.sh").read_bytes() == NCCL_ENV.read_bytes()
    assert folder.write("c1", "n1", {"nccl.conf": "A=2\n"}) == made
    assert (made / "nccl.conf").read_text() == "A=2\n"


def test_what_containers_read_goes_with_it(folder):
    first, second = (folder.write("c1", nonce, {"ucx.conf": ""}) for nonce in ("n1", "n2"))
    (first / "c9-ucx.conf").touch()
    folder.remove("c1", "n1")
    assert not first.exists()
    assert second.exists()
    folder.remove("c1", "n2")
    folder.remove("c1", "n2")
    assert not folder.path.exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="has to be the host's folder"):
        SettingsFolder(tmp_path / "file").write("c1", "n1", {})


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_shelf_keeps_a_folder_by_its_name(tmp_path, mode):
    shelf = Shelf(tmp_path / "early", mode)
    assert shelf.names() == ()
    folder = shelf.put("a", {"nccl.conf": "first\n"})
    assert (folder, shelf.names()) == (shelf.folder("a"), ("a",))
    assert folder.stat().st_mode & 0o777 == mode
    assert (folder / NCCL_ENV.name).stat().st_mode & 0o777 == 0o755
    inodes = {path.name: path.stat().st_ino for path in folder.iterdir()}
    shelf.put("a", {"nccl.conf": "second\n"})
    assert (folder / "nccl.conf").read_text() == "second\n"
    assert (folder / "nccl.conf").stat().st_mode & 0o777 == 0o644
    changed = {path.name for path in folder.iterdir() if path.stat().st_ino != inodes[path.name]}
    assert changed == {"nccl.conf"}


def test_a_shelf_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be written"):
        Shelf(tmp_path / "file" / "early", 0o755).put("a", {})
