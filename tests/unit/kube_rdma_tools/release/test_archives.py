"""Archives whose bytes follow from their content."""

import gzip
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma_tools.release.archives import ArchivedFile, unpack, write_tar_gz

NAMES = st.lists(st.text("abé", min_size=1), min_size=1).map("/".join)
FILES = st.dictionaries(NAMES, st.builds(ArchivedFile, st.binary(max_size=20), st.booleans()))


@given(FILES, st.integers(min_value=0, max_value=2**31))
def test_the_order_of_files_leaves_no_trace(tmp_path_factory, files, epoch):
    folder = tmp_path_factory.mktemp("tar")
    backwards = dict(reversed(files.items()))
    write_tar_gz(folder / "one", files, epoch)
    write_tar_gz(folder / "two", backwards, epoch)
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()


@given(FILES)
def test_what_is_written_is_read_again_as_regular_files_of_root(tmp_path_factory, files):
    path = tmp_path_factory.mktemp("tar") / "one.tar.gz"
    write_tar_gz(path, files, 7)
    with tarfile.open(path) as tar:
        members = list(tar)
        assert {one.name: tar.extractfile(one).read() for one in members} == {
            name: file.data for name, file in files.items()
        }
    assert all((one.isreg(), one.uid, one.gid, one.mtime) == (True, 0, 0, 7) for one in members)
    assert {one.name for one in members if one.mode == 0o755} == {
        name for name, file in files.items() if file.runs
    }


def test_a_tar_is_unpacked_compressed_or_not(tmp_path):
    write_tar_gz(tmp_path / "one", {"a/b": ArchivedFile(b"text")}, 0)
    packed = (tmp_path / "one").read_bytes()
    for name, data in (("packed", packed), ("plain", gzip.decompress(packed))):
        (tmp_path / name).mkdir()
        unpack(data, tmp_path / name)
        assert (tmp_path / name / "a/b").read_bytes() == b"text"
    with pytest.raises(Unavailable, match="tar failed"):
        unpack(packed[:40], tmp_path)
