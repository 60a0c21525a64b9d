"""How NCCL reads its topology file, and how it finds by itself where a function sits.

Rules of NCCL 2.4 to 2.29 (src/graph/xml.cc, xml.h, topo.cc), written down anew: what its reader
refuses is refused here, and an attribute that its graph cannot be made without is missed here.
"""

import re
from dataclasses import dataclass, field

LONGEST, ATTRIBUTES, SUBS = 254, 16, 640
INSIDE = {
    "system": {"cpu"},
    "cpu": {"pci", "nic"},
    "pci": {"pci", "gpu", "nic", "pcilink"},
    "nic": {"net"},
    "net": set(),
}
TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[a-z]+)(?P<attributes>(?: [a-z_]+=\"[^\"]*\")*)(?P<single>/?)>"
)
ATTRIBUTE = re.compile(r' ([a-z_]+)="([^"]*)"')
# ncclTopoAddPci, ncclTopoAddCpu: without them there is no graph, and the job ends.
NEEDED = {"pci": {"busid", "class", "link_speed", "link_width"}, "cpu": {"numaid"}, "net": {"name"}}
OF_X86 = {"vendor", "familyid", "modelid"}
BDF = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")


@dataclass
class Node:
    """An element of the file."""

    name: str
    attributes: dict[str, str]
    above: "Node | None" = None
    subs: list["Node"] = field(default_factory=list)

    def all(self, name):
        """The elements of this name below."""
        for sub in self.subs:
            if sub.name == name:
                yield sub
            yield from sub.all(name)

    def way(self):
        """From the top down: the NUMA node and the addresses on the way to here."""
        if self.above is None:
            return ()
        own = self.attributes.get("busid") or self.attributes.get("numaid")
        return (*self.above.way(), own) if own else self.above.way()


def read(text):
    """The element at the top; raise ValueError with what NCCL would stumble over."""
    top = node = None
    at = 0
    while rest := text[at:].lstrip(" \n\r"):
        at = len(text) - len(rest)
        tag = TAG.match(text, at)
        if tag is None:
            raise ValueError(f"expecting '<', got {rest[:20]!r}")
        at = tag.end()
        if tag["end"]:
            if node is None or node.name != tag["name"]:
                raise ValueError(f"mismatch: {tag['name']}")
            check(node)
            node = node.above
            continue
        new = Node(tag["name"], dict(ATTRIBUTE.findall(tag["attributes"])), node)
        if node is None:
            if top or new.name != "system" or new.attributes.get("version") != "1":
                raise ValueError("no topology of version 1")
            top = new
        else:
            if new.name not in INSIDE[node.name]:
                raise ValueError(f"{new.name} is ignored in {node.name}")
            node.subs.append(new)
        if tag["single"]:
            check(new)
        else:
            node = new
    if top is None or node is not None:
        raise ValueError("unterminated")
    return top


def check(node):
    """Raise ValueError for what is too much, or missing."""
    if len(node.subs) > SUBS or len(node.attributes) > ATTRIBUTES:
        raise ValueError(f"{node.name} has too many parts")
    if any(len(value) > LONGEST for value in node.attributes.values()):
        raise ValueError(f"a value of {node.name} is too long")
    needed = NEEDED.get(node.name, set())
    if node.attributes.get("arch") == "x86_64":
        needed = needed | OF_X86
    if missing := needed - node.attributes.keys():
        raise ValueError(f"{node.name} lacks {sorted(missing)}")


def found_by_nccl(place, numa_node):
    """Where NCCL would put a function at this place of sysfs: NUMA node, then addresses."""
    parts, way = place.split("/"), []
    while True:
        way.insert(0, parts[-1])
        for _ in range(2):
            parts.pop()
            if not BDF.fullmatch(parts[-1]):
                return (str(-1 if numa_node is None else numa_node), *way)
