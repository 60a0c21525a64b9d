"""One record of a journal that somebody else writes: read, never locked, never changed.

For `kube-rdma doctor`, which runs beside the agent and has to leave everything as it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from kube_rdma.adapters.journal.format import CODEC
from kube_rdma.model.errors import Unavailable

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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"the record in {folder} is not readable ({error})") from error
