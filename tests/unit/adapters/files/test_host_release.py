"""The host's os-release, as os-release(5) has it."""

import os

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.files.host_release import parsed, read_kernel, read_os_release

TEXT = """# a comment
NAME="Debian GNU/Linux"
ID=debian
VERSION_ID='12'

not an assignment
VERSION_ID.x=1
BROKEN="12
TWO=a b
QUOTED="a \\"b\\" $c"
"""


def test_fields_are_read_without_their_quotes():
    assert parsed(TEXT) == (
        ("NAME", "Debian GNU/Linux"),
        ("ID", "debian"),
        ("VERSION_ID", "12"),
        ("QUOTED", 'a "b" $c'),
    )


def test_it_is_the_host_s(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_bytes(b"ID=\xff\nID=rhel\n")
    assert dict(read_os_release(tmp_path))["ID"] == "rhel"


@pytest.mark.parametrize("folder", [False, True])
def test_without_the_mount_it_is_unavailable(tmp_path, folder):
    """A runtime makes a folder of what it cannot mount."""
    if folder:
        (tmp_path / "etc/os-release").mkdir(parents=True)
    with pytest.raises(Unavailable, match=f"{tmp_path}/etc/os-release: "):
        read_os_release(tmp_path)


def test_the_kernel_is_the_running_one():
    assert read_kernel() == os.uname().release
