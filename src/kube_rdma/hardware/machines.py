"""Finds the recorded machines that come with kube-rdma, by name: a node for people who have none.

`kube-rdma devices --sysfs dgx-like` and others read one in place of /sys; the nodes of the lab
have their cards. Each is a text (recorded_text.py) beside the page that says where it comes from.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText

TEXT = "tree.txt"
_HERE = Path(__file__)
# In a wheel they lie in this package (pyproject.toml), in a checkout where the tests have them.
PLACES = (_HERE.with_name("machines"), _HERE.parents[3] / "tests/data/trees")
_RECORDED = "the path of a folder that `kube-rdma devices --record` wrote"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all recorded machines, sorted."""
    return tuple(sorted(path.parent.name for path in _folder().glob(f"*/{TEXT}")))


def text_of(name: str) -> str:
    """Return the text of a machine; raise Refused for a name that none has."""
    if name not in names():
        raise unknown(name)
    return (_folder() / name / TEXT).read_text(encoding="utf-8")


def machine(name: str) -> RecordedText:
    """Return a machine in memory; raise Refused for a name that none has."""
    return RecordedText(name, text_of(name))


def unknown(name: str, where: str = "--sysfs") -> Refused:
    """Return the refusal of a name that no machine has; `where` is the option or field with it."""
    from kube_rdma.lib.text.faults import near

    begun = (one for one in names() if name and one.startswith(name.lower()))
    meant = near(name, names()) or next(begun, None)
    guess = f"Did you mean {meant}? " if meant else ""
    choice = f"The recorded machines are {', '.join(names())}"
    return Refused(
        f"there is no recorded machine {name!r}",
        remedy=f"{guess}{choice}; or give {_RECORDED}",
        where=where,
    )


def _folder() -> Path:
    return next((path for path in PLACES if path.is_dir()), PLACES[-1])
