"""Records of a journal that somebody else writes: read, never locked, never changed.

For `kube-rdma doctor` and `explain`, which run beside the agent and leave everything as it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from kube_base.errors import Unavailable
from kube_rdma.adapters.journal.format import CODEC

T = TypeVar("T")


def glance(folder: Path, of: type[T]) -> T | None:
    """The first record of this type; None where there is none yet.

    Raise Unavailable when it cannot be read or is of another version.
    """
    try:
        path = next(iter(sorted(folder.glob("*.json"))), None)
        if path is None:
            return None
        return CODEC.decode(of, json.loads(path.read_bytes())["data"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unavailable(f"the record in {folder} is not readable ({error})") from error


def glances(folder: Path, kind: str, of: type[T]) -> tuple[tuple[str, T], ...] | None:
    """All records of a kind that this version understands, by name; None without such a folder.

    One that goes meanwhile is gone. Raise Unavailable when the folder cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
        texts = [(path.stem, path.read_bytes()) for path in paths if path.exists()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"the records in {folder} are not readable ({error})") from error
    return tuple((name, record) for name, text in texts for record in _records(text, kind, of))


def _records(text: bytes, kind: str, of: type[T]) -> list[T]:
    """The record of a file, or none."""
    try:
        envelope = json.loads(text)
        return [CODEC.decode(of, envelope["data"])] if envelope["kind"] == kind else []
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
