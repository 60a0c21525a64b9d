"""Records of what is over go from a disk that kept them, as soon as it takes writes again.

What a node has on its disk is then what its pods have. `make chaos` met the binding of a pod that
had ended while the disk was read-only; it stayed until the agent started again.
"""

import errno

import pytest

from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.lib.records import Records


class WornDisk(Folder):
    """A folder that can be read-only for a while."""

    is_read_only = False

    def unlink(self, name):
        if self.is_read_only:
            raise OSError(errno.EROFS, "Read-only file system")
        super().unlink(name)


@pytest.fixture
def disk(tmp_path):
    return WornDisk(tmp_path)


@pytest.fixture
def kept(disk):
    """Two records, of which the disk kept the first although it is over."""
    with Journal(disk, {"text": str}, TEXTS) as journal:
        yield Records(journal)


class Texts:
    """Encodes a text as itself."""

    def encode(self, value):
        return value

    def decode(self, _, data):
        return data

    def is_known(self, _):
        return True


TEXTS = Texts()


def on_disk(disk):
    return {name.removesuffix(".json") for name in disk.names() if name.endswith(".json")}


async def left(records, disk):
    """Forget a record that the disk keeps."""
    await records.put("over", "a")
    disk.is_read_only = True
    await records.forget("over")
    assert records.get("over") is None
    assert on_disk(disk) == {"over"}


async def write(records, name, act):
    """An attachment is begun from a thread and complete by its name."""
    if act == "put":
        await records.put(name, "b")
    elif act == "put_before":
        assert await records.put_before(name, "b", lambda: "done") == "done"
    else:
        records.begin(name if act == "begin" else "begun", "b")
    if act == "rename":
        await records.rename("begun", name, "b")
    assert records.get(name) == "b"


@pytest.mark.parametrize("act", ["put", "put_before", "rename", "remove"])
async def test_what_a_read_only_disk_kept_goes_with_the_next_write(kept, disk, act):
    """`make chaos`, seed 69, had no other write than that of an attachment."""
    await left(kept, disk)
    disk.is_read_only = False
    if act == "remove":
        await kept.remove("new")
    else:
        await write(kept, "new", act)
    assert on_disk(disk) == ({"new"} if act != "remove" else set())


@pytest.mark.parametrize("act", ["put", "put_before", "begin", "rename"])
async def test_a_record_that_came_again_is_not_what_was_left(kept, disk, act):
    await left(kept, disk)
    disk.is_read_only = False
    await write(kept, "over", act)
    await kept.put("new", "b")
    assert on_disk(disk) == {"over", "new"}


async def test_a_disk_that_still_refuses_loses_no_write(kept, disk):
    await left(kept, disk)
    await kept.put("new", "b")
    assert on_disk(disk) == {"over", "new"}
    disk.is_read_only = False
    await kept.put("next", "c")
    assert on_disk(disk) == {"new", "next"}
