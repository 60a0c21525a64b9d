"""Keeps durable records: what the agent must know after a crash is written before it acts.

A record is a file `NAME.json`, made under another name and renamed, so that a record is there whole
or not at all. Values go in and come out typed. The JSON around a value carries the version of the
format and the kind of the value. codec.py has the kinds and the forms of values.

A disk outlives the version of kube-rdma that wrote it, for agents are rolled back too. A record
with keys that this version does not know is read without them, and keeps them when it is written
again. A record that this version does not understand is foreign: it stays, and keeps its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from kube_base.errors import Broken, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.os_files import needed
from kube_rdma.adapters.journal.codec import CODEC, RecordCodec
from kube_rdma.adapters.journal.disk import Folder

VERSION = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
_ENDING, _TEMPORARY, _BROKEN = ".json", ".tmp", ".broken"
_ENVELOPE = frozenset({"version", "kind", "data"})

T = TypeVar("T")


class Loaded(Frozen, Generic[T]):
    """The records that a journal's folder holds, and a fault for each unreadable file."""

    records: tuple[tuple[str, T], ...]  # by name, sorted
    broken: tuple[Broken, ...] = ()  # of files that are no record, or half of one
    foreign: tuple[Broken, ...] = ()  # of whole records that are not understood
    torn: tuple[str, ...] = ()  # paths of what a power failure left of records, removed

    @property
    def faults(self) -> tuple[Broken, ...]:
        """Return the faults of files that are broken or foreign."""
        return (*self.broken, *self.foreign)


class _Foreign(Exception):
    """An intact record that this version does not understand; the message says why."""


class Journal(Generic[T]):
    """Records on disk in one folder: frozen values by name.

    `kinds` gives each class its name on disk. ``with Journal(Folder(path), {"promise": Promise}) as
    journal``. It blocks for the disk: call it from a thread. Calls for different records may
    overlap.
    """

    def __init__(
        self, disk: Folder, kinds: Mapping[str, type[T]], codec: RecordCodec = CODEC
    ) -> None:
        self._disk = disk
        self._kinds = {of: kind for kind, of in kinds.items()}
        self._types = dict(kinds)
        self._codec = codec
        self._foreign: dict[str, Broken] = {}
        self._whole: dict[str, dict[str, Any]] = {}  # as loaded, of those with unknown keys

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder, so that another process may write the journal."""
        self._disk.release()

    def put(self, name: str, value: T, *, sync: bool = True) -> None:
        """Write a record durably, over an older one of this name.

        Raise Unavailable when the disk fails: the record is then the old one or the new one, whole.
        As in `rename` and `remove`, raise Unavailable also where a foreign record has the name.
        Without `sync` the change outlives this process, but maybe not a power failure.
        """
        target, temporary = self._file(name), f".{name}{_TEMPORARY}"
        data = self._codec.encode(value)
        envelope: dict[str, Any] = {
            "version": VERSION,
            "kind": self._kinds[type(value)],
            "data": data,
        }
        before = self._whole.get(name)
        if before and before["kind"] == envelope["kind"]:
            envelope = before | envelope | {"data": self._codec.carry(data, before["data"])}
        content = msgspec.json.encode(envelope)
        with self._needed(target, "written"):
            try:
                handle = self._disk.create(temporary)
                try:
                    self._disk.write(handle, content)
                    if sync:
                        self._disk.fsync(handle)
                finally:
                    self._disk.close(handle)
                self._disk.rename(temporary, target)
                if sync:
                    self._disk.fsync_folder()
            except OSError:
                with suppress(OSError):
                    self._disk.unlink(temporary)
                raise

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        """Give a record another name, which costs a third of `put`.

        So the name can hold the part of a record that changes. Raise Unavailable when there is no
        record, or the disk fails: the record then has one name or the other.
        """
        source, target = self._file(old), self._file(new)
        with self._needed(source, "renamed"):
            self._disk.rename(source, target)
            if sync:
                self._disk.fsync_folder()
        self._whole.pop(new, None)
        if old in self._whole:
            self._whole[new] = self._whole.pop(old)

    def remove(self, *names: str, sync: bool = True) -> None:
        """Remove records from the disk; missing ones are no error.

        Raise Unavailable when the disk fails; some may be removed then.
        """
        targets = [self._file(name) for name in names]
        with self._needed(next(iter(targets), ""), "removed"):
            for target in targets:
                with suppress(FileNotFoundError):
                    self._disk.unlink(target)
            if sync:
                self._disk.fsync_folder()
        for name in names:
            self._whole.pop(name, None)

    @property
    def foreign(self) -> frozenset[str]:
        """Return the names of the records that this version of kube-rdma does not understand."""
        return frozenset(self._foreign)

    def refuse_foreign(self, *names: str) -> None:
        """Raise Unavailable if one of these names has a record that cannot be understood."""
        for name in names:
            self._file(name)

    def load(self, *, torn: bool = False) -> Loaded[T]:
        """Read all records at the start; remove what interrupted writes left behind.

        A foreign record is left alone. What is no record, or half of one, is set aside as
        `NAME.broken`. Both are reported as faults each time until a person, or the version that
        wrote the record, takes them away. With `torn`, a record without its end is removed, as a
        power failure leaves it after a write without `sync`. Raise Unavailable when the folder
        cannot be listed.
        """
        with self._needed("", "listed"):
            names = self._disk.names()
        self._foreign.clear()
        self._whole.clear()
        records: list[tuple[str, T]] = []
        broken: list[Broken] = []
        halves: list[str] = []
        for file in names:
            if file.startswith(".") and file.endswith(_TEMPORARY):
                with suppress(OSError):
                    self._disk.unlink(file)
            elif file.endswith(_BROKEN):
                what = "a record that could not be read earlier"
                act = "look at what it was about, then remove it"
                broken.append(Broken(f"{self._disk.path}/{file} is {what}: {act}."))
            elif file.endswith(_ENDING):
                try:
                    records.append((file.removesuffix(_ENDING), self._read(file)))
                except _Foreign as error:
                    self._foreign[file.removesuffix(_ENDING)] = Broken(
                        f"{self._disk.path}/{file} is left as it is, for this version of kube-rdma "
                        f"does not understand it ({error}): run the version that wrote it again, "
                        "or remove the file when what it is about is no more."
                    )
                except (OSError, ValueError) as error:
                    with suppress(OSError):
                        if torn and not self._disk.read(file).endswith(b"}"):
                            self._disk.unlink(file)
                            halves.append(f"{self._disk.path}/{file}")
                            continue
                    broken.append(self._set_aside(file, names, error))
        return Loaded(tuple(records), tuple(broken), tuple(self._foreign.values()), tuple(halves))

    def _read(self, file: str) -> T:
        envelope = _envelope(self._disk.read(file))
        kind, data = envelope["kind"], envelope["data"]
        if not isinstance(kind, str) or kind not in self._types:
            raise _Foreign(f"its kind is {kind!r:.60}, known are {', '.join(self._types)}")
        try:
            value = self._codec.decode(self._types[kind], data)
        except ValueError as error:
            raise _Foreign(" ".join(str(error).split())) from error
        if envelope.keys() != _ENVELOPE or not self._codec.is_known(data):
            self._whole[file.removesuffix(_ENDING)] = envelope
        return value

    def _file(self, name: str) -> str:
        """Return the file of a record; raise Refused for a bad name, Unavailable if foreign."""
        file = _file(name)
        if fault := self._foreign.get(name):
            with suppress(OSError):
                if file not in self._disk.names():  # a person has removed it since
                    del self._foreign[name]
                    return file
            raise Unavailable(str(fault))
        return file

    def _set_aside(self, file: str, names: tuple[str, ...], error: Exception) -> Broken:
        name = file.removesuffix(_ENDING)
        tries = (f"{name}.{n}{_BROKEN}" if n else f"{name}{_BROKEN}" for n in count())
        aside = next(free for free in tries if free not in names)
        why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        try:
            self._disk.rename(file, aside)
            self._disk.fsync_folder()
        except OSError as stuck:
            aside = f"{file}, for it could not be renamed ({stuck.strerror})"
        return Broken(
            f"{self._disk.path}/{file} cannot be read ({why}); it is kept as {aside}: look at what "
            "it was about, then remove it."
        )

    def _needed(self, file: str, verb: str) -> AbstractContextManager[None]:
        """Return a context that raises Unavailable for an OSError of its block."""
        needs = "the journal needs a disk that is writable and has room"
        path = f"{self._disk.path}/{file}"
        return needed(path, verb, f"{needs}; nothing is done without it")


def _envelope(content: bytes) -> dict[str, Any]:
    """Return what a record's file says.

    Raise ValueError if it is no record, _Foreign if it has another version of the format.
    """
    try:
        envelope = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested deeper than any record") from error
    if not isinstance(envelope, dict) or "version" not in envelope:
        raise ValueError("it is not a record of kube-rdma")
    if (version := envelope["version"]) != VERSION:
        raise _Foreign(f"its version is {version!r:.20}, this kube-rdma knows {VERSION}")
    if not envelope.keys() >= _ENVELOPE:
        raise ValueError("it is not a record of kube-rdma")
    return envelope


def _file(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(
            f"a record cannot be named {name[:60]!r}",
            remedy="Take up to 200 letters, digits and . _ : @ -, with a letter or digit first",
            where="journal",
        )
    return name + _ENDING


# Records of a journal that another process writes: read, never locked, never changed.


def glance(folder: Path, of: type[T]) -> T | None:
    """Return the first record in a folder; None without record or folder.

    Raise Unavailable when it cannot be read or understood.
    """
    try:
        path = next(iter(sorted(folder.glob("*.json"))), None)
        if path is None:
            return None
        return CODEC.decode(of, _envelope(path.read_bytes())["data"])
    except (OSError, ValueError, _Foreign) as error:
        raise Unavailable(f"the record in {folder} is not readable ({error})") from error


def glances(folder: Path, kind: str, of: type[T]) -> tuple[tuple[str, T], ...] | None:
    """Return all readable records of a kind by name; None if the folder is missing.

    A file that is removed meanwhile is left out. Raise Unavailable for an unreadable folder.
    """
    texts: list[tuple[str, bytes]] = []
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
        for path in paths:
            with suppress(FileNotFoundError):
                texts.append((path.stem, path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"the records in {folder} are not readable ({error})") from error
    return tuple((name, record) for name, text in texts for record in _records(text, kind, of))


def _records(text: bytes, kind: str, of: type[T]) -> list[T]:
    """Return the decoded record of a file as a list; empty for another kind or no record."""
    try:
        envelope = _envelope(text)
        return [CODEC.decode(of, envelope["data"])] if envelope["kind"] == kind else []
    except (ValueError, _Foreign):
        return []
