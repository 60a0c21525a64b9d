"""Decides a node's labels: their values from a survey, and what has to change in the Node object.

The agent's loop hands in each survey; agent/node/node_labels writes the change. Every value is a
legal one by construction: what has no legal value has no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kube_base.frozen import Frozen, field
from kube_rdma.model.device import Device, LinkLayer, Port, PortState
from kube_rdma.model.kubernetes import LabelChange, NodeState
from kube_rdma.model.pools import HARDWARE, Mode
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.nearness import Nearness, nearness

# The table of node labels: keys that kube-rdma writes, and some that it reads, with their meaning.

FEATURE = "feature.node.kubernetes.io"
KERNEL = f"{FEATURE}/kernel-version"
RELEASE = f"{FEATURE}/system-os_release"
VENDOR = "VENDOR"  # in the key of a row: four hexadecimal digits

LINK_LAYER = "kube-rdma.io/link-layer"
RATE = "kube-rdma.io/rate-gbps"
PORTS = "kube-rdma.io/ports"
MODE = "kube-rdma.io/mode"
NAMESPACES = "kube-rdma.io/rdma-namespaces"
GPUS_NEAR = "kube-rdma.io/gpus-near"
RAILS = "kube-rdma.io/rails"
FABRIC = "kube-rdma.io/fabric"

# The annotation in which an agent remembers the labels that it wrote, with their values.
REMEMBERED = "kube-rdma.io/node-labels"

_VENDOR_DIGITS = re.compile(r"[0-9a-f]{4}")


class LabelRow(Frozen):
    """A row of the documented table of node labels: key, values and meaning."""

    key: str
    values: str
    meaning: str
    by_agent: bool = True  # False where the administrator or the controller gives it


TABLE = (
    LabelRow(
        f"{FEATURE}/pci-{VENDOR}.present",
        "`true`",
        "a network card or a GPU of this PCI vendor; at most 8 vendors",
    ),
    LabelRow(f"{KERNEL}.full", "`6.8.0-45-generic`", "the running kernel"),
    LabelRow(f"{KERNEL}.major", "`6`", "its first number"),
    LabelRow(f"{KERNEL}.minor", "`8`", "its second number"),
    LabelRow(f"{KERNEL}.revision", "`0`", "its third number"),
    LabelRow(f"{RELEASE}.ID", "`ubuntu`", "the host's distribution"),
    LabelRow(f"{RELEASE}.VERSION_ID", "`24.04`", "the version of the distribution"),
    LabelRow(f"{RELEASE}.VERSION_ID.major", "`24`", "its first number"),
    LabelRow(f"{RELEASE}.VERSION_ID.minor", "`04`", "its second number"),
    LabelRow(LINK_LAYER, "`ethernet`, `infiniband`, `mixed`", "link layer of the RDMA ports"),
    LabelRow(RATE, "`400`", "Gbit/s of the fastest active RDMA port, rounded down"),
    LabelRow(PORTS, "`8`", "number of RDMA ports, without ports of virtual functions"),
    LabelRow(
        MODE,
        "`hca`, `exclusive`, `shared`, `shared-multi`, `sriov`, `mixed`",
        "mode of the node's pools",
    ),
    LabelRow(NAMESPACES, "`shared`, `exclusive`", "the kernel's RDMA namespace mode"),
    LabelRow(GPUS_NEAR, "`8`", "number of GPUs that have an RDMA card below the same host bridge"),
    LabelRow(RAILS, "`8`", "number of rails that the node's cards are on"),
    LabelRow(
        FABRIC,
        "`fec0000000000001`",
        "InfiniBand subnet prefixes, sorted, with `.` between, without the default prefix",
    ),
    LabelRow(
        HARDWARE,
        "`8x400g-infiniband`",
        "group of nodes with the same hardware, for NodePolicies",
        by_agent=False,
    ),
    LabelRow(
        "kube-rdma.io/block",
        "`leaf-1`",
        "the node's block, named after its leaf switches",
        by_agent=False,
    ),
    LabelRow(
        "kube-rdma.io/leaf",
        "`leaf-1`",
        "leaf switches that the node's cards are plugged into",
        by_agent=False,
    ),
    LabelRow(
        "kube-rdma.io/serve",
        "`plugin`, `claims`",
        "whether the device plugin or claims give pods the node's cards",
        by_agent=False,
    ),
)

_KEYS = frozenset(row.key for row in TABLE if row.by_agent)


def writes(key: str) -> bool:
    """Decide whether kube-rdma's agents may write a label with this key."""
    return _generic(key) in _KEYS


def is_nfd(key: str) -> bool:
    """Decide whether a key has the prefix of Node Feature Discovery."""
    return key.startswith(f"{FEATURE}/")


def _generic(key: str) -> str:
    """Return the key as the table lists it: VENDOR stands for a vendor's number."""
    before, middle, after = key.partition("/pci-")
    vendor, dot, end = after.partition(".")
    if middle and dot and _VENDOR_DIGITS.fullmatch(vendor):
        return f"{before}{middle}{VENDOR}.{end}"
    return "" if VENDOR in key else key


# Values of the labels.

MOST_VENDORS = 8  # a server has two or three; a label for each costs room in every Node object
DEFAULT_PREFIX = "fe80000000000000"  # what a subnet manager uses that was given none

# metav1 validation of label values, without the empty one.
VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_RELEASE_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)
_OF_PORTS = (LINK_LAYER, RATE, PORTS, GPUS_NEAR, FABRIC)


class HostRelease(Frozen):
    """The running kernel's release, and the fields of the host's os-release (None if unread)."""

    kernel: str
    fields: tuple[tuple[str, str], ...] | None = None


class LabelFacts(Frozen):
    """The facts about a node from which its labels are made."""

    survey: Survey
    host: HostRelease | None = None  # None: labels of Node Feature Discovery are not written
    modes: frozenset[Mode] = frozenset()  # of the pools
    rails: int = 0  # how many


class WantedLabels(Frozen):
    """The labels that a node should have, by key, and keys whose labels stay as they are."""

    labels: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()  # they stay as they are where kube-rdma wrote them before
    leaves_nfd: bool = False  # labels of Node Feature Discovery stay, and none is written anew

    def keeps(self, key: str) -> bool:
        """Decide whether the label of this key keeps the value that kube-rdma wrote earlier."""
        return key in self.kept or (self.leaves_nfd and is_nfd(key))


def wanted_labels(facts: LabelFacts) -> WantedLabels:
    """Return the labels that a node should have, and those that keep their present value.

    Labels of ports are kept while a card is inside a pod, where the node cannot see it. A rate is
    kept while no port is active, so that a link that flaps does not change it.
    """
    labels = _rdma(facts)
    if facts.host:
        labels |= _vendors(facts.survey) | _host(facts.host)
    kept = {*_OF_PORTS} if _hidden(facts.survey) else set()
    if PORTS in labels and not labels.get(RATE):
        kept.add(RATE)
    return WantedLabels(
        {key: value for key, value in labels.items() if VALUE.fullmatch(value)},
        frozenset(kept),
        leaves_nfd=facts.host is None,
    )


def _vendors(survey: Survey) -> dict[str, str]:
    """Return presence labels for vendors of network cards and GPUs, MOST_VENDORS at most.

    Vendors of RDMA cards and GPUs come first.
    """
    positions = {device.pci for device in survey.devices}
    first = {one.vendor for one in survey.functions if one.position.pci in positions}
    first |= {gpu.vendor for gpu in survey.gpus}
    others = {one.vendor for one in survey.functions} - first
    chosen = [*sorted(first), *sorted(others)][:MOST_VENDORS]
    return {f"{FEATURE}/pci-{vendor:04x}.present": "true" for vendor in chosen}


def _host(host: HostRelease) -> dict[str, str]:
    """Return the labels of kernel and distribution; the value of an unknown fact is empty."""
    kernel = re.sub(r"[^-A-Za-z0-9_.]", "_", host.kernel).strip("-_.")
    labels = {f"{KERNEL}.full": kernel}
    if match := _VERSION.fullmatch(kernel):
        parts = zip(("major", "minor", "revision"), match.groups(), strict=True)
        labels |= {f"{KERNEL}.{name}": part for name, part in parts if part}
    fields = dict(host.fields or ())
    labels |= {f"{RELEASE}.{name}": fields.get(name, "") for name in ("ID", "VERSION_ID")}
    if match := _RELEASE_VERSION.fullmatch(fields.get("VERSION_ID", "")):
        parts = zip(("major", "minor"), match.groups(), strict=True)
        labels |= {f"{RELEASE}.VERSION_ID.{name}": part for name, part in parts if part}
    return labels


def _rdma(facts: LabelFacts) -> dict[str, str]:
    """Return the RDMA labels of a node that has ports of whole cards, or cards inside pods.

    There are none otherwise.
    """
    survey = facts.survey
    devices = [
        one for one in survey.devices if not (one.position and one.position.physical_function)
    ]
    ports = [port for device in devices for port in device.own_ports]
    if not ports and not _hidden(survey):
        return {}
    labels = _port_labels(survey, devices, ports) if ports else {}
    labels[RAILS] = str(facts.rails) if facts.rails else ""
    if facts.modes:
        labels[MODE] = str(next(iter(facts.modes))) if len(facts.modes) == 1 else "mixed"
    if survey.namespace_mode is not NamespaceMode.UNKNOWN:
        labels[NAMESPACES] = str(survey.namespace_mode)
    return labels


def _port_labels(survey: Survey, devices: list[Device], ports: list[Port]) -> dict[str, str]:
    """Return the labels about ports; `wanted_labels` leaves out labels with an empty value."""
    rates = [port.rate_gbps for port in ports if port.state is PortState.ACTIVE and port.rate_gbps]
    layers = {port.link_layer for port in ports} - {LinkLayer.UNKNOWN}
    positions = [device.position for device in devices if device.position]
    near = [
        gpu
        for gpu in survey.gpus
        if any(nearness(gpu.position, s).distance <= Nearness.PHB.distance for s in positions)
    ]
    return {
        LINK_LAYER: "mixed" if len(layers) > 1 else "".join(layers).lower(),
        PORTS: str(len(ports)),
        RATE: str(int(max(rates))) if rates else "",
        GPUS_NEAR: str(len(near)),
        FABRIC: ".".join(_prefixes(ports)),
    }


def _hidden(survey: Survey) -> bool:
    """Decide whether a card seems to be in a pod: it has a driver, and its devices are hidden."""
    positions = {device.pci for device in survey.devices}
    return any(
        one.driver
        and not one.for_programs
        and one.position.physical_function is None
        and not one.netdevs
        and one.position.pci not in positions
        for one in survey.functions
    )


def _prefixes(ports: Iterable[Port]) -> list[str]:
    """Return the subnet prefixes of InfiniBand ports, the default one left out.

    A prefix is the first half of GID 0 (IBA 4.1.1).
    """
    gids = (
        gid.value.replace(":", "")[:16]
        for port in ports
        if port.link_layer is LinkLayer.INFINIBAND
        for gid in port.gids
        if gid.index == 0
    )
    return sorted({*gids} - {DEFAULT_PREFIX})


# The Node object: which of its labels are kube-rdma's, and what has to change.

# Node Feature Discovery's list of its labels, those of FEATURE without the prefix. A second
# instance of it writes the same annotation with its name and a dot in front.
NFD_LIST = "nfd.node.kubernetes.io/feature-labels"


def label_change(node: NodeState, wanted: WantedLabels) -> LabelChange | None:
    """Return the change that gives the node its wanted labels; None where nothing has to change.

    Labels that others wrote stay as they are.
    """
    has, before = dict(node.labels), remembered(node)
    others = nfd_labels(node)
    own = {k: v for k, v in before.items() if k not in others and has.get(k) == v}
    after = {k: v for k, v in own.items() if wanted.keeps(k)}
    for key, value in wanted.labels.items():
        free = key not in has and key not in others
        may = writes(key) and not (wanted.leaves_nfd and is_nfd(key))
        if key not in after and may and (key in own or free):
            after[key] = value
    labels: dict[str, str | None] = {k: v for k, v in after.items() if has.get(k) != v}
    labels |= dict.fromkeys(own.keys() - after.keys())
    text = ",".join(f"{key}={value}" for key, value in sorted(after.items())) or None
    if not labels and dict(node.annotations).get(REMEMBERED) == text:
        return None
    return LabelChange(labels, {REMEMBERED: text})


def remembered(node: NodeState) -> Mapping[str, str]:
    """Return the labels that an agent wrote, as the node's annotation lists them.

    An entry that no agent can have written is ignored.
    """
    text = dict(node.annotations).get(REMEMBERED, "")
    entries = (entry.partition("=") for entry in text.split(","))
    return {key: value for key, _, value in entries if writes(key) and VALUE.fullmatch(value)}


def nfd_labels(node: NodeState) -> frozenset[str]:
    """Return the keys of labels that Node Feature Discovery manages on this node."""
    lists = (v for k, v in node.annotations if k == NFD_LIST or k.endswith(f".{NFD_LIST}"))
    names = (name.strip() for text in lists for name in text.split(","))
    return frozenset(name if "/" in name else f"{FEATURE}/{name}" for name in names if name)
