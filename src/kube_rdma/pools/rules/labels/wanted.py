"""What the labels of a node are to say, from a survey and a few facts beside it.

The loop of role plugin hands in each look; pools/rules/labels/ownership compares what comes out
with the Node object. Every value is a legal one by construction: what has no legal value has no
label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kube_base.frozen import Frozen, field
from kube_rdma.model.card import USER_SPACE
from kube_rdma.model.device import Device, LinkLayer, PciPosition, Port, PortState
from kube_rdma.model.pools.pool import Mode
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.labels import table
from kube_rdma.pools.rules.topology import Nearness, nearness

MOST_VENDORS = 8  # a server has two or three; a label for each costs room in every Node object
DEFAULT_PREFIX = "fe80000000000000"  # what a subnet manager uses that was given none

# metav1 validation of label values, without the empty one.
VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", re.ASCII)
_RELEASE_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\..*)?", re.ASCII)
_OF_PORTS = (table.LINK_LAYER, table.RATE, table.PORTS, table.GPUS_NEAR, table.FABRIC)


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
        return key in self.kept or (self.leaves_nfd and table.is_nfd(key))


def wanted(facts: LabelFacts) -> WantedLabels:
    """The labels of a node.

    A card inside a pod shows the node its function alone: what it said stays said until it is back.
    A rate is kept while no port is active, so a link that flaps writes nothing.
    """
    labels = _rdma(facts)
    if facts.host:
        labels |= _vendors(facts.survey) | _host(facts.host)
    kept = {*_OF_PORTS} if _hidden(facts.survey) else set()
    if table.PORTS in labels and not labels.get(table.RATE):
        kept.add(table.RATE)
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
    return {f"{table.FEATURE}/pci-{vendor:04x}.present": "true" for vendor in chosen}


def _host(host: HostRelease) -> dict[str, str]:
    """The labels of kernel and distribution, spelled as Node Feature Discovery spells them."""
    kernel = re.sub(r"[^-A-Za-z0-9_.]", "_", host.kernel).strip("-_.")
    labels = {f"{table.KERNEL}.full": kernel}
    if match := _VERSION.fullmatch(kernel):
        parts = zip(("major", "minor", "revision"), match.groups(), strict=True)
        labels |= {f"{table.KERNEL}.{name}": part for name, part in parts if part}
    fields = dict(host.fields or ())
    labels |= {f"{table.RELEASE}.{name}": fields.get(name, "") for name in ("ID", "VERSION_ID")}
    if match := _RELEASE_VERSION.fullmatch(fields.get("VERSION_ID", "")):
        parts = zip(("major", "minor"), match.groups(), strict=True)
        labels |= {f"{table.RELEASE}.VERSION_ID.{name}": part for name, part in parts if part}
    return labels


def _rdma(facts: LabelFacts) -> dict[str, str]:
    """The labels of a node with RDMA devices, or with cards of which some are inside pods."""
    survey = facts.survey
    devices = [device for device in survey.devices if not _is_virtual(device)]
    ports = [port for device in devices for port in device.ports]
    if not ports and not _hidden(survey):
        return {}
    labels = _port_labels(survey, devices, ports) if ports else {}
    labels[table.RAILS] = str(facts.rails) if facts.rails else ""
    if facts.modes:
        labels[table.MODE] = str(next(iter(facts.modes))) if len(facts.modes) == 1 else "mixed"
    if survey.namespace_mode is not NamespaceMode.UNKNOWN:
        labels[table.NAMESPACES] = str(survey.namespace_mode)
    return labels


def _port_labels(survey: Survey, devices: list[Device], ports: list[Port]) -> dict[str, str]:
    """Those that need a port; a rate of which nothing is to say is empty, as other values are."""
    rates = [port.rate_gbps for port in ports if port.state is PortState.ACTIVE and port.rate_gbps]
    return {
        table.LINK_LAYER: _link_layer(ports),
        table.PORTS: str(len(ports)),
        table.RATE: str(int(max(rates))) if rates else "",
        table.GPUS_NEAR: str(_gpus_near(survey, devices)),
        table.FABRIC: ".".join(_prefixes(ports)),
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
