"""KR128: what of a node's cards is otherwise than on most nodes of the fleet.

Between doctor/rules/diagnose and fleet, where many nodes were asked. A node alone cannot tell that
its MTU is that of an old switch or its firmware the last one of its kind. Firmware is compared
among all cards of one kind. What depends on the cabling is compared among cards that also have one
name, as rails are wired alike. Without a clear majority nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.doctor.rules.flow_control import ECN, PFC, REMEDIES, TRUST, words
from kube_rdma.doctor.rules.majority import Majority, majority
from kube_rdma.model.device import Device, PortState
from kube_rdma.model.doctor import Observation, ObservedFlowControl
from kube_rdma.model.finding import Finding, Severity

CODE, TITLE = "KR128", "unlike the fleet"
_FIRMWARE, _RATE, _MTU, _GIDS = "firmware", "rate", "MTU", "GID count"


class _Fact(Frozen):
    """What is compared of a device, among those of its `group`: of one kind, or also one name."""

    device: str
    group: str
    name: str
    value: str


class _Word(Frozen):
    """How a fact is told: what makes it differ, what to do, how bad it is."""

    cause: str
    remedy: str
    severity: Severity = Severity.WARNING


_WORDS: Mapping[str, _Word] = {
    _RATE: _Word(
        "A cable, transceiver or switch port came up slower, or the card is another one",
        "ethtool INTERFACE here and on another node; replug or replace the cable",
    ),
    _MTU: _Word(
        "The MTU was not set on this node, or a program of it has reset it",
        "ip link set INTERFACE mtu VALUE, and in the node's own network configuration",
    ),
    _GIDS: _Word(
        "The interface has more or fewer addresses than on other nodes",
        "ip addr show INTERFACE here and on another node; kube-rdma devices shows the GIDs",
    ),
    _FIRMWARE: _Word(
        "The card's firmware is of another version than on most nodes",
        "Update the firmware of the node's cards, or of the others",
        Severity.ADVICE,
    ),
    **{
        word: _Word(f"{word} of the port was not set on this node, or was reset", REMEDIES[word])
        for word in (PFC, TRUST, ECN)
    },
}


def outliers(seen: Sequence[Observation]) -> Mapping[str, tuple[Finding, ...]]:
    """By node what of its devices most others have otherwise."""
    facts = {one.node: tuple(_facts(one)) for one in seen}
    usual = dict(_usual(facts.values()))
    return {node: tuple(_unlike(node, of_node, usual)) for node, of_node in facts.items()}


def _unlike(
    node: str, of_node: Iterable[_Fact], usual: Mapping[tuple[str, str], Majority]
) -> Iterator[Finding]:
    for fact in of_node:
        common = usual.get((fact.group, fact.name))
        if common is None or fact.value == common.value:
            continue
        word = _WORDS[fact.name]
        others = "cards of its kind" if fact.name == _FIRMWARE else "nodes"
        yield Finding(
            fact.device,
            f"{fact.device} of {node} has {fact.name} {fact.value}, and {common.agreeing} of "
            f"{common.every} {others} have {common.value}",
            word.cause,
            word.remedy,
            word.severity,
            CODE,
        )


def _usual(facts: Iterable[Iterable[_Fact]]) -> Iterator[tuple[tuple[str, str], Majority]]:
    """Of each group and each fact the value that a clear majority has."""
    values: dict[tuple[str, str], list[str]] = {}
    for of_node in facts:
        for fact in of_node:
            values.setdefault((fact.group, fact.name), []).append(fact.value)
    for key, every in values.items():
        if common := majority(every):
            yield key, common


def _facts(seen: Observation) -> Iterator[_Fact]:
    """What is compared of a node's cards; of a port that is down another check speaks."""
    mtus = {link.name: link.mtu for link in seen.links or ()}
    controls = {one.interface: one for one in seen.flow_control or ()}
    for device in seen.survey.devices if seen.survey else ():
        if device.is_soft or (device.seat and device.seat.physical_function):
            continue
        kind = _kind(seen, device)
        if device.firmware:
            yield _Fact(device.name, kind, _FIRMWARE, device.firmware)
        for name, value in _of_port(device, mtus, controls):
            yield _Fact(device.name, f"{device.name} {kind}", name, value)


def _kind(seen: Observation, device: Device) -> str:
    """The driver, and vendor and device of the function where they were seen."""
    functions = seen.survey.functions if seen.survey else ()
    ids = (f"{one.vendor:04x}:{one.device:04x}" for one in functions if one.seat.pci == device.pci)
    return f"{device.driver} {next(ids, '')}"


def _of_port(
    device: Device, mtus: Mapping[str, int], controls: Mapping[str, ObservedFlowControl]
) -> Iterator[tuple[str, str]]:
    for port in device.ports[:1]:
        if port.state is not PortState.ACTIVE:
            continue
        if port.rate_gbps:
            yield _RATE, f"{port.rate_gbps:g} Gb/s"
        if port.netdev and port.netdev in mtus:
            yield _MTU, str(mtus[port.netdev])
        if port.netdev:  # those of pods' interfaces come and go
            own = sum(gid.netdev == port.netdev for gid in port.gids)
            yield _GIDS, str(own)
        if port.netdev and port.netdev in controls:
            yield from words(controls[port.netdev]).items()
