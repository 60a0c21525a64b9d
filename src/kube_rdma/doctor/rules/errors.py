"""KR126 to KR129: compares ports with each other, and tells of error counters that rise.

    KR126  flow control of a port is unlike that of most ports of its node
    KR127  RoCE packets get lost without PFC        KR129  other errors of a port that is up
    KR128  a card is unlike most cards of the fleet; diagnose.py calls `outliers` for it

cards.py has KR126, KR127 and KR129 among its checks. hardware/rules/error_counters says which
counters are errors; doctor/beside_sysfs reads them twice. A counter that is full hides all errors
from then on, and is reported as advice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from shlex import quote
from types import MappingProxyType

from kube_base.frozen import Frozen
from kube_rdma.doctor.rules.check import whole_cards
from kube_rdma.doctor.rules.meant import kinds_of, meant, survey_of
from kube_rdma.hardware.rules import error_counters as counters
from kube_rdma.model.device import Device, LinkLayer, Port
from kube_rdma.model.doctor import Observation, ObservedErrors, ObservedFlowControl
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.survey import Survey

FEWEST = 4  # values that are compared
SHARE = 0.75  # of them that agree
_Value = Callable[[Port], float | None]


class Majority(Frozen):
    """The value that most of several compared devices have."""

    value: str
    agreeing: int  # of the things that were compared
    every: int


def majority(values: Iterable[str]) -> Majority | None:
    """Return the value that at least three quarters have, None without one.

    Of fewer than four values none counts.
    """
    counts = Counter(values)
    every = counts.total()
    if every < FEWEST:
        return None
    value, agreeing = counts.most_common(1)[0]
    return Majority(value, agreeing, every) if agreeing >= every * SHARE else None


# KR126: trust, PFC and ECN of a RoCE port that differ from most ports of the node.

PFC, TRUST, ECN = "PFC", "trust", "ECN"
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        PFC: "dcb pfc set dev INTERFACE prio-pfc all:off N:on, or mlnx_qos -i INTERFACE --pfc …",
        TRUST: "mlnx_qos -i INTERFACE --trust dscp, or dcb apptrust set dev INTERFACE order dscp",
        ECN: "echo 1 > /sys/class/net/INTERFACE/ecn/roce_np/enable/N, and the same in roce_rp",
    }
)


def unlike_others(seen: Observation) -> Iterator[Finding]:
    """One rail is slower when the network is busy."""
    controls = {one.interface: one for one in seen.flow_control or ()}
    for ports in peers(seen).values():
        rows = [
            (device, port.netdev, name, value)
            for device, port in ports
            if port.netdev in controls
            for name, value in settings_of(controls[port.netdev]).items()
        ]
        for device, interface, name, value in rows:
            common = majority(v for _, _, n, v in rows if n == name)
            if common and value != common.value:
                yield Finding(
                    device.name,
                    f"{name} is {value}, and {common.value} on {common.agreeing} of "
                    f"{common.every} RoCE ports of its kind",
                    f"{name} of this port was not set, or was reset",
                    REMEDIES[name].replace("INTERFACE", quote(interface)),
                    Severity.WARNING,
                )


def peers(seen: Observation) -> Mapping[str, Sequence[tuple[Device, Port]]]:
    """Return active ports of cards, no VFs or SFs, by kind of card, port number and pools.

    Cards that `meant` leaves out are not in it. Only ports of one group are compared: a card for
    storage may have another rate, MTU and flow control.
    """
    groups: dict[str, list[tuple[Device, Port]]] = {}
    names, kinds = meant(seen), kinds_of(survey_of(seen))
    for device, port in counters.active_ports(seen.survey.devices if seen.survey else ()):
        if device.name in names and device.name in kinds:
            kind = f"{kinds[device.name]} {port.number} {names[device.name]}"
            groups.setdefault(kind, []).append((device, port))
    return groups


def below_peers(seen: Observation, value: _Value) -> Iterator[tuple[Device, Port, float]]:
    """Yield ports whose value is lower than their peers' usual one, with that usual value.

    A pool may give a pod any of its cards. So where pools were seen and a group has fewer than four
    values, each is compared with the highest.
    """
    for ports in peers(seen).values():
        values = [number for _, port in ports if (number := value(port))]
        common = majority(map(repr, values))
        few = values if seen.specs and len(values) < FEWEST else ()
        aim = float(common.value) if common else max(few, default=0)
        yield from ((device, port, aim) for device, port in ports if 0 < (value(port) or 0) < aim)


def roce_ports(seen: Observation) -> Iterator[tuple[Device, Port]]:
    """Yield active Ethernet ports of hardware devices."""
    for device, port in counters.active_ports(seen.survey.devices if seen.survey else ()):
        if port.link_layer is LinkLayer.ETHERNET:
            yield device, port


def roce_interfaces(survey: Survey) -> tuple[tuple[str, str], ...]:
    """Return the interfaces of RoCE cards, no VFs or SFs, each with the name of its driver."""
    return tuple(
        dict.fromkeys(
            (port.netdev, device.driver or "")
            for device, _ in whole_cards(survey)
            for port in device.ports
            if port.netdev and port.link_layer is LinkLayer.ETHERNET
        )
    )


def settings_of(control: ObservedFlowControl) -> Mapping[str, str]:
    """Return the known flow control settings of an interface as text, by their names."""
    values = {
        PFC: None if control.pfc is None else priorities(control.pfc),
        TRUST: control.trust or None,
        ECN: None if control.ecn is None else priorities(control.ecn),
    }
    return {name: value for name, value in values.items() if value is not None}


def priorities(which: Sequence[int]) -> str:
    """Return priorities as text: ``off``, ``on for priority 3`` or ``on for priorities 3, 5``."""
    if not which:
        return "off"
    noun = "priority" if len(which) == 1 else "priorities"
    return f"on for {noun} {', '.join(map(str, which))}"


# KR127 and KR129: error counters that rise.


def _blind(
    device: Device, port: Port, watched: ObservedErrors, names: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield advice about counters among `names` that are full, so that new errors do not show."""
    stood = ", ".join(f"{name} ({end})" for name, end in watched.full if name in names)
    if stood:
        reset = "A restart of the node sets them to 0"
        if port.link_layer is LinkLayer.INFINIBAND:
            reset = f"perfquery -C {quote(device.name)} -P {port.number} -R sets them to 0"
        yield Finding(
            device.name,
            f"full counters of port {port.number} are not checked: {stood}",
            "A counter stops at its maximum, so errors since then do not show in it",
            f"{reset}; then run the doctor again",
            Severity.ADVICE,
        )


def lost_packets(seen: Observation) -> Iterator[Finding]:
    """RoCE is slow under load, or jobs end with error 12 (retry exceeded)."""
    controls = {one.interface: one for one in seen.flow_control or ()}
    for device, port in roce_ports(seen):
        watched, control = _watched(seen, device, port), controls.get(port.netdev or "")
        if watched is None or control is None or control.pfc is None:
            continue
        if len(control.pfc) == counters.ALL_PRIORITIES:
            continue
        if not counters.rose(watched.rises, counters.LOSS):
            yield from _blind(device, port, watched, counters.LOSS)
            continue
        lost = (*counters.LOSS, *counters.DISCARDS, *counters.CONGESTION)
        pfc, evidence = priorities(control.pfc), _evidence(watched, lost)
        if control.pfc:
            cause = "RoCE loses packets: its traffic may be in a priority without PFC"
            remedy = (
                f"Send RDMA in {pfc.removeprefix('on for ')}: NCCL_IB_TC and UCX_IB_TRAFFIC_CLASS "
                f"have to be 4 times its DSCP (dcb app show dev {quote(control.interface)})"
            )
        else:
            cause = "RoCE loses packets: no priority of this port has PFC"
            remedy = "Switch on PFC for the priority of RDMA, or ECN, on all hosts and switches"
        yield Finding(
            device.name,
            f"PFC is {pfc} on {port.netdev}; {evidence}",
            cause,
            remedy,
            Severity.WARNING,
        )


def rising(seen: Observation) -> Iterator[Finding]:
    """The port is ACTIVE, and jobs are slow, hang, or end with error 12."""
    for device, port in counters.active_ports(seen.survey.devices if seen.survey else ()):
        watched = _watched(seen, device, port)
        if watched is None:
            continue
        yield from _blind(device, port, watched, (*counters.LINK, *counters.LOSS))
        if wrong := counters.fault(watched.rises, watched.seconds, port.link_layer):
            evidence = f"port {port.number} is up; {_evidence(watched, wrong.shown)}"
            yield Finding(device.name, evidence, wrong.cause, wrong.remedy, Severity.WARNING)


def _watched(seen: Observation, device: Device, port: Port) -> ObservedErrors | None:
    """Return what was watched of a port's counters; None where nothing rose and none was full."""
    of_port = (one for one in seen.errors or () if one.device == device.name)
    return next((one for one in of_port if one.port == port.number), None)


def _evidence(watched: ObservedErrors, names: tuple[str, ...]) -> str:
    """Return risen counters as text: ``within 2 s symbol_error rose by 12, link_downed by 1``."""
    first, *others = ((name, more) for name, more in watched.rises if name in names)
    texts = [f"{first[0]} rose by {first[1]}", *(f"{name} by {more}" for name, more in others)]
    return f"within {watched.seconds:g} s {', '.join(texts)}"


# KR128: facts of a node's cards that differ from most nodes of the fleet.

CODE, TITLE = "KR128", "unlike the fleet"
_FIRMWARE, _RATE, _MTU, _GIDS = "firmware", "rate", "MTU", "GID count"


class _Fact(Frozen):
    """A fact about a device that is compared with the same fact of its group."""

    device: str
    group: str  # devices of one kind, or of one kind and name
    name: str
    value: str
    interface: str


class _Difference(Frozen):
    """The cause, remedy and severity to report where a fact differs from that of its group."""

    cause: str
    remedy: str
    severity: Severity = Severity.WARNING


_DIFFERENCES: Mapping[str, _Difference] = {
    _RATE: _Difference(
        "A cable, transceiver or switch port came up slower, or the card is another one",
        "ethtool INTERFACE here and on another node; replug or replace the cable",
    ),
    _MTU: _Difference(
        "The MTU was not set on this node, or a program of it has reset it",
        "ip link set INTERFACE mtu VALUE, and in the node's own network configuration",
    ),
    _GIDS: _Difference(
        "The interface has more or fewer addresses than on other nodes",
        "ip addr show INTERFACE here and on another node; kube-rdma devices shows the GIDs",
    ),
    _FIRMWARE: _Difference(
        "The card's firmware is of another version than on most nodes",
        "Update the firmware of the node's cards, or of the others",
        Severity.ADVICE,
    ),
    **{
        word: _Difference(
            f"{word} of the port was not set on this node, or was reset", REMEDIES[word]
        )
        for word in (PFC, TRUST, ECN)
    },
}


def outliers(seen: Sequence[Observation]) -> Mapping[str, tuple[Finding, ...]]:
    """One node is slower than others, or jobs fail only on it: see `--all-nodes`.

    Return by node the Findings about its devices' facts that differ from most others'.
    """
    facts = {one.node: tuple(fact for fact in _facts(one) if fact.value) for one in seen}
    values: dict[tuple[str, str], list[str]] = {}
    for fact in chain.from_iterable(facts.values()):
        values.setdefault((fact.group, fact.name), []).append(fact.value)
    usual = {key: common for key, every in values.items() if (common := majority(every))}
    return {node: tuple(_unlike(node, of_node, usual)) for node, of_node in facts.items()}


def _unlike(
    node: str, of_node: Iterable[_Fact], usual: Mapping[tuple[str, str], Majority]
) -> Iterator[Finding]:
    """Yield a Finding for each fact of a node that differs from the usual value of its group."""
    for fact in of_node:
        common = usual.get((fact.group, fact.name))
        if common is None or fact.value == common.value:
            continue
        difference = _DIFFERENCES[fact.name]
        others = "cards of its kind" if fact.name == _FIRMWARE else "nodes"
        yield Finding(
            fact.device,
            f"{fact.device} of {node} has {fact.name} {fact.value}, and {common.agreeing} of "
            f"{common.every} {others} have {common.value}",
            difference.cause,
            difference.remedy.replace("INTERFACE", quote(fact.interface)),
            difference.severity,
            CODE,
        )


def _facts(seen: Observation) -> Iterator[_Fact]:
    """Yield the facts of a node's active cards to compare, such as firmware, rate and MTU."""
    mtus = {link.name: link.mtu for link in seen.links or ()}
    controls = {one.interface: one for one in seen.flow_control or ()}
    groups = peers(seen) if seen.survey else {}
    for kind, (device, port) in ((kind, one) for kind, ports in groups.items() for one in ports):
        interface = port.netdev or "INTERFACE"
        values = {
            _RATE: f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else "",
            _MTU: str(mtus.get(interface, "")),
            # GIDs of pods' interfaces come and go.
            _GIDS: str(sum(gid.netdev == interface for gid in port.gids)) if port.netdev else "",
            **settings_of(controls.get(interface, ObservedFlowControl(interface))),
        }
        yield _Fact(device.name, kind, _FIRMWARE, device.firmware or "", interface)
        for name, value in values.items():
            yield _Fact(device.name, f"{device.name} {kind}", name, value, interface)
