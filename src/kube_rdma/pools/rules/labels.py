"""What the labels of a node are to say, from a survey and a few facts beside it.

The loop of role plugin hands in each look; pools/rules/labels compares what comes out
with the Node object. Every value is a legal one by construction: what has no legal value has no
label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kube_base.frozen import Frozen, field
from kube_rdma.model.card import USER_SPACE
from kube_rdma.model.device import Device, LinkLayer, PciPosition, Port, PortState
from kube_rdma.model.kubernetes import LabelChange, NodeState
from kube_rdma.model.pools import Mode
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.topology import Nearness, nearness

# THE table of node labels: every key that kube-rdma writes or reads as topology, and its meaning.

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

# What an agent remembers at the Node object: the labels that it wrote, with their values.
REMEMBERED = "kube-rdma.io/node-labels"

_VENDOR_DIGITS = re.compile(r"[0-9a-f]{4}")


class LabelRow(Frozen):
    """One label. `by_agent` is False where the administrator alone gives it."""

    key: str
    values: str
    meaning: str
    by_agent: bool = True


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
    LabelRow(LINK_LAYER, "`ethernet`, `infiniband`, `mixed`", "what the RDMA ports speak"),
    LabelRow(RATE, "`400`", "Gbit/s of the fastest active RDMA port, cut to a whole number"),
    LabelRow(PORTS, "`8`", "RDMA ports, without those of virtual functions"),
    LabelRow(
        MODE,
        "`hca`, `exclusive`, `shared`, `shared-multi`, `sriov`, `mixed`",
        "how the node's pools give their cards",
    ),
    LabelRow(NAMESPACES, "`shared`, `exclusive`", "the kernel's RDMA namespace mode"),
    LabelRow(GPUS_NEAR, "`8`", "GPUs with an RDMA card below the same host bridge"),
    LabelRow(RAILS, "`8`", "rails that the node's cards are on"),
    LabelRow(
        FABRIC,
        "`fec0000000000001`",
        "InfiniBand subnet prefixes, sorted, with `.` between; the default prefix names no fabric",
    ),
    LabelRow("kube-rdma.io/block", "any", "block of the fabric, for schedulers", by_agent=False),
    LabelRow("kube-rdma.io/leaf", "any", "leaf switch, for schedulers", by_agent=False),
    LabelRow(
        "kube-rdma.io/serve",
        "`plugin`, `claims`",
        "by which way pods get the node's cards",
        by_agent=False,
    ),
)

_KEYS = frozenset(row.key for row in TABLE if row.by_agent)


def writes(key: str) -> bool:
    """Whether an agent may write a label of this key."""
    return _generic(key) in _KEYS


def is_nfd(key: str) -> bool:
    """Whether a key is below the prefix of Node Feature Discovery."""
    return key.startswith(f"{FEATURE}/")


def _generic(key: str) -> str:
    """The key as the table has it."""
    before, middle, after = key.partition("/pci-")
    vendor, dot, end = after.partition(".")
    if middle and dot and _VENDOR_DIGITS.fullmatch(vendor):
        return f"{before}{middle}{VENDOR}.{end}"
    return "" if VENDOR in key else key


MOST_VENDORS = 8  # a server has two or three; a label for each costs room in every Node object
DEFAULT_PREFIX = "fe80000000000000"  # what a subnet manager uses that was given none

# metav1 validation of label values, without the empty one.
VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_RELEASE_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)
_OF_PORTS = (LINK_LAYER, RATE, PORTS, GPUS_NEAR, FABRIC)


class HostRelease(Frozen):
    """The running kernel's release, and os-release of the host: field by field, None unread."""

    kernel: str
    fields: tuple[tuple[str, str], ...] | None = None


class LabelFacts(Frozen):
    """What labels are made of: `modes` are those of the pools, `rails` counts the rails.

    `host` None: the labels of Node Feature Discovery are not written.
    """

    survey: Survey
    host: HostRelease | None = None
    modes: frozenset[Mode] = frozenset()
    rails: int = 0


class WantedLabels(Frozen):
    """Labels by key. Those of `kept` stay as they are where kube-rdma wrote them before.

    `leaves_nfd`: so do all those of Node Feature Discovery, and none of them is written anew.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    leaves_nfd: bool = False

    def keeps(self, key: str) -> bool:
        """Whether a label of this key stays as kube-rdma wrote it before."""
        return key in self.kept or (self.leaves_nfd and is_nfd(key))


def wanted(facts: LabelFacts) -> WantedLabels:
    """The labels of a node.

    A card inside a pod shows the node its function alone: what it said stays said until it is back.
    A rate is kept while no port is active, so a link that flaps writes nothing.
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
    """Every vendor of functions and GPUs; those of RDMA cards and GPUs before others."""
    seats = {device.pci for device in survey.devices}
    first = {one.vendor for one in survey.functions if one.seat.pci in seats}
    first |= {gpu.vendor for gpu in survey.gpus}
    others = {one.vendor for one in survey.functions} - first
    chosen = [*sorted(first), *sorted(others)][:MOST_VENDORS]
    return {f"{FEATURE}/pci-{vendor:04x}.present": "true" for vendor in chosen}


def _host(host: HostRelease) -> dict[str, str]:
    """The labels of kernel and distribution, spelled as Node Feature Discovery spells them."""
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
    """The labels of a node with RDMA devices, or with cards of which some are inside pods."""
    survey = facts.survey
    devices = [device for device in survey.devices if not _is_virtual(device)]
    ports = [port for device in devices for port in device.ports]
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
    """Those that need a port; a rate of which nothing is to say is empty, as other values are."""
    rates = [port.rate_gbps for port in ports if port.state is PortState.ACTIVE and port.rate_gbps]
    return {
        LINK_LAYER: _link_layer(ports),
        PORTS: str(len(ports)),
        RATE: str(int(max(rates))) if rates else "",
        GPUS_NEAR: str(_gpus_near(survey, devices)),
        FABRIC: ".".join(_prefixes(ports)),
    }


def _is_virtual(device: Device) -> bool:
    return device.seat is not None and device.seat.physical_function is not None


def _hidden(survey: Survey) -> bool:
    """Whether a card of the node is inside a pod: its function has a driver, and nothing else."""
    seats = {device.pci for device in survey.devices}
    return any(
        one.driver
        and one.driver not in USER_SPACE
        and one.seat.physical_function is None
        and not one.netdevs
        and one.seat.pci not in seats
        for one in survey.functions
    )


def _link_layer(ports: Iterable[Port]) -> str:
    layers = {port.link_layer for port in ports} - {LinkLayer.UNKNOWN}
    if len(layers) > 1:
        return "mixed"
    return "".join(layers).lower()


def _gpus_near(survey: Survey, devices: Iterable[Device]) -> int:
    seats = [device.seat for device in devices if device.seat]
    return sum(any(_is_near(gpu.seat, seat) for seat in seats) for gpu in survey.gpus)


def _is_near(gpu: PciPosition, card: PciPosition) -> bool:
    return nearness(gpu, card).distance <= Nearness.PHB.distance


def _prefixes(ports: Iterable[Port]) -> list[str]:
    """The subnet prefixes of InfiniBand ports: the first half of GID 0 (IBA 4.1.1)."""
    gids = (
        gid.value.replace(":", "")[:16]
        for port in ports
        if port.link_layer is LinkLayer.INFINIBAND
        for gid in port.gids
        if gid.index == 0
    )
    return sorted({*gids} - {DEFAULT_PREFIX})


# Which labels of a Node object are kube-rdma's, and what has to change there.

# Node Feature Discovery's list of its labels, those of FEATURE without the prefix. A second
# instance of it writes the same annotation with its name and a dot in front.
NFD_LIST = "nfd.node.kubernetes.io/feature-labels"


def change(node: NodeState, wanted: WantedLabels) -> LabelChange | None:
    """What to write so that the node says what is wanted; None when it does."""
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
    text = _text(after)
    if not labels and dict(node.annotations).get(REMEMBERED) == text:
        return None
    return LabelChange(labels, {REMEMBERED: text})


def remembered(node: NodeState) -> Mapping[str, str]:
    """The labels that an agent wrote; whatever it cannot have written there counts for nothing."""
    text = dict(node.annotations).get(REMEMBERED, "")
    entries = (entry.partition("=") for entry in text.split(","))
    return {key: value for key, _, value in entries if writes(key) and VALUE.fullmatch(value)}


def nfd_labels(node: NodeState) -> frozenset[str]:
    """The keys that Node Feature Discovery calls its own on this node."""
    lists = (v for k, v in node.annotations if k == NFD_LIST or k.endswith(f".{NFD_LIST}"))
    names = (name.strip() for text in lists for name in text.split(","))
    return frozenset(name if "/" in name else f"{FEATURE}/{name}" for name in names if name)


def _text(labels: Mapping[str, str]) -> str | None:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or None
