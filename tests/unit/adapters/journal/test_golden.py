"""What an earlier version wrote is read as it was meant, and would be written the same today.

The folders of data/ are named after the commit that wrote them; samples.py has the values.
"""

from __future__ import annotations

import shutil
from enum import Enum
from pathlib import Path

import pytest

from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma_testing.disk import FakeDisk
from tests.kit.recorded import parts, records, words
from tests.unit.adapters.journal.samples import RECORDS

DATA = Path(__file__).parent / "data"
VERSIONS = sorted(path.name for path in DATA.iterdir())


WRITTEN = [(v, f) for v in VERSIONS for f in RECORDS if (DATA / v / f).is_dir()]


@pytest.fixture(params=WRITTEN, ids="/".join)
def golden(request, tmp_path):
    """A journal's folder as an earlier version left it, with its kinds and the values in it."""
    version, folder = request.param
    shutil.copytree(DATA / version / folder, tmp_path / folder)
    return tmp_path / folder, *RECORDS[folder]


def test_an_earlier_record_is_read(golden):
    """Every value is what it was, and nothing is told as a fault."""
    folder, kinds, values = golden
    with Journal(Folder(folder), kinds) as journal:
        loaded = journal.load()
    assert loaded.faults == ()
    assert dict(loaded.records) == values


def test_a_record_is_written_as_it_always_was(golden):
    """Byte for byte, so the earlier version reads what this one writes."""
    folder, kinds, values = golden
    disk = FakeDisk()
    journal = Journal(disk, kinds)
    for name, value in values.items():
        journal.put(name, value)
    written = {name: disk.read(name) for name in disk.names()}
    assert written == {path.name: path.read_bytes() for path in folder.glob("*.json")}


def test_the_samples_have_everything():
    """Every class, every step and every word that a record may hold stands in a golden file.

    Whoever adds one adds a sample, and a folder of files that the new commit wrote.
    """
    values = [part for _, records in RECORDS.values() for part in parts(tuple(records.values()))]
    assert {type(part) for part in values} >= set(records())
    assert {part for part in values if isinstance(part, Enum)} == words()
    assert {folder for _, folder in WRITTEN} == set(RECORDS)


def test_a_lost_key_is_found(tmp_path):
    """Fault: a record in which a key is spelled otherwise is not read as the sample."""
    folder = tmp_path / "functions"
    version = next(version for version, name in WRITTEN if name == "functions")
    shutil.copytree(DATA / version / "functions", folder)
    record = folder / "0000:81:00.0.json"
    record.write_text(record.read_text().replace('"begun"', '"began"'))
    kinds, values = RECORDS["functions"]
    with Journal(Folder(folder), kinds) as journal:
        assert dict(journal.load().records) != values
