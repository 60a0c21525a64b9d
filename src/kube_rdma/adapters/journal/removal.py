"""The end of all records of a node: the folders that agents keep, once nobody needs them.

Only `kube-rdma network uninstall --records` comes here. A record of an attachment says what its
steps left on a card, so while there is one everything stays.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

NEEDED = ("attachments", "delegated")  # folders of the state with a file for each attachment


def needed(state: Path) -> tuple[str, ...]:
    """The records of attachments that are in the agent's state, sorted; locks are none."""
    return tuple(
        sorted(
            f"{folder}/{path.name}"
            for folder in NEEDED
            for path in (state / folder).glob("*")
            if not path.name.startswith(".")
        )
    )


def remove(folder: Path) -> bool:
    """Remove a folder with all that is in it; False when there was nothing.

    A folder that is mounted here stays, and is empty.
    """
    if not folder.is_dir():
        return False
    inside = sorted(folder.rglob("*"), reverse=True)  # what is in a folder comes before it
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
    return bool(inside)
