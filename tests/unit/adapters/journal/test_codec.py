"""Every value that a journal may be given comes back as it was, from a later version too.

The later version is played by keys that nobody knows, put into what this one wrote.
"""

from __future__ import annotations

import dataclasses
import shutil
from enum import Enum
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.adapters.journal.codec import CODEC, TAG
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.attach.steps import RemoveLink, SetLink, TakeLink
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma_testing.disk import FakeDisk
from tests.kit.recorded import ROOTS, parts, records, words
from tests.kit.recorded_values import values
from tests.unit.adapters.journal.samples import APPLIED, ATTACHMENT, BOOKING, RECORDS

RECORDED = st.sampled_from(ROOTS).flatmap(values)


def objects(data):
    if isinstance(data, dict):
        yield data
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from objects(part)


def on_disk(value):
    return msgspec.json.decode(msgspec.json.encode(CODEC.encode(value)))


@given(RECORDED)
def test_any_record_comes_back(value):
    data = on_disk(value)
    assert CODEC.decode(type(value), data) == value
    assert CODEC.is_known(data)


@given(RECORDED, st.data())
def test_a_later_version_is_read_and_kept(value, draw):
    """With any keys that nobody knows it is what it was, and writing it again loses none."""
    data = on_disk(value)
    for place in draw.draw(st.lists(st.sampled_from(list(objects(data))), min_size=1)):
        place["later"] = draw.draw(st.sampled_from([1, None, [], {"deep": [1]}, {TAG: "Later"}]))
    assert CODEC.decode(type(value), data) == value
    assert not CODEC.is_known(data)
    assert CODEC.carry(CODEC.encode(value), data) == data


@pytest.mark.parametrize("value", [ATTACHMENT, APPLIED, BOOKING])
def test_what_changes_keeps_what_belongs_to_it(value):
    """Keys stay with the values that they came with, whatever comes, goes and changes around."""
    data = CODEC.encode(value)
    for number, place in enumerate(objects(data)):
        place["later"] = number
    if value is BOOKING:
        changed = dataclasses.replace(
            value, began=99.0, allocations=(replace(value.allocations[1], cooldown=5.0),)
        )
        carried = CODEC.carry(CODEC.encode(changed), data)
        assert [carried["later"], carried["leases"][0]["later"]] == [0, 2]
        assert (carried["began"], carried["leases"][0]["rest"]) == (99.0, 5.0)
    elif value is APPLIED:
        new = replace(value.specs[0], resource="rdma/new")
        carried = CODEC.carry(CODEC.encode(replace(value, specs=(new, *value.specs[2:]))), data)
        assert "later" not in carried["specs"][0]
        later = [spec["later"] for spec in data["specs"]]
        assert [spec["later"] for spec in carried["specs"][1:]] == later[2:]
    else:
        carried = CODEC.carry(CODEC.encode(replace(value, complete=True)), data)
        assert carried == {**data, "complete": True}


def test_equal_values_keep_their_own():
    """Two steps that are alike to this version are not to a later one."""
    plan = replace(ATTACHMENT.plans[0], steps=(SetLink("net1"), SetLink("net1"), SetLink("net1")))
    value = replace(ATTACHMENT, plans=(plan,))
    data = CODEC.encode(value)
    for number, step in enumerate(data["plans"][0]["steps"]):
        step["later"] = number
    assert CODEC.carry(CODEC.encode(value), data) == data


def test_a_record_from_before_a_field_has_its_default():
    """An agent that was updated gives back what the one before it attached."""
    data = CODEC.encode(SetLink("net1", 9000, "02:00:00:00:00:01"))
    del data["mac"]
    assert CODEC.decode(SetLink, data) == SetLink("net1", 9000, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("name"),
        lambda data: data.update({TAG: "AddAddress"}),
        lambda data: data.update({TAG: "PaintLink"}),
        lambda data: data.update(kind="vxlan"),
        lambda data: data.update(mtu="9000"),
        lambda data: data.update(parent=[3, "ens2f0"]),
    ],
    ids=["a key missing", "another tag", "a tag unknown", "a word unknown", "a type", "a form"],
)
def test_what_is_not_understood_is_not_guessed(change):
    """A step whose undo could be another one makes the whole attachment one to leave alone."""
    data = on_disk(ATTACHMENT)
    change(data["plans"][0]["steps"][0])
    with pytest.raises(ValueError, match=r"is n|has no|of no type"):
        CODEC.decode(Attachment, data)


def test_what_has_no_form_is_not_written():
    """A class that nobody gave a place in the table does not lose its fields on the disk."""
    with pytest.raises(TypeError, match="cannot hold RemoveLink, no form is for it"):
        CODEC.encode(replace(ATTACHMENT, plans=(RemoveLink("net1", "mark"),)))


@pytest.mark.parametrize(
    ("plain", "key"),
    [
        (next(one for one in ATTACHMENT.plans[1].steps if isinstance(one, TakeLink)), "active"),
        (PoolSpec("rdma/a", Mode.HCA, "s"), "host_network"),
        (PoolSpec("rdma/a", Mode.HCA, "s"), "bare_ids"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_field_that_came_later_is_on_disk_only_where_it_says_something(plain, key):
    """So an earlier version's record stays as it was, and it reads what a later one writes."""
    telling = replace(plain, **{key: True})
    assert key not in CODEC.encode(plain)
    assert CODEC.encode(telling)[key] is True
    for value in (plain, telling):
        assert CODEC.decode(type(value), CODEC.encode(value)) == value
    assert CODEC.carry(CODEC.encode(plain), CODEC.encode(telling)) == CODEC.encode(plain)


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
