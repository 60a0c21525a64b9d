"""KR128: what of a node's cards is otherwise than on most nodes of the fleet.

Between rules/doctor/diagnose and fleet, where many nodes were asked. A node alone cannot tell that
its MTU is that of an old switch or its firmware the last one of its kind. Devices of one name and
one driver are compared, as rails are wired alike; without a clear majority nothing is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.model.device import Device, PortState
from kube_rdma.model.doctor import Observation
from kube_rdma.model.finding import Finding, Severity

CODE, TITLE = "KR128", "unlike the fleet"
_FEWEST = 3  # nodes that have the device; of two nobody knows which one is right
_MAJORITY = 2 / 3  # of them that agree

Fact = tuple[str, str, str]  # a device, its driver, and what of it is compared


class _Word(Frozen):
    """How a fact is told: what makes it differ, what to do, how bad it is."""

    cause: str
    remedy: str
    severity: Severity = Severity.WARNING


_WORDS: Mapping[str, _Word] = {
    "rate in Gb/s": _Word(
        "A cable, transceiver or switch port came up slower, or the card is another one",
        "ethtool INTERFACE here and on another node; replug or replace the cable",
    ),
    "MTU": _Word(
        "The MTU was not set on this node, or a program of it has reset it",
        "ip link set INTERFACE mtu VALUE, and in the node's own network configuration",
    ),
    "number of GIDs": _Word(
        "The interface has more or fewer addresses than on other nodes",
        "ip addr show INTERFACE here and on another node; kube-rdma devices shows the GIDs",
    ),
    "firmware": _Word(
        "The card's firmware is of another version than on most nodes",
        "Update the firmware of the node's cards, or of the others",
        Severity.ADVICE,
    ),
}


def outliers(seen: Sequence[Observation]) -> Mapping[str, tuple[Finding, ...]]:
    """By node what of its devices most nodes have otherwise."""
    facts = {one.node: dict(_facts(one)) for one in seen}
    usual = dict(_usual(facts.values()))
    return {node: tuple(_unlike(of_node, usual)) for node, of_node in facts.items()}


def _unlike(
    of_node: Mapping[Fact, str], usual: Mapping[Fact, tuple[str, int, int]]
) -> Iterator[Finding]:
    for fact, value in of_node.items():
        if fact not in usual or value == usual[fact][0]:
            continue
        device, _, name = fact
        common, agreeing, every = usual[fact]
        word = _WORDS[name]
        yield Finding(
            device,
            f"{name}: {value}, and {common} on {agreeing} of {every} nodes",
            word.cause,
            word.remedy,
            word.severity,
            CODE,
        )


def _usual(facts: Iterable[Mapping[Fact, str]]) -> Iterator[tuple[Fact, tuple[str, int, int]]]:
    """Of each fact the value that a clear majority has, and how many of how many have it."""
    counts: dict[Fact, Counter[str]] = {}
    for of_node in facts:
        for fact, value in of_node.items():
            counts.setdefault(fact, Counter())[value] += 1
    for fact, values in counts.items():
        (value, agreeing), every = values.most_common(1)[0], values.total()
        if every >= _FEWEST and agreeing >= every * _MAJORITY:
            yield fact, (value, agreeing, every)


def _facts(seen: Observation) -> Iterator[tuple[Fact, str]]:
    """What is compared of a node's cards; of a port that is down another check speaks."""
    mtus = {link.name: link.mtu for link in seen.links or ()}
    for device in seen.survey.devices if seen.survey else ():
        if device.is_soft or (device.seat and device.seat.physical_function):
            continue
        for name, value in _of_device(device, mtus):
            yield (device.name, device.driver or "", name), value


def _of_device(device: Device, mtus: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    if device.firmware:
        yield "firmware", device.firmware
    for port in device.ports[:1]:
        if port.state is not PortState.ACTIVE:
            continue
        if port.rate_gbps:
            yield "rate in Gb/s", f"{port.rate_gbps:g}"
        if port.netdev and port.netdev in mtus:
            yield "MTU", str(mtus[port.netdev])
        if port.netdev:  # those of pods' interfaces come and go
            own = sum(gid.netdev == port.netdev for gid in port.gids)
            yield "number of GIDs", str(own)
