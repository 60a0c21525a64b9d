"""The lab's tool image: on the node's Debian it has what the Job of ACK's document runs."""

import subprocess
import tarfile

import pytest

from kube_rdma_lab.build.images import TRAINING, build_verbs
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE

GZIP = b"\x1f\x8b"


@pytest.fixture
def image(tmp_path):
    """The files of all layers by path: their modes and texts."""
    base = tmp_path / "debian/tree"
    (base / "etc").mkdir(parents=True)
    (base / "etc/os-release").write_text("ID=debian\n")
    with Store(tmp_path / "store") as store:
        written = build_verbs(store, base)
        files = {}
        with tarfile.open(written.path) as outer:
            for blob in filter(tarfile.TarInfo.isfile, outer.getmembers()):
                if outer.extractfile(blob).read(2) == GZIP:
                    with tarfile.open(fileobj=outer.extractfile(blob)) as layer:
                        files |= {
                            one.name: (one.mode, one.uid, layer.extractfile(one).read().decode())
                            for one in layer.getmembers()
                            if one.isfile()
                        }
    return files


def test_the_image_is_debian_and_the_training_script(image):
    assert image["etc/os-release"][2] == "ID=debian\n"
    assert {name for name in image if not name.startswith("etc/")} == set(TRAINING.values())
    for name, place in TRAINING.items():
        mode, owner, text = image[place]
        assert (mode & 0o111, owner) == (0o111, 0)
        assert text == (PACKAGE / "training_image" / name).read_text()


def test_its_python_runs_the_script_with_the_shell(tmp_path):
    """The lab's Debian has none; what the script does is seen by tests/lab/machines/test_ack.py."""
    script = tmp_path / "train.py"
    script.write_text('echo "$1"')
    python = PACKAGE / "training_image/python"
    done = subprocess.run(
        ["sh", python, script, "epoch"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "epoch\n"
    subprocess.run(["sh", "-n", PACKAGE / "training_image/training"], check=True)
