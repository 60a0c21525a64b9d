"""Writes down a node so that its survey can be taken again elsewhere: `kube-rdma devices --record`.

The result is a folder for --sysfs. It has the part of /sys that a survey reads, and more for the
doctor. Two JSON files have what RDMA netlink said, and which interfaces carry the default routes.
What is copied stands in a table below, name by name, so that nothing else of a machine leaves it.
Links stay links, relative as in sysfs; the functions they lead to are copied once. Unused GIDs are
left out, as the survey passes over them. A file that cannot be read is missing in the copy, which
does not say why. Flow control and error counters are added by doctor/beside_sysfs.
"""

# ruff: noqa: PTH103, PTH112, PTH113, PTH114, PTH115, PTH123, PTH211
# Paths are text relative to a root here, as in sysfs/tree, and their names need not be text.

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, asdict, field
from kube_rdma.adapters.kernel.link_view import NETLINK_FILE, ROUTES_FILE, LinkView
from kube_rdma.adapters.kernel.sysfs.files import read_file
from kube_rdma.adapters.kernel.sysfs.pci import function_above, pci_address
from kube_rdma.model.survey import Fault

_UNUSED_GID = b"0000:0000:0000:0000:0000:0000:0000:0000"


class _Rule(Frozen):
    """A rule for copying a folder: patterns of its files, and the rules of its subfolders.

    Names are regular expressions; what none matches is left out. A link that one matches stays a
    link, and its target is copied too if `folders` has a rule for the link's name.
    """

    files: str = ""
    folders: Mapping[str, _Rule] = field(default_factory=dict)
    unused: bytes = b"\0"  # files that say this are left out

    def inside(self, name: str) -> _Rule | None:
        """Return the rule for the folder `name`, None if it is not copied."""
        rules = (rule for form, rule in self.folders.items() if re.fullmatch(form, name))
        return next(rules, None)


_NUMBER = r"[0-9]+"
_ANY = r"(?s:.+)"
_EMPTY = _Rule()
_TABLE = _Rule(_NUMBER)
_COUNTERS = _Rule(r"\w+")
_PORT = _Rule(
    "state|phys_state|link_layer|rate|lid|sm_lid",
    {
        "counters|counters_ext|hw_counters": _COUNTERS,
        "gids": _Rule(_NUMBER, unused=_UNUSED_GID),
        "gid_attrs": _Rule(folders={"types|ndevs": _TABLE}),
        "pkeys": _Rule("0"),
    },
)
_CHAR = _Rule("dev|uevent|ibdev")
_FACTS = "dev_port|type|flags|carrier|phys_port_name|phys_switch_id"
_UPPER_NETDEV = _Rule(_FACTS, {"bonding": _EMPTY})
_RELATIONS = {rf"master|upper_{_ANY}": _UPPER_NETDEV, rf"lower_{_ANY}": _Rule(_FACTS)}
_NETDEV = _Rule(_FACTS, {"bonding": _EMPTY, **_RELATIONS})
_PCIE = "(current|max)_link_(width|speed)"
_ATTRIBUTES = f"class|vendor|device|numa_node|acpi_index|sriov_totalvfs|sriov_numvfs|sfnum|{_PCIE}"
_MEMBERS = _Rule(folders={_ANY: _Rule(folders={"driver": _EMPTY})})
_GROUP = _Rule("type|name", {"devices": _MEMBERS})
_NETDEVS = {"net": _Rule(folders={_ANY: _NETDEV}), "driver": _EMPTY, "iommu_group": _GROUP}
_RELATED = _Rule(_ATTRIBUTES, _NETDEVS)
_FUNCTION = _Rule(_ATTRIBUTES, {**_NETDEVS, rf"physfn|virtfn{_NUMBER}": _RELATED})
# Of the PCIe ports above functions alone: it has their ACS (pci_paths.py).
_BRIDGE = _Rule(f"{_ATTRIBUTES}|config", _NETDEVS)
_DEVICE = _Rule(
    "node_guid|node_type|fw_ver|parent",
    {"ports": _Rule(folders={_NUMBER: _PORT}), "device": _FUNCTION},
)
_CLASSES = {
    "infiniband": _Rule(folders={_ANY: _DEVICE}),
    "infiniband_verbs": _Rule(folders={rf"uverbs{_NUMBER}": _CHAR}),
    "infiniband_mad": _Rule(folders={rf"(umad|issm){_NUMBER}": _CHAR}),
    "misc": _Rule(folders={"rdma_cm": _CHAR}),
    "net": _Rule(folders={_ANY: _NETDEV}),
}
_PCI = _Rule(folders={"devices": _Rule(folders={_ANY: _FUNCTION})})
_KERNEL = _Rule(folders={"iommu_groups": _EMPTY})  # empty where there is no IOMMU
_SYSFS = _Rule(
    folders={
        "class": _Rule(folders=_CLASSES),
        "bus": _Rule(folders={"pci": _PCI}),
        "kernel": _KERNEL,
    }
)


def record(
    sysfs: Path,
    links: Callable[[], LinkView | None],
    routes: Callable[[], tuple[str, ...] | None],
    to: Path,
) -> tuple[int, tuple[Fault, ...]]:
    """Copy to the folder `to` what a survey reads of `sysfs`, and two netlink answers.

    `links` and `routes` are read_links and read_default_routes, or return recorded answers. Return
    how many files `to` has now, and what could not be copied. Raise Refused when `to` holds
    something already or cannot be written.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
        if any(to.iterdir()):
            raise Refused(
                f"{to} exists and is not empty",
                remedy="Give the name of a new folder",
                where="--record",
            )
        copy = _Copy(sysfs, to)
        copy.folder("", _SYSFS)
        for name, answer in (
            (NETLINK_FILE, _ask_netlink(links)),
            (ROUTES_FILE, _ask_netlink(routes)),
        ):
            if answer is not None:
                (to / name).write_text(json.dumps(answer, indent=2) + "\n", encoding="utf-8")
                copy.files.add(name)
    except OSError as error:
        raise Refused(
            f"{to} cannot be written: {error.strerror}",
            remedy="Give a folder that you can write to",
            where="--record",
        ) from error
    return len(copy.files), tuple(copy.faults)


class _Copy:
    """A copy of a sysfs tree in progress; paths are relative to its root and free of links."""

    def __init__(self, source: Path, to: Path) -> None:
        self._root = os.path.realpath(source)
        self._to = os.path.realpath(to)
        self._done: set[tuple[str, int]] = set()
        self.files: set[str] = set()
        self.faults: list[Fault] = []

    def folder(self, path: str, rule: _Rule) -> None:
        """Copy the folder at `path`, and the PCI functions above it, as far as the rules say."""
        if (path, id(rule)) in self._done:
            return
        self._done.add((path, id(rule)))
        self._make(path)
        try:
            with os.scandir(f"{self._root}/{path}") as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            self._blame(path, error)
            return
        for name in names:
            inside = rule.inside(name)
            below = f"{path}/{name}".lstrip("/")
            if inside is not None:
                self._entry(below, inside)
            elif rule.files and re.fullmatch(rule.files, name):
                self._file(below, rule.unused)
        above, _, last = path.rpartition("/")
        if pci_address(last):
            self._function(above, _BRIDGE)

    def _function(self, path: str, rule: _Rule) -> None:
        """Copy the nearest PCI function at or above `path`."""
        if function := function_above(path):
            self.folder(function, rule)

    def _entry(self, path: str, rule: _Rule) -> None:
        """Copy the folder at `path`, or the link there with its target, or a file in its place."""
        source = f"{self._root}/{path}"
        if os.path.islink(source):
            self._link(path)
        place = os.path.realpath(source)
        if not place.startswith(f"{self._root}/"):
            return
        place = place[len(self._root) + 1 :]
        if os.path.isdir(source):
            self.folder(place, rule)
            self._function(place, _FUNCTION)
        elif os.path.isfile(source):
            self._file(place, b"\0")

    def _link(self, path: str) -> None:
        try:
            target = os.readlink(f"{self._root}/{path}")
        except OSError as error:
            self._blame(path, error)
            return
        meant = os.path.normpath(f"{path}/../{target}")
        if target.startswith("/") or meant.startswith(".."):
            self.faults.append(Fault(path, "leads out of the tree"))
            return
        self._make(path.rpartition("/")[0])
        if not os.path.lexists(f"{self._to}/{path}"):
            os.symlink(target, f"{self._to}/{path}")

    def _file(self, path: str, unused: bytes) -> None:
        source = f"{self._root}/{path}"
        if path in self.files:
            return
        if os.path.islink(source):
            self._link(path)
        elif os.path.isdir(source):
            self._make(path)
        elif (data := self._read(path)) is not None and data.strip() != unused:
            self._make(path.rpartition("/")[0])
            with open(f"{self._to}/{path}", "wb") as file:
                file.write(data)
            self.files.add(path)

    def _read(self, path: str) -> bytes | None:
        try:
            return read_file(f"{self._root}/{path}")
        except OSError as error:
            self._blame(path, error)
            return None

    def _make(self, path: str) -> None:
        os.makedirs(f"{self._to}/{path}", exist_ok=True)

    def _blame(self, path: str, error: OSError) -> None:
        # The kernel's way to say that there is nothing to say: entries of a table that are unused.
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT}:
            self.faults.append(Fault(path, error.strerror or type(error).__name__))


def _ask_netlink(ask: Callable[[], LinkView | tuple[str, ...] | None]) -> dict[str, object] | None:
    """Call a reader of netlink and return its answer as a JSON object; None for no answer."""
    try:
        answer = ask()
    except Unavailable as error:
        return {"unavailable": str(error)}
    if answer is None:
        return None
    return asdict(answer) if isinstance(answer, LinkView) else {"interfaces": list(answer)}
