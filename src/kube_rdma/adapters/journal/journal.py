"""Durable records: what the agent must still know after a crash is written here before it acts.

One file per record, `NAME.json`, made beside its place and renamed into it, so that a record is
there whole or not at all. Values go in and come out typed; the JSON around them carries the version
of the format and the kind of the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Generic, Self, TypeVar

import msgspec

from kube_rdma.adapters.journal import codec
from kube_rdma.adapters.journal.disk import Disk
from kube_rdma.model.errors import Broken, Refused, Unavailable

VERSION = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}")
_ENDING, _TEMPORARY, _BROKEN = ".json", ".tmp", ".broken"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """Every record by name, sorted, and a fault for each that could not be read."""

    records: tuple[tuple[str, T], ...]
    faults: tuple[Broken, ...]


class Journal(Generic[T]):
    """The records of one folder: frozen dataclasses, `kinds` gives each class its name on disk.

    ``with Journal(Folder(path), {"promise": Promise}) as journal``. It blocks for the disk: call it
    from a thread. Calls for different records may overlap.
    """

    def __init__(self, disk: Disk, kinds: Mapping[str, type[T]]) -> None:
        self._disk = disk
        self._kinds = {of: kind for kind, of in kinds.items()}
        self._types = dict(kinds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the next writer in."""
        self._disk.release()

    def put(self, name: str, value: T) -> None:
        """Write a record, in place of the one of this name; when this returns, it is durable.

        Raise Unavailable when the disk fails: the record is then the old one or the new one, whole.
        """
        target, temporary = _file(name), f".{name}{_TEMPORARY}"
        content = self._encoded(value)
        try:
            handle = self._disk.create(temporary)
            try:
                self._disk.write(handle, content)
                self._disk.fsync(handle)
            finally:
                self._disk.close(handle)
            self._disk.rename(temporary, target)
            self._disk.fsync_folder()
        except OSError as error:
            with suppress(OSError):
                self._disk.unlink(temporary)
            raise self._unavailable(target, "written", error) from error

    def rename(self, old: str, new: str) -> None:
        """Give a record another name; a name can say what changes of it, for a third of a put.

        Raise Unavailable when there is none or the disk fails: it then has one name or the other.
        """
        source, target = _file(old), _file(new)
        try:
            self._disk.rename(source, target)
            self._disk.fsync_folder()
        except OSError as error:
            raise self._unavailable(source, "renamed", error) from error

    def remove(self, *names: str) -> None:
        """Remove records for good; no error where there is none. Raise Unavailable."""
        targets = [_file(name) for name in names]
        try:
            for target in targets:
                with suppress(FileNotFoundError):
                    self._disk.unlink(target)
            self._disk.fsync_folder()
        except OSError as error:
            raise self._unavailable(targets[0], "removed", error) from error

    def load(self) -> Loaded[T]:
        """Read every record, at the start: what interrupted writes left behind is removed.

        A record that cannot be read is set aside as `NAME.broken`, and told as a fault each time
        until a person removes it. Raise Unavailable when the folder cannot be listed.
        """
        try:
            names = self._disk.names()
        except OSError as error:
            raise self._unavailable("", "listed", error) from error
        records: list[tuple[str, T]] = []
        faults: list[Broken] = []
        for file in names:
            if file.startswith(".") and file.endswith(_TEMPORARY):
                with suppress(OSError):
                    self._disk.unlink(file)
            elif file.endswith(_BROKEN):
                faults.append(
                    Broken(
                        f"{self._disk.path}/{file} is a record that could not be read earlier: "
                        "look at what it was about, then remove it."
                    )
                )
            elif file.endswith(_ENDING):
                try:
                    records.append((file.removesuffix(_ENDING), self._read(file)))
                except (OSError, ValueError) as error:
                    faults.append(self._set_aside(file, names, error))
        return Loaded(tuple(records), tuple(faults))

    def _encoded(self, value: T) -> bytes:
        kind = self._kinds[type(value)]
        envelope = {"version": VERSION, "kind": kind, "data": codec.encode(value)}
        return msgspec.json.encode(envelope)

    def _read(self, file: str) -> T:
        envelope = json.loads(self._disk.read(file))
        if not isinstance(envelope, dict) or envelope.keys() != {"version", "kind", "data"}:
            raise ValueError("it is no record of kube-rdma")
        version, kind = envelope["version"], envelope["kind"]
        if version != VERSION:
            raise ValueError(f"its version is {version}, this kube-rdma knows {VERSION}")
        if kind not in self._types:
            raise ValueError(f"its kind is {kind}, known are {', '.join(self._types)}")
        return codec.decode(self._types[kind], envelope["data"])

    def _set_aside(self, file: str, names: tuple[str, ...], error: Exception) -> Broken:
        name = file.removesuffix(_ENDING)
        tries = (f"{name}.{n}{_BROKEN}" if n else f"{name}{_BROKEN}" for n in count())
        aside = next(one for one in tries if one not in names)
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

    def _unavailable(self, file: str, verb: str, error: OSError) -> Unavailable:
        return Unavailable(
            f"{self._disk.path}/{file} cannot be {verb} ({error.strerror}): the journal needs a "
            "disk that is writable and has room; nothing is done without it."
        )


def _file(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(
            f"a record cannot be named {name[:60]!r}",
            remedy="Take up to 200 letters, digits and . _ : @ -, with a letter or digit first",
            where="journal",
        )
    return name + _ENDING
