"""Finds the example machines that come with kube-rdma, by name: a node for people who have none.

`kube-rdma devices --sysfs dgx-like` and others read one in place of /sys; the nodes of the lab
have their cards. Each is a text (recorded_text.py) beside the page that says where it comes from.
Of a faulty machine the text is what differs from another one, which its first line names.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText

TEXT = "tree.txt"
WELL, FAULTY = "trees", "faulty_trees"
BASE = "# base: "
_HERE = Path(__file__)
# In a wheel they lie in this package (pyproject.toml), in a checkout where the tests have them.
PLACES = (_HERE.with_name("machines"), _HERE.parents[3] / "tests/data")
_RECORDED = "the path of a folder that `kube-rdma devices --record` wrote"


@cache
def names(*folders: str) -> tuple[str, ...]:
    """Return the sorted names of the machines in these folders; of all folders if none is given."""
    return tuple(sorted(path.parent.name for path in _texts(*folders)))


def text_of(name: str) -> str:
    """Return the recorded sysfs of a machine as text; raise Refused for an unknown name."""
    path = next((path for path in _texts() if path.parent.name == name), None)
    if path is None:
        raise unknown(name)
    text = path.read_text(encoding="utf-8")
    first = text.partition("\n")[0]
    # Later lines of a text override earlier ones, so the fault's come after the machine's.
    return f"{text_of(first.removeprefix(BASE))}\n{text}" if first.startswith(BASE) else text


def machine(name: str) -> RecordedText:
    """Return the recorded sysfs of a machine, held in memory; raise Refused for an unknown name."""
    return RecordedText(name, text_of(name))


def unknown(name: str, where: str = "--sysfs") -> Refused:
    """Return the error for an unknown machine; `where` names the option or field."""
    from kube_rdma.lib.text.faults import near

    every = (*names(WELL), *names(FAULTY))
    begun = (one for one in every if name and one.startswith(name.lower()))
    meant = near(name, names()) or next(begun, None)
    guess = f"Did you mean {meant}? " if meant else ""
    choice = f"Example machines are {', '.join(names())}"
    return Refused(
        f"there is no example machine {name!r}",
        remedy=f"{guess}{choice}; or give {_RECORDED}",
        where=where,
    )


def _texts(*folders: str) -> Iterator[Path]:
    place = next((path for path in PLACES if path.is_dir()), PLACES[-1])
    return (path for name in folders or (WELL, FAULTY) for path in place.glob(f"{name}/*/{TEXT}"))
