"""Texts of steps and of what takes them back, for explain and for the hardware self-test.

attach/rules/undo has the check and the undo of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kube_rdma.model import pools
from kube_rdma.model.attach import steps


def describe(step: steps.Step | steps.Undo) -> str:
    """Return a short sentence without a full stop: ``give net1 the address 10.0.0.7/24``."""
    return TEXTS[type(step)](step)


def _make_link(step: steps.MakeLink) -> str:
    kind = f"{step.kind} ({step.mode})" if step.mode else str(step.kind)
    partition = None if step.pkey is None else f"0x{step.pkey:04x}"
    more = {"MTU": step.mtu, "MAC": step.mac, "partition": partition}
    return f"make {step.name}, {kind} on {step.parent.name}" + _with(more)


def _function(place: pools.FunctionPlace) -> str:
    return f"virtual function {place.number} of {place.physical.name}"


def _settings(settings: pools.FunctionSettings) -> str:
    words = {True: "on", False: "off"}
    facts = {
        "MAC": settings.mac,
        "VLAN": settings.vlan,
        "priority": settings.qos or None,
        "VLAN protocol": settings.protocol,
        "spoof check": None if settings.spoof_check is None else words[settings.spoof_check],
        "trust": None if settings.trust is None else words[settings.trust],
        "link state": settings.link_state,
        "at least (Mbit/s)": settings.min_rate,
        "at most (Mbit/s)": settings.max_rate,
        "node GUID": settings.node_guid,
        "port GUID": settings.port_guid,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


def _with(facts: Mapping[str, object]) -> str:
    phrases = [f"{name} {value}" for name, value in facts.items() if value is not None]
    return f", with {' and '.join(phrases)}" if phrases else ""


def _route(step: steps.AddRoute) -> str:
    via = f" by {step.via}{' on-link' if step.onlink else ''}" if step.via else ""
    source = f" as {step.source}" if step.source else ""
    table = f", in table {step.table}" if step.table else ""
    return f"route {step.to} through {step.name}{via}{source}{table}"


def _give_back(step: steps.GiveBackLink) -> str:
    state = "up" if step.up else "down"
    ways = {"route": len(step.routes), "rule": len(step.rules)}
    more = [f"{count} {word}{'s' if count > 1 else ''}" for word, count in ways.items() if count]
    return (
        f"give {step.name} back to the node as {step.link.name}, {state}, with MTU {step.mtu} "
        f"and MAC {step.mac}" + (f", with {' and '.join(more)}" if more else "")
    )


def _plugins(step: steps.CallPlugin) -> str:
    types = [one.type for one in step.plugins]
    return f"the CNI plugin{'s' if types[1:] else ''} {', '.join(types)}"


TEXTS: Mapping[type[steps.Step | steps.Undo], Callable[[Any], str]] = {
    steps.MakeLink: _make_link,
    steps.TakeLink: lambda step: (
        f"take {step.link.name} from the node as {step.name}"
        f"{', when its port is ACTIVE' if step.active else ''}"
    ),
    pools.SetFunction: lambda step: f"set up {_function(step.place)}: {_settings(step.wanted)}",
    pools.RebindFunction: lambda step: (
        f"bind {step.driver} to {step.pci} again, which then has the GUID {step.guid}"
    ),
    steps.SetLink: lambda step: f"bring {step.name} up" + _with({"MTU": step.mtu, "MAC": step.mac}),
    steps.Probe: lambda step: f"ask on {step.name} whether another machine has {step.address}",
    steps.AddAddress: lambda step: f"give {step.name} the address {step.address}/{step.prefix}",
    steps.AddRoute: _route,
    steps.AddRule: lambda step: (
        f"look up what comes from {step.source} in table {step.table}, priority {step.priority}"
    ),
    steps.SetSysctl: lambda step: f"set {step.path.replace('/', '.')} to {step.value}",
    steps.MakeRdma: lambda step: f"make the {step.kind} device {step.name} on {step.on}",
    steps.MoveRdma: lambda step: f"move the RDMA device {step.device} into the pod",
    steps.AwaitPartition: lambda step: (
        f"wait until {step.pci} is in the partition 0x{step.pkey:04x}"
    ),
    steps.AwaitGid: lambda step: (
        f"wait until {step.device} has a GID for {step.address} on {step.on}"
    ),
    steps.Announce: lambda step: f"announce to the neighbours that {step.name} has {step.address}",
    steps.CallPlugin: lambda step: (
        f"have {_plugins(step)} {'give addresses to' if step.addresses else 'make'} {step.name}"
    ),
    steps.RemoveLink: lambda step: f"remove {step.name}",
    steps.RemoveLinks: lambda step: (
        f"remove {', '.join(link.name for link in step.links) or 'nothing'}"
    ),
    steps.GiveBackLink: _give_back,
    pools.ResetFunction: lambda undo: (
        f"set {_function(undo.place)} back: {_settings(undo.previous)}"
    ),
    steps.RestoreRdma: lambda step: (
        f"make the {step.kind} device {step.name} on {step.link.name} again"
    ),
    steps.RemoveRule: lambda step: f"remove the rule for what comes from {step.source}",
    steps.RemoveRdma: lambda step: f"remove the RDMA device {step.name}",
    steps.GiveBackRdma: lambda step: f"give the RDMA device {step.device} back to the node",
    steps.EndPlugin: lambda step: (
        f"have {_plugins(step.call)} take "
        f"{'the addresses of ' if step.call.addresses else ''}{step.call.name} back"
    ),
}
