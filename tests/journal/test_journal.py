"""Records survive what can happen to a disk and to a process, on a real folder and on the fake."""

import errno
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.fake import Failing, FakeDisk, Killed
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.model.binding import Promise
from kube_rdma.model.errors import Refused, Unavailable


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    numbers: tuple[int, ...] = ()


KINDS = {"note": Note, "promise": Promise}
OLD, NEW = Note("old", (1, 2)), Note("new")
STEPS = ("create", "write", "fsync", "rename", "fsync of the folder")


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
    promise = Promise("n1", "rdma/hca", ("c@e-0", "c-1"), ("c@e",), "x=y", 1.5, ("n0",))
    journal = Journal(disk, KINDS)
    journal.put("b", NEW)
    journal.put("a:1", OLD)
    journal.put("b", promise)
    loaded = Journal(disk, KINDS).load()
    assert loaded.records == (("a:1", OLD), ("b", promise))
    assert loaded.faults == ()


@pytest.mark.parametrize("text", ['"\\', "\0\n", "Zürich 東京 😀"])
def test_any_text_comes_back(disk, text):
    """Names of objects and files are not all of plain letters."""
    Journal(disk, KINDS).put("a", Note(text))
    ((_, note),) = Journal(disk, KINDS).load().records
    assert note == Note(text)


def test_removed_is_gone(disk):
    """To remove twice is no error."""
    journal = Journal(disk, KINDS)
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
    Journal(disk, KINDS).put("a", OLD)
    if at is None:
        Journal(disk, KINDS).rename("a", "b")
    else:
        with pytest.raises(Killed):
            Journal(Failing(disk, at), KINDS).rename("a", "b")
    disk.crash(lost)
    loaded = Journal(disk, KINDS).load()
    assert loaded.faults == ()
    assert loaded.records in ((("b", OLD),), (("a", OLD),) if at is not None else ())


def test_a_record_that_is_not_there_cannot_be_renamed(disk):
    """It says so."""
    with pytest.raises(Unavailable, match=r"a\.json cannot be renamed"):
        Journal(disk, KINDS).rename("a", "b")


@pytest.mark.parametrize("name", ["", ".a", "a/b", "../a", "a" * 201, "a b", "ä"])
def test_names_that_are_no_file(disk, name):
    """Such a name is refused before the disk is touched."""
    before = disk.names()
    with pytest.raises(Refused):
        Journal(disk, KINDS).put(name, OLD)
    assert disk.names() == before


def test_the_steps_are_counted(disk):
    """A put has these steps, so the tests below reach each of them."""
    failing = Failing(disk)
    Journal(failing, KINDS).put("a", OLD)
    assert failing.steps == len(STEPS)


@pytest.mark.parametrize("at", range(len(STEPS)), ids=STEPS)
@pytest.mark.parametrize("before", [(), (("a", OLD),)], ids=["first", "second"])
def test_killed_at_a_step_leaves_the_old_or_the_new(disk, before, at):
    """The process ends before a step: the next one finds no half record and can write."""
    for name, value in before:
        Journal(disk, KINDS).put(name, value)
    with pytest.raises(Killed):
        Journal(Failing(disk, at), KINDS).put("a", NEW)
    journal = Journal(disk, KINDS)
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
        Journal(disk, KINDS).put(name, value)
    if at is None:
        Journal(disk, KINDS).put("a", NEW)
    else:
        with pytest.raises(Killed):
            Journal(Failing(disk, at), KINDS).put("a", NEW)
    disk.crash(lost)
    loaded = Journal(disk, KINDS).load()
    assert loaded.faults == ()
    assert loaded.records in (((before, (("a", NEW),))) if at is not None else ((("a", NEW),),))


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
    Journal(disk, KINDS).put("a", OLD)
    failing = Failing(disk, at, OSError(number, os.strerror(number)))
    with pytest.raises(Unavailable) as caught:
        Journal(failing, KINDS).put("a", NEW)
    assert f"{disk.path}/a.json cannot be written ({os.strerror(number)})" in str(caught.value)
    assert [name for name in disk.names() if name != ".lock"] == ["a.json"]
    wanted = OLD if at <= STEPS.index("rename") else NEW
    assert Journal(disk, KINDS).load().records == (("a", wanted),)


@pytest.mark.parametrize("disk", [FakeDisk(capacity=250), FakeDisk(read_only=True)])
def test_a_full_or_read_only_disk(disk):
    """The fake has them too, for tests of whoever uses the journal."""
    with pytest.raises(Unavailable):
        Journal(disk, KINDS).put("a", Note("x" * 250))
    assert disk.names() == ()


def test_remove_on_a_failing_disk(disk):
    """It says so, and the record stays."""
    Journal(disk, KINDS).put("a", OLD)
    with pytest.raises(Unavailable, match="cannot be removed"):
        Journal(Failing(disk, 0, OSError(errno.EROFS, "no")), KINDS).remove("a")
    assert Journal(disk, KINDS).load().records == (("a", OLD),)


BROKEN = {
    "empty": b"",
    "torn": b'{"version": 1, "kind": "no',
    "zeros": b"\0" * 64,
    "another form": b"[]",
    "newer": b'{"version": 2, "kind": "note", "data": {"text": "x"}}',
    "unknown kind": b'{"version": 1, "kind": "tune", "data": {"text": "x"}}',
    "missing field": b'{"version": 1, "kind": "note", "data": {}}',
    "unknown field": b'{"version": 1, "kind": "note", "data": {"text": "x", "more": 1}}',
    "wrong type": b'{"version": 1, "kind": "note", "data": {"text": 1}}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_record_that_cannot_be_read_is_set_aside(disk, content):
    """It is told each time, kept for a person, and in nobody's way."""
    journal = Journal(disk, KINDS)
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


def test_a_broken_record_on_a_read_only_disk(disk):
    """That it stays where it is, is told, and is no crash."""
    spoil(disk, "bad.json", b"?")
    failing = Failing(disk, 0, OSError(errno.EROFS, "Read-only file system"))
    (fault,) = Journal(failing, KINDS).load().faults
    assert "could not be renamed (Read-only file system)" in str(fault)


def test_a_folder_where_a_record_belongs(tmp_path):
    """What is no file at all is set aside as well."""
    with Journal(Folder(tmp_path), KINDS) as journal:
        (tmp_path / "bad.json").mkdir()
        (fault,) = journal.load().faults
    assert "Is a directory" in str(fault)
    assert (tmp_path / "bad.broken").is_dir()


def test_rights(tmp_path):
    """Nobody else reads it, even where the folder was made by another."""
    path = tmp_path / "j"
    path.mkdir(mode=0o755)
    with Journal(Folder(path), KINDS) as journal:
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
    """A sentence names it."""
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="file/journal cannot be opened"):
        Folder(tmp_path / "file" / "journal")


def test_one_put_is_timed(tmp_path):
    """The time is printed for whoever wants to know this disk; it decides nothing."""
    with Journal(Folder(tmp_path), KINDS) as journal:
        start = time.perf_counter()
        for number in range(50):
            journal.put(f"n{number}", OLD)
        print(f"one put: {(time.perf_counter() - start) / 50 * 1000:.2f} ms")
        assert len(journal.load().records) == 50
