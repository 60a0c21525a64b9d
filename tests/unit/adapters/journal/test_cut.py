"""Files that an agent keeps or reads at its start, cut at every byte and with bits turned over.

Of a cut one there is the old state, the new one, or a sentence; never half of one. A record has no
checksum, so a bit that turns over inside of a text can make another text: what is shown of those
is that nothing but a record or a sentence comes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kube_base.errors import KubeError
from kube_base.frozen import replace
from kube_rdma.adapters.files.device_info import DeviceInfoFolder, document
from kube_rdma.adapters.journal.codec import RAILS
from kube_rdma.adapters.journal.journal import Journal, glances
from kube_rdma.adapters.kubelet.folders import NAME, DeviceCheckpoint
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import DeviceInfo
from kube_rdma_testing.disk import FakeDisk
from tests.kit.foreign_files import CHECKPOINT
from tests.unit.adapters.journal.samples import RECORDS
from tests.unit.adapters.journal.test_journal import spoil

SAMPLES = {
    f"{folder}/{name}": (kinds, value)
    for folder, (kinds, values) in RECORDS.items()
    for name, value in values.items()
}
RECORD_OF_RAILS = next(value for kinds, value in SAMPLES.values() if kinds is RAILS)
SMALL = 1000  # bytes of a record of which bits are turned over
BITS = (0, 1, 5, 7)  # the next digit or letter, another one, the case, no ASCII any more


def written(kinds, value):
    disk = FakeDisk()
    Journal(disk, kinds).put("a", value)
    return disk.read("a.json")


def disk_with(files):
    disk = FakeDisk()
    for name, content in files.items():
        spoil(disk, name, content)
    return disk


@pytest.fixture(params=SAMPLES, ids=SAMPLES)
def record(request):
    """The kinds of a journal, a value, and the file that it is written as."""
    kinds, value = SAMPLES[request.param]
    return kinds, value, written(kinds, value)


def prefixes(data: bytes) -> Iterator[bytes]:
    return (data[:length] for length in range(len(data)))


def flipped(data: bytes) -> Iterator[bytes]:
    """The same with one bit turned over, for each byte."""
    for place in range(len(data)):
        for bit in BITS:
            yield data[:place] + bytes((data[place] ^ 1 << bit,)) + data[place + 1 :]


def test_of_a_record_that_is_cut_nothing_is_believed(record):
    """A sentence tells of it, the bytes are kept for a person, and the record beside it is read."""
    kinds, _, whole = record
    beside = written(RAILS, RECORD_OF_RAILS)
    for part in prefixes(whole):
        disk = disk_with({"a.json": part, "b.json": beside})
        loaded = Journal(disk, {**kinds, **RAILS}).load()
        assert loaded.records == (("b", RECORD_OF_RAILS),)
        (fault,) = loaded.faults
        assert "a.json cannot be read" in str(fault)
        assert disk.read("a.broken") == part


def test_while_a_record_is_written_the_old_one_counts():
    """The new one has its name only when it is whole; what lies beside it is removed."""
    old = written(RAILS, RECORD_OF_RAILS)
    for part in prefixes(written(RAILS, replace(RECORD_OF_RAILS, boot="another"))):
        disk = disk_with({"a.json": old, ".a.tmp": part})
        loaded = Journal(disk, RAILS).load()
        assert (loaded.records, loaded.faults) == ((("a", RECORD_OF_RAILS),), ())
        assert disk.names() == ("a.json",)


def test_a_bit_that_turns_over_makes_a_record_or_a_sentence(record):
    """And what is read so can be written again and read."""
    kinds, _, whole = record
    for changed in flipped(whole) if len(whole) <= SMALL else ():
        disk = disk_with({"a.json": changed})
        journal = Journal(disk, kinds)
        loaded = journal.load()
        assert len(loaded.records) + len(loaded.faults) == 1
        assert all(str(fault) for fault in loaded.faults)
        for name, value in loaded.records:
            journal.put(name, value)
            assert Journal(disk, kinds).load().records == ((name, value),)


def test_every_kind_has_a_record_whose_bits_are_turned():
    """Else the test above would show nothing of it."""
    files = [written(kinds, value) for kinds, value in SAMPLES.values()]
    turned = {json.loads(data)["kind"] for data in files if len(data) <= SMALL}
    assert turned == {kind for kinds, _ in SAMPLES.values() for kind in kinds}


def test_a_doctor_believes_nothing_of_a_record_that_is_cut(tmp_path):
    """It reads beside the agent, which may be writing to a disk that is full."""
    for kinds, value in SAMPLES.values():
        whole = written(kinds, value)
        kind = json.loads(whole)["kind"]
        for part in (*prefixes(whole[:64]), whole[:-1]):
            (tmp_path / "a.json").write_bytes(part)
            assert glances(tmp_path, kind, type(value)) == ()
        (tmp_path / "a.json").write_bytes(whole)
        assert glances(tmp_path, kind, type(value)) == (("a", value),)


def test_of_the_kubelets_record_that_is_cut_nothing_is_believed(tmp_path):
    whole = json.dumps(CHECKPOINT).encode()
    checkpoint = DeviceCheckpoint(tmp_path)
    for part in prefixes(whole):
        (tmp_path / NAME).write_bytes(part)
        with pytest.raises(KubeError):
            checkpoint.read()
    (tmp_path / NAME).write_bytes(whole)
    assert [grant.shares for grant in checkpoint.read()] == [("3",)]


def test_device_information_that_is_cut_is_written_whole(tmp_path):
    info = DeviceInfo(PciAddress("0000:81:00.0"), ("mlx5_0",))
    whole = document(info)
    path = tmp_path / "devinfo" / "cni" / "x.json"
    path.parent.mkdir(parents=True)
    for part in prefixes(whole):
        path.unlink(missing_ok=True)
        path.write_bytes(part)
        DeviceInfoFolder(tmp_path / "devinfo" / "dp").write_for_plugin(str(path), info)
        assert json.loads(path.read_bytes()) == json.loads(whole)
