"""Steps and what takes them back, as people read them: for explain and for a dry run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kube_rdma.model.step import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    AwaitGid,
    GiveBackLink,
    GiveBackRdma,
    MakeLink,
    MakeRdma,
    MoveRdma,
    Probe,
    RemoveLink,
    RemoveRdma,
    RemoveRule,
    RestoreRdma,
    SetLink,
    SetSysctl,
    Step,
    TakeLink,
    Undo,
)


def describe(step: Step | Undo) -> str:
    """What is done, as a short sentence without its stop: ``give net1 the address 10.0.0.7/24``."""
    return _TEXTS[type(step)](step)


def _make_link(step: MakeLink) -> str:
    kind = f"{step.kind} ({step.mode})" if step.mode else str(step.kind)
    more = {
        "MTU": step.mtu,
        "MAC": step.mac,
        "partition": None if step.pkey is None else f"0x{step.pkey:04x}",
    }
    return f"make {step.name}, {kind} on {step.parent.name}" + _with(more)


def _set_link(step: SetLink) -> str:
    return f"bring {step.name} up" + _with({"MTU": step.mtu, "MAC": step.mac})


def _with(facts: Mapping[str, object]) -> str:
    said = [f"{name} {value}" for name, value in facts.items() if value is not None]
    return f", with {' and '.join(said)}" if said else ""


def _route(step: AddRoute) -> str:
    via = f" by {step.via}" if step.via else ""
    source = f" as {step.source}" if step.source else ""
    table = f", in table {step.table}" if step.table else ""
    return f"route {step.to} through {step.name}{via}{source}{table}"


def _rule(step: AddRule) -> str:
    return f"look up what comes from {step.source} in table {step.table}, priority {step.priority}"


def _give_back(step: GiveBackLink) -> str:
    state = "up" if step.up else "down"
    return (
        f"give {step.name} back to the node as {step.link.name}, {state}, with MTU {step.mtu} "
        f"and MAC {step.mac}"
    )


_TEXTS: Mapping[type[Step | Undo], Callable[[Any], str]] = {
    MakeLink: _make_link,
    TakeLink: lambda step: f"take {step.link.name} from the node as {step.name}",
    SetLink: _set_link,
    Probe: lambda step: f"ask on {step.name} whether somebody has {step.address}",
    AddAddress: lambda step: f"give {step.name} the address {step.address}/{step.prefix}",
    AddRoute: _route,
    AddRule: _rule,
    SetSysctl: lambda step: f"set {step.path.replace('/', '.')} to {step.value}",
    MakeRdma: lambda step: f"make the {step.kind} device {step.name} on {step.on}",
    MoveRdma: lambda step: f"move the RDMA device {step.device} into the pod",
    AwaitGid: lambda step: f"wait until {step.device} has a GID for {step.address} on {step.on}",
    Announce: lambda step: f"tell the neighbours that {step.name} has {step.address}",
    RemoveLink: lambda step: f"remove {step.name}",
    GiveBackLink: _give_back,
    RestoreRdma: lambda step: f"make the {step.kind} device {step.name} on {step.link.name} again",
    RemoveRule: lambda step: f"remove the rule for what comes from {step.source}",
    RemoveRdma: lambda step: f"remove the RDMA device {step.name}",
    GiveBackRdma: lambda step: f"give the RDMA device {step.device} back to the node",
}
