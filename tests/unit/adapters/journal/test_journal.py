"""Records survive what can happen to a disk and to a process, on a real folder and on the fake."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.journal.codec import BINDINGS, FORMS, RecordCodec, form
from kube_rdma.adapters.journal.disk import Folder, needed, remove
from kube_rdma.adapters.journal.journal import Journal, Loaded, glance, glances
from kube_rdma.model.late_binding import Binding, Promise
from kube_rdma_testing.disk import Failing, FakeDisk, Killed


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    numbers: tuple[int, ...] = ()


KINDS = {"note": Note, "promise": Promise}
CODEC = RecordCodec((form(Note, "Note", "text numbers"), *FORMS))
PROMISE = Promise("n1", "rdma/hca", ("c@e-0", "c-1"), ("c@e",), "x=y", 1.5, ("n0",))
OLD, NEW = Note("old", (1, 2)), Note("new")
STEPS = ("create", "write", "fsync", "rename", "fsync of the folder")


def opened(disk):
    return Journal(disk, KINDS, CODEC)


@pytest.fixture(params=["folder", "fake"])
def disk(request, tmp_path):
    if request.param == "fake":
        yield FakeDisk()
        return
    folder = Folder(tmp_path / "journal")
    yield folder
    folder.release()


def spoil(disk, name, content):
    handle = disk.create(name)
    disk.write(handle, content)
    disk.close(handle)


def test_what_is_put_is_loaded(disk):
    """Values come back as they were, each of its kind, by name."""
    journal = opened(disk)
    journal.put("b", NEW)
    journal.put("a:1", OLD)
    journal.put("b", PROMISE)
    loaded = opened(disk).load()
    assert loaded.records == (("a:1", OLD), ("b", PROMISE))
    assert loaded.faults == ()


@pytest.mark.parametrize("text", ['"\\', "\0\n", "Zürich 東京 😀"])
def test_any_text_comes_back(disk, text):
    """Names of objects and files are not all of plain letters."""
    opened(disk).put("a", Note(text))
    ((_, note),) = opened(disk).load().records
    assert note == Note(text)


def test_removed_is_gone(disk):
    journal = opened(disk)
    journal.put("a", OLD)
    journal.put("b", NEW)
    journal.remove("a", "c")
    journal.remove("a")
    assert journal.load().records == (("b", NEW),)


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("at", [0, 1, None])
def test_a_renamed_record_is_there_once(at, lost):
    """Under its old name or the new one, whatever ends in between; when it returned, the new."""
    disk = FakeDisk()
    opened(disk).put("a", OLD)
    if at is None:
        opened(disk).rename("a", "b")
    else:
        with pytest.raises(Killed):
            opened(Failing(disk, at)).rename("a", "b")
    disk.crash(lost)
    loaded = opened(disk).load()
    assert loaded.faults == ()
    assert loaded.records in ((("b", OLD),), (("a", OLD),) if at is not None else ())


def test_a_record_that_is_not_there_cannot_be_renamed(disk):
    with pytest.raises(Unavailable, match=r"a\.json cannot be renamed"):
        opened(disk).rename("a", "b")


@pytest.mark.parametrize("name", ["", ".a", "a/b", "../a", "a" * 201, "a b", "ä"])
def test_names_that_are_no_file(disk, name):
    """Such a name is refused before the disk is touched."""
    before = disk.names()
    with pytest.raises(Refused):
        opened(disk).put(name, OLD)
    assert disk.names() == before


def test_the_steps_are_counted(disk):
    """A put has these steps, so the tests below reach each of them."""
    failing = Failing(disk)
    opened(failing).put("a", OLD)
    assert failing.steps == len(STEPS)


@pytest.mark.parametrize("at", range(len(STEPS)), ids=STEPS)
@pytest.mark.parametrize("before", [(), (("a", OLD),)], ids=["first", "second"])
def test_killed_at_a_step_leaves_the_old_or_the_new(disk, before, at):
    """The process ends before a step: the next one finds no half record and can write."""
    for name, value in before:
        opened(disk).put(name, value)
    with pytest.raises(Killed):
        opened(Failing(disk, at)).put("a", NEW)
    journal = opened(disk)
    loaded = journal.load()
    assert loaded.faults == ()
    assert loaded.records == (before if at <= STEPS.index("rename") else (("a", NEW),))
    assert not [name for name in disk.names() if name.endswith(".tmp")]
    journal.put("a", NEW)
    assert journal.load().records == (("a", NEW),)


@pytest.mark.parametrize("lost", range(4))
@pytest.mark.parametrize("at", [*range(len(STEPS)), None])
@pytest.mark.parametrize("before", [(), (("a", OLD),)], ids=["first", "second"])
def test_power_lost_at_a_step_leaves_the_old_or_the_new(before, at, lost):
    """What was not synced is torn or gone; a put that returned is there whatever is lost."""
    disk = FakeDisk()
    for name, value in before:
        opened(disk).put(name, value)
    if at is None:
        opened(disk).put("a", NEW)
    else:
        with pytest.raises(Killed):
            opened(Failing(disk, at)).put("a", NEW)
    disk.crash(lost)
    loaded = opened(disk).load()
    assert loaded.faults == ()
    assert loaded.records in (((before, (("a", NEW),))) if at is not None else ((("a", NEW),),))


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("lost", range(3))
def test_power_lost_may_tear_what_was_not_synced(lost, torn):
    """It outlives the process, and torn it is nothing that a person must look at."""
    disk = FakeDisk()
    opened(disk).put("a", OLD, sync=False)
    opened(disk).rename("a", "c", sync=False)
    assert opened(disk).load().records == (("c", OLD),)
    disk.crash(lost)
    is_there = any(name.endswith(".json") for name in disk.names())
    loaded = opened(disk).load(torn=torn)
    assert (loaded.records, len(loaded.broken)) == ((), is_there and not torn)
    assert bool(disk.names()) == (is_there and not torn)
    assert bool(loaded.torn) == (is_there and torn)


def test_the_fake_punishes_a_missing_sync():
    """Without fsync the content is torn, without fsync of the folder the name is lost."""
    disk = FakeDisk()
    spoil(disk, "a", b"12345678")
    disk.fsync_folder()
    disk.crash()
    assert disk.read("a") == b"1234"
    spoil(disk, "b", b"1")
    assert disk.unsynced == 1
    disk.crash(lost=1)
    assert disk.names() == ("a",)


@pytest.mark.parametrize("at", range(len(STEPS)), ids=STEPS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_failing_disk_is_unavailable(disk, at, number):
    """The sentence names path and cause; nothing half-written stays visible."""
    opened(disk).put("a", OLD)
    failing = Failing(disk, at, OSError(number, os.strerror(number)))
    with pytest.raises(Unavailable) as caught:
        opened(failing).put("a", NEW)
    assert f"{disk.path}/a.json cannot be written ({os.strerror(number)})" in str(caught.value)
    assert [name for name in disk.names() if name != ".lock"] == ["a.json"]
    wanted = OLD if at <= STEPS.index("rename") else NEW
    assert opened(disk).load().records == (("a", wanted),)


@pytest.mark.parametrize("disk", [FakeDisk(capacity=250), FakeDisk(read_only=True)])
def test_a_full_or_read_only_disk(disk):
    """The fake has them too, for tests of whoever uses the journal."""
    with pytest.raises(Unavailable):
        opened(disk).put("a", Note("x" * 250))
    assert disk.names() == ()


def test_remove_on_a_failing_disk(disk):
    opened(disk).put("a", OLD)
    with pytest.raises(Unavailable, match="cannot be removed"):
        opened(Failing(disk, 0, OSError(errno.EROFS, "no"))).remove("a")
    assert opened(disk).load().records == (("a", OLD),)


BROKEN = {
    "empty": b"",
    "torn": b'{"version": 1, "kind": "no',
    "zeros": b"\0" * 64,
    "another form": b"[]",
    "no version": b'{"kind": "note", "data": {"is": "Note", "text": "x"}}',
    "no data": b'{"version": 1, "kind": "note"}',
    "deep": b'{"version": 1, "kind": "note", "data": ' + b"[" * 2000 + b"]" * 2000 + b"}",
}
FOREIGN = {
    "newer": b'{"version": 2, "notes": ["x"]}',
    "unknown kind": b'{"version": 1, "kind": "tune", "data": {"is": "Note", "text": "x"}}',
    "a list as kind": b'{"version": 1, "kind": ["note"], "data": {"is": "Note", "text": "x"}}',
    "unknown tag": b'{"version": 1, "kind": "note", "data": {"is": "Tune", "text": "x"}}',
    "missing key": b'{"version": 1, "kind": "note", "data": {"is": "Note"}}',
    "wrong type": b'{"version": 1, "kind": "note", "data": {"is": "Note", "text": 1}}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_record_that_cannot_be_read_is_set_aside(disk, content):
    """It is told each time, kept for a person, and in nobody's way."""
    journal = opened(disk)
    journal.put("good", OLD)
    spoil(disk, "bad.json", content)
    spoil(disk, "bad.broken", b"of last year")
    first, earlier = sorted(map(str, journal.load().faults), key=lambda text: "kept as" not in text)
    assert first.startswith(f"{disk.path}/bad.json cannot be read (")
    assert "kept as bad.1.broken" in first
    assert f"{disk.path}/bad.broken is a record" in earlier
    assert disk.read("bad.1.broken") == content
    again = journal.load()
    assert again.records == (("good", OLD),)
    assert len(again.faults) == 2


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_record_is_left_alone(disk, content):
    """It is told at each start, keeps its name and every byte, and the others are read."""
    spoil(disk, "a.json", content)
    opened(disk).put("b", OLD)
    for _ in range(2):
        journal = opened(disk)
        loaded = journal.load()
        assert loaded.records == (("b", OLD),)
        (fault,) = loaded.foreign
        assert str(fault).startswith(f"{disk.path}/a.json is left as it is, for this version")
        assert journal.foreign == {"a"}
    for act in (
        lambda: journal.put("a", NEW),
        lambda: journal.remove("b", "a"),
        lambda: journal.rename("b", "a"),
        lambda: journal.rename("a", "c"),
        lambda: journal.refuse_foreign("c", "a"),
    ):
        with pytest.raises(Unavailable, match="run the version that wrote it again"):
            act()
    assert disk.read("a.json") == content
    assert opened(disk).load().records == (("b", OLD),)


def test_a_foreign_record_that_a_person_removed(disk):
    """Its name is free again, without a restart."""
    spoil(disk, "a.json", FOREIGN["newer"])
    journal = opened(disk)
    journal.load()
    disk.unlink("a.json")
    journal.refuse_foreign("a")
    journal.put("a", NEW)
    assert journal.foreign == frozenset()
    assert journal.load().records == (("a", NEW),)


def test_keys_of_a_later_version_stay(disk):
    """Through rewriting and renaming, beside the record and in it, until the record is removed."""
    later = {"version": 1, "kind": "note", "by": "N+1", "data": {"is": "Note", "text": "x"}}
    later["data"]["colour"] = "red"
    spoil(disk, "a.json", json.dumps(later).encode())
    journal = opened(disk)
    assert journal.load() == Loaded((("a", Note("x")),))
    journal.put("a", NEW)
    journal.rename("a", "b")
    journal.put("b", OLD)
    wanted = {"is": "Note", "text": "old", "numbers": [1, 2], "colour": "red"}
    assert json.loads(disk.read("b.json")) == {**later, "data": wanted}
    journal.remove("b")
    journal.put("b", OLD)
    assert "N+1" not in disk.read("b.json").decode()


def test_keys_do_not_go_to_another_kind(disk):
    """A record that gives way to one of another kind leaves nothing in it."""
    later = b'{"version": 1, "kind": "note", "data": {"is": "Note", "text": "x", "colour": 1}}'
    spoil(disk, "a.json", later)
    journal = opened(disk)
    journal.load()
    journal.put("a", PROMISE)
    assert "colour" not in disk.read("a.json").decode()


def test_a_broken_record_on_a_read_only_disk(disk):
    """That it stays where it is, is told, and is no crash."""
    spoil(disk, "bad.json", b"?")
    failing = Failing(disk, 0, OSError(errno.EROFS, "Read-only file system"))
    (fault,) = opened(failing).load().faults
    assert "could not be renamed (Read-only file system)" in str(fault)


def test_a_folder_where_a_record_belongs(tmp_path):
    """What is no file at all is set aside as well."""
    with opened(Folder(tmp_path)) as journal:
        (tmp_path / "bad.json").mkdir()
        (fault,) = journal.load().faults
    assert "Is a directory" in str(fault)
    assert (tmp_path / "bad.broken").is_dir()


def test_rights(tmp_path):
    """Nobody else reads it, even where the folder was made by another."""
    path = tmp_path / "j"
    path.mkdir(mode=0o755)
    with opened(Folder(path)) as journal:
        journal.put("a", OLD)
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


def test_one_writer(tmp_path):
    """A second one is told who has it; when the first ends, the next is let in."""
    first = Folder(tmp_path)
    with pytest.raises(Refused, match=f"process {os.getpid()} writes this journal already"):
        Folder(tmp_path)
    first.release()
    Folder(tmp_path).release()


def test_a_killed_writer_leaves_no_lock(tmp_path):
    """A process that is killed while it holds the lock is in nobody's way."""
    code = (
        "import sys, pathlib, signal; from kube_rdma.adapters.journal.disk import Folder;"
        "f = Folder(pathlib.Path(sys.argv[1])); print('held', flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(Refused, match=f"process {other.pid} "):
            Folder(tmp_path)
        other.kill()
        other.wait()
    Folder(tmp_path).release()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="file/journal cannot be opened"):
        Folder(tmp_path / "file" / "journal")


def test_one_put_is_timed(tmp_path):
    """The time is printed for whoever wants to know this disk; it decides nothing."""
    with opened(Folder(tmp_path)) as journal:
        start = time.perf_counter()
        for number in range(50):
            journal.put(f"n{number}", OLD)
        print(f"one put: {(time.perf_counter() - start) / 50 * 1000:.2f} ms")
        assert len(journal.load().records) == 50


@pytest.fixture
def state(tmp_path):
    """A node's records as an agent leaves them, without attachments."""
    for folder in ("attachments", "delegated", "pools"):
        (tmp_path / "state" / folder).mkdir(parents=True)
        (tmp_path / "state" / folder / ".lock").touch()
    (tmp_path / "state/pools/pools.json").write_text("{}")
    (tmp_path / "state/chained").symlink_to(tmp_path)
    return tmp_path / "state"


def test_all_goes_and_nothing_beside_it(state):
    """A link is removed, not what it leads to."""
    beside = state.parent / "beside"
    beside.touch()
    assert needed(state) == ()
    assert remove(state)
    assert not state.exists()
    assert beside.exists()


def test_it_may_be_repeated(state):
    assert remove(state)
    assert not remove(state)


@pytest.mark.parametrize("folder", ["attachments", "delegated"])
def test_a_record_of_a_network_is_needed(state, folder):
    (state / folder / "c1@net1.json").write_text("{}")
    assert needed(state) == (f"{folder}/c1@net1.json",)


LEFT_PROMISE = Promise("n1", "rdma/hca", ("a-0",), ("a",), "kube-rdma.io/hca=a-0-n1", 1.0)


def test_records_of_one_kind_are_read_while_another_writes(tmp_path):
    folder = tmp_path / "bindings"
    folder.mkdir()
    with Journal(Folder(folder), BINDINGS) as journal:
        journal.load()
        journal.put("p", LEFT_PROMISE)
        (folder / "half.json").write_text('{"kind": "promise", "data"')
        (folder / "odd.json").write_text('{"kind": "promise", "data": 7}')
        (folder / "word.json").write_text('"promise"')
        (folder / "deep.json").write_text("[" * 2000 + "]" * 2000)
        before = sorted(folder.iterdir())
        assert glances(folder, "promise", Promise) == (("p", LEFT_PROMISE),)
        assert glances(folder, "binding", Binding) == ()
        assert sorted(folder.iterdir()) == before


def test_a_record_that_is_removed_meanwhile_is_left_out(tmp_path, monkeypatch):
    with Journal(Folder(tmp_path), BINDINGS) as journal:
        journal.load()
        for name in ("gone", "p"):
            journal.put(name, LEFT_PROMISE)
    read = Path.read_bytes

    def late(path):
        (tmp_path / "gone.json").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", late)
    assert glances(tmp_path, "promise", Promise) == (("p", LEFT_PROMISE),)


def test_a_record_that_is_nested_too_deeply_is_told(tmp_path):
    (tmp_path / "a.json").write_text("[" * 2000 + "]" * 2000)
    with pytest.raises(Unavailable, match="is not readable"):
        glance(tmp_path, Promise)


def test_a_record_of_another_version_is_not_guessed_at(tmp_path):
    """Its values may mean something else; the agent does not read it either."""
    with Journal(Folder(tmp_path), BINDINGS) as journal:
        journal.load()
        journal.put("p", LEFT_PROMISE)
    assert glance(tmp_path, Promise) == LEFT_PROMISE
    file = tmp_path / "p.json"
    file.write_bytes(file.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(Unavailable, match="its version is 2, this kube-rdma knows 1"):
        glance(tmp_path, Promise)
    assert glances(tmp_path, "promise", Promise) == ()


def test_no_folder_is_no_journal(tmp_path):
    assert glances(tmp_path / "none", "promise", Promise) is None


def test_what_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="are not readable"):
        glances(tmp_path / "file", "promise", Promise)
