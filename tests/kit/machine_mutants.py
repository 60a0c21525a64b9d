"""Machines of tests/data/trees with something wrong, and whose each name of one is.

A mutant is what a kernel might show, or a recording might hold: files, links and answers of netlink
that are missing, doubled, foreign, another device's or no number. `Owners` says by the places of
sysfs alone which names belong to a device, so that it shares no rule with the product.
"""

from __future__ import annotations

import json
import re

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.link_view import NETLINK_FILE, ROUTES_FILE
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText, TextEntry, read_entries
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.hardware import machines
from kube_rdma_tools.machines.text import text_of

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_AUXILIARY = re.compile(r"[^./]+\.[^/]+\.\d+")
_BEHIND = re.compile(r"(c\d+)?pf\d+.*")
_ID = re.compile("0x[0-9a-f]{4}")
_UNUSED = b"0000:0000:0000:0000:0000:0000:0000:0000\n"
_ODD = ("", "0", "-1", "0x", "9" * 30, "a b", "\\n", "%s", "<unknown>", "4: ", "٣", "N/A")
_VALID = {
    "state": ("1: DOWN", "2: INIT", "4: ACTIVE", "5: ACTIVE_DEFER"),
    "phys_state": ("2: Polling", "3: Disabled", "5: LinkUp", "6: LinkErrorRecovery"),
    "link_layer": ("Ethernet", "InfiniBand", "Unknown"),
    "rate": ("10 Gb/sec (4X SDR)", "400 Gb/sec (4X NDR)", "0 GB/sec"),
    "node_type": ("1: CA", "4: RNIC", "7: unspecified", "9: new"),
    "node_guid": ("0000:0000:0000:0000", "0200:0000:0000:0001"),
    "dev_port": ("0", "1", "7"),
    "phys_port_name": ("p0", "p1", "pf0vf0", "pf0sf88", "c1pf0"),
    "carrier": ("0", "1"),
    "class": ("0x020000", "0x020700", "0x030200", "0x060400"),
}
_FOREIGN = (
    *("junk: 1", "ports/x/state: 1: DOWN", "master -> ../nowhere", "physfn -> ../0000:ff:1f.7"),
    *("gids/300: fe80:0000:0000:0000:0000:0000:0000:0001", f"{NETLINK_FILE}: {{}}"),
)


def mutant(random, name):
    """The machine with one to six changes, and netlink's answers as often as not."""
    changed = [one for one in read_entries(machines.text_of(name)) if one.content != _UNUSED]
    for _ in range(random.randint(1, 6)):
        changed = random.choice(_CHANGES)(random, changed)
    if random.random() < 0.5:
        changed += _answers(random, changed)
    return RecordedText(name, text_of(changed)[0])


def _missing(random, every):
    """Without a file or link, or without all below a folder."""
    path = random.choice(every).path
    for _ in range(random.choice((0, 0, 1, 2, 3))):
        path = path.rpartition("/")[0] or path
    return [one for one in every if not f"{one.path}/".startswith(f"{path}/")] or every


def _doubled(random, every):
    """A device, an interface, a function or a port is there under another name too."""
    parts = random.choice(every).path.split("/")
    old = "/".join(parts[: random.randint(1, len(parts))])
    return _copied(every, old, f"{old[:-1]}{random.choice('123579z')}")


def _copied(every, old, new):
    """With the links of classes to what is copied."""
    known = {one.path for one in every}
    more = [one for one in every if f"{one.path}/".startswith(f"{old}/")]
    more = [replace(one, path=new + one.path[len(old) :]) for one in more]
    kind, _, name = new.rpartition("/")
    if new.startswith("devices/") and kind.endswith(("/net", "/infiniband")):
        more += read_entries(f"class/{kind.rpartition('/')[2]}/{name} -> /{new}")
    return [*every, *(one for one in more if one.path not in known)]


def _beside(random, every):
    """Another interface beside one: a representor, or that of a second port, which is there."""
    found = [
        m for one in every if (m := re.match(r"(devices/.+)/(net/[^/]+|ports/1)(?=/)", one.path))
    ]
    old = random.choice(sorted({match[0] for match in found}) or [every[0].path])
    new = f"{old.removesuffix('/1')}{'/2' if old.endswith('/ports/1') else random.choice('abz')}"
    what = random.choice(("phys_port_name: pf0vf0", "phys_port_name: c1pf0sf2", "dev_port: 1"))
    copied = [one for one in _copied(every, old, new) if one.path != f"{new}/{what.split(':')[0]}"]
    return [*copied, *read_entries(f"{new}/{what}")]


def _foreign(random, every):
    folder = random.choice(every).path.rpartition("/")[0]
    return [*every, *read_entries(f"{folder}/{random.choice(_FOREIGN)}")]


def _swapped(random, every):
    """Two files of one name, or two links of one folder, have each other's content."""
    one = random.choice(every)
    above, _, last = one.path.rpartition("/")
    alike = [o for o in every if (o.target is None) == (one.target is None)]
    other = random.choice(
        [o for o in alike if o.path.endswith(f"/{last}") or o.path.startswith(above)]
    )
    new = {one.path: other, other.path: one}
    return [TextEntry(o.path, new.get(o.path, o).content, new.get(o.path, o).target) for o in every]


def _rewritten(random, every):
    """A word that the kernel never says there, or another one that it may say."""
    name = random.choice((None, *_VALID, *_VALID))
    there = [
        o for o in every if o.content is not None and (not name or o.path.endswith(f"/{name}"))
    ]
    chosen = there if name and random.random() < 0.2 else random.sample(there, min(1, len(there)))
    word = random.choice(_VALID.get(name, _ODD)).encode() + b"\n"
    return [replace(one, content=word) if one in chosen else one for one in every]


_CHANGES = (_missing, _doubled, _beside, _foreign, _swapped, _rewritten, _rewritten, _rewritten)


def _answers(random, every):
    """What RDMA netlink says of ports: their own interfaces, foreign ones or none; and routes."""
    paths = [one.path for one in every]
    interfaces = sorted({m[1] for path in paths if (m := re.match(r"class/net/([^/]+)", path))})
    devices = []
    for path in paths:
        if (match := re.fullmatch(r"(devices/.+)/infiniband/([^/]+)/node_type", path)) is None:
            continue
        beside = [m[1] for p in paths if (m := re.match(rf"{match[1]}/net/([^/]+)/type", p))]
        numbers = sorted({m[1] for p in paths if (m := re.search(rf"{match[2]}/ports/(\d+)/", p))})
        ports = [
            {
                "number": int(number),
                "state": random.choice(("ACTIVE", "DOWN", "INIT", None)),
                "physical_state": random.choice(("LinkUp", "Polling", None)),
                "netdev": random.choice((*beside, *beside, *interfaces, None, "pod0")),
            }
            for number in random.sample(numbers, random.choice((len(numbers), 0)))
        ]
        one = {"index": len(devices), "name": match[2], "firmware": None, "ports": ports}
        devices += [one | {"smi": random.random() < 0.05}] * random.choice((1, 1, 0, 2))
    mode = random.choice(("shared", "exclusive", "unknown"))
    routed = random.sample([*interfaces, "gone0"], random.randint(0, 1))
    answer = {"devices": devices, "namespace_mode": mode, "faults": []}
    for name, said in (NETLINK_FILE, answer), (ROUTES_FILE, {"interfaces": routed}):
        text = json.dumps({"unavailable": "none"} if random.random() < 0.1 else said)
        yield TextEntry(name, f"{text}\n".encode())


class Owners:
    """Which names of a machine belong to which of its RDMA devices, ports and functions."""

    def __init__(self, root):
        tree = self._tree = SysfsTree(root)
        try:
            self._said = json.loads(root.read(NETLINK_FILE)).get("devices", ())
        except (OSError, ValueError):  # there is none, or an odd one
            self._said = ()
        self.devices = tree.names("class/infiniband", required=False)
        self._keys = {
            n: self._key(f"class/net/{n}") for n in tree.names("class/net", required=False)
        }
        self._functions = {name: self._key(f"class/infiniband/{name}") for name in self.devices}
        above = [f"class/infiniband/{name}/device" for name in self.devices]
        above += [f"bus/pci/devices/{n}" for n in tree.names("bus/pci/devices", required=False)]
        self._physical = {self._key(one)[0]: tree.link(f"{one}/physfn") for one in above}
        functions = {pci for pci, _ in (*self._keys.values(), *self._functions.values()) if pci}
        every = {*self.devices, *self._keys, *functions}
        self._names = {name for name in every if re.search(r"\d", name)}  # others are words, too

    def named(self, text):
        """The names of the machine that a text has, also with a first letter that is none."""
        words = {word.strip(".,;:()'\"") for word in re.split(r"[\s,;()/]", text)}
        return {word for word in words if {word, word[:1].lower() + word[1:]} & self._names}

    def of(self, subject):
        """All names that advice about devices, interfaces, functions or a driver may have."""
        return set().union(*map(self._of_one, re.split(r", | and |\+", subject)))

    def of_other_ports(self, device, number):
        """The interfaces of other ports, by dev_port; it does not count ports of a switch."""
        path = f"class/infiniband/{device}"
        ports = self._tree.names(f"{path}/ports", required=False)
        beside = self._tree.names(f"{path}/device/net", required=False)
        if sum(port.isdecimal() for port in ports) < 2 or any(map(self.is_behind, beside)):
            return set()
        at = {one: self._tree.number(f"{path}/device/net/{one}/dev_port") for one in beside}
        return {one for one in beside if at[one] not in (None, number - 1)} - self._told(
            device, number
        )

    def _key(self, path):
        """The function at or above a place, and the auxiliary device on it."""
        parts = (self._tree.place(path) or "").split("/")
        last = [[p for p in parts if form.fullmatch(p)] or [None] for form in (_PCI, _AUXILIARY)]
        return last[0][-1], last[1][-1]

    def _of_one(self, name):
        if name not in self.devices:
            driven = {one for one in self._keys if self._fact(one, "driver", link=True) == name}
            key = self._keys.get(name, (name if _PCI.fullmatch(name) else None, None))
            return {name, *self._around(driven, {key})}
        path = f"class/infiniband/{name}"
        parent = self._tree.text(f"{path}/parent", required=False)
        beside = set(self._tree.names(f"{path}/device/net", required=False))
        own, keys = beside | self._told(name), {self._key(f"{path}/device")}
        if parent or not beside:  # a soft device, or one whose interface is another function's
            own |= {parent} & self._keys.keys()
            own |= {lower for one in own for lower in self._related(one, "lower_")}
            keys |= {self._keys[one] for one in own & self._keys.keys()}
        return {name, *self._around(own, keys), *(beside if len(beside) == 1 else ())}

    def _told(self, device, number=None):
        """The kernel's own word on a device or one of its ports: GIDs, and RDMA netlink."""
        tree, folder = self._tree, f"class/infiniband/{device}/ports"
        ports = [number] if number else tree.names(folder, required=False)
        tables = [f"{folder}/{port}/gid_attrs/ndevs" for port in ports]
        gids = {tree.text(f"{t}/{n}", required=False) for t in tables for n in tree.names(t)}
        said = (port for one in self._said if one["name"] == device for port in one["ports"])
        return {*gids, *(p["netdev"] for p in said if number in {None, p["number"]})} - {None}

    def _around(self, own, keys):
        """With all of the same functions and the physical ones, and what stands on them."""
        keys = {key for key in keys if key[0]} | {(pci, None) for pci, _ in keys if pci}
        physical = {self._physical.get(pci) for pci, _ in keys} - {None}
        # A function without an RDMA device is part of its card's, which is of several then.
        slots = {pci[:-2] for pci, _ in keys if not self._physical.get(pci)}
        keys |= {k for k in self._keys.values() if k[0] and k[0][:-2] in slots} - {
            *self._functions.values()
        } | {(pci, None) for pci in physical}
        own = own | {one for one, key in self._keys.items() if key in keys}
        uppers = {up for one in own for up in self._related(one, "upper_")}
        uppers |= {up for one in uppers for up in self._related(one, "upper_")}
        devices = {one for one, key in self._functions.items() if key in keys}
        own = {one for one in own if not self._is_representor(one)}
        return {*own, *uppers, *devices, *(pci for pci, _ in keys)}

    def _related(self, interface, prefix):
        path = f"class/net/{interface}"
        names = self._tree.names(path, required=False)
        master = self._tree.link(f"{path}/master") if prefix == "upper_" else None
        return {n.removeprefix(prefix) for n in names if n.startswith(prefix)} | {master} - {None}

    def is_behind(self, interface):
        """Decide whether an interface is called as one of a function behind the card's switch."""
        text = self._tree.text(f"class/net/{interface}/phys_port_name", required=False) or ""
        return _BEHIND.fullmatch(text) is not None

    def _is_representor(self, interface):
        """One that is alone on its network function is its own, whatever it is called."""
        pci, auxiliary = key = self._keys.get(interface, (None, None))
        ids = [self._fact(interface, name) or "" for name in ("vendor", "device")]
        kinds = [self._fact(interface, name) or "" for name in ("class", "physfn/class")]
        return (
            bool(pci and not auxiliary and list(self._keys.values()).count(key) > 1)
            and all(map(_ID.fullmatch, ids))
            and kinds[0].startswith("0x02")
            and kinds[1].startswith("0x02" if self._physical.get(pci) else "")
            and self._tree.place(f"bus/pci/devices/{pci}") == self._above(interface)
            and self._tree.place(f"class/net/{interface}").endswith(f"/{interface}")
            and self.is_behind(interface)
        )

    def _above(self, interface):
        return (self._tree.place(f"class/net/{interface}") or "").partition("/net/")[0]

    def _fact(self, interface, name, *, link=False):
        path = f"{self._above(interface)}/{name}"
        return self._tree.link(path) if link else self._tree.text(path, required=False)
