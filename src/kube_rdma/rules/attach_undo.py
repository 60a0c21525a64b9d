"""Takes an attachment back, and compares it with what the pod has now.

The journal holds Plans, and a fresh look at the pod (PodView) is all that is needed besides: after
a crash nobody knows which Step was the last, so undo is safe for all of them, and `missing` says
what a repair has to run again. CNI CHECK is `check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kube_rdma.model.attachment import Plan
from kube_rdma.model.function_step import RebindFunction, ResetFunction, SetFunction
from kube_rdma.model.ip import InterfaceName
from kube_rdma.model.pod_view import PodView, SeenLink, SeenRdma
from kube_rdma.model.step import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    AwaitGid,
    AwaitPartition,
    CallPlugin,
    EndPlugin,
    GiveBackLink,
    GiveBackRdma,
    MakeLink,
    MakeRdma,
    MoveRdma,
    Probe,
    RemoveLink,
    RemoveLinks,
    RemoveRdma,
    RemoveRule,
    RestoreRdma,
    SetLink,
    SetSysctl,
    Step,
    TakeLink,
    Undo,
    VirtualKind,
)
from kube_rdma.rules.attach_vf import differing

ALL_PLANS = -1


def undo(plan: Plan) -> tuple[Undo, ...]:
    """What takes all Steps of the plan back, whichever of them were run.

    Last Step first, but RDMA devices before everything: on InfiniBand their way back makes the
    link anew on the node, which is then found there. Addresses, routes and sysctls go with the
    link. A driver that is bound anew brings all of its function home, and has to: whoever dies
    between unbinding and binding leaves neither link nor RDMA device.
    """
    undone = [one for step in reversed(plan.steps) for one in _undone(step)]
    bound = {one.pci for one in undone if isinstance(one, RebindFunction)}
    undone = [one for one in undone if not (isinstance(one, GiveBackRdma) and one.pci in bound)]

    def turn(one: Undo) -> int:
        match one:
            case GiveBackRdma():
                return 0
            case RebindFunction():
                return 2
            case GiveBackLink(pci=pci) if pci in bound:
                return 3
        return 1

    return tuple(sorted(undone, key=turn))


def undo_all(plans: Sequence[Plan]) -> tuple[Undo, ...]:
    """What takes all of a pod's plans back, the last plan first; the links that we made go at once.

    They go where the last of them would: by then what stands on each of them is gone.
    """
    return tuple(act for _, act in undo_by_plan(plans))


def undo_by_plan(plans: Sequence[Plan]) -> tuple[tuple[int, Undo], ...]:
    """The same, each act with its plan's place; ALL_PLANS for that of several.

    What follows an act of a plan that could not be done must not be done: a function whose link is
    still in the pod keeps its VLAN.
    """
    last = len(plans) - 1
    acts = [(last - n, act) for n, plan in enumerate(reversed(plans)) for act in undo(plan)]
    links = [act for _, act in acts if isinstance(act, RemoveLink)]
    if len(links) < 2:
        return tuple(acts)
    at_once = (ALL_PLANS, RemoveLinks(tuple(links)))
    rest = [at_once if one[1] is links[-1] else one for one in acts]
    return tuple(one for one in rest if not isinstance(one[1], RemoveLink))


def missing(plan: Plan, seen: PodView) -> tuple[Step, ...]:
    """The Steps that are not, or no longer, done; to be run in this order.

    An announcement leaves no trace, so it is repeated when its address or link is missing. A probe
    is not: a repair gives the pod only what it had. What comes behind a driver that is bound anew
    is lost with its link.
    """
    for place, step in enumerate(plan.steps):
        if isinstance(step, RebindFunction) and not _is_done(step, seen):
            before = [one for one in plan.steps[:place] if not _is_done(one, seen)]
            later = [one for one in plan.steps[place:] if not isinstance(one, Probe)]
            return (*before, *later)
    lacking = [step for step in plan.steps if not _is_done(step, seen)]
    again = {step.name for step in lacking if isinstance(step, _MOVED)}
    return tuple(
        step
        for step in plan.steps
        if step in lacking or (isinstance(step, Announce) and step.name in again)
    )


def check(plan: Plan, seen: PodView) -> tuple[str, ...]:
    """What is wrong with an attachment, one sentence each; none when it is as planned."""
    return tuple(
        f"{plan.interface} ({plan.network}): {_LACKS[type(step)](step, seen)}"
        for step in plan.steps
        if not _is_done(step, seen)
    )


_MOVED = (MakeLink, TakeLink, SetLink, AddAddress)


def _undone(step: Step) -> Iterator[Undo]:
    match step:
        case MakeLink():
            yield RemoveLink(step.name, step.mark)
        case TakeLink():
            found = (step.mtu, step.mac, step.up, step.addresses)
            yield GiveBackLink(step.link, step.name, step.pci, *found)
            yield from (RestoreRdma(name, kind, step.link) for name, kind in step.soft)
        case SetFunction():
            yield ResetFunction(step.place, step.found)
        case RebindFunction():
            yield replace(step, guid=step.found, found=step.guid)
        case AddRule():
            yield RemoveRule(step.source, step.table, step.priority)
        case MakeRdma():
            yield RemoveRdma(step.name)
        case MoveRdma():
            yield GiveBackRdma(step.device, step.pci)
        case CallPlugin():
            yield EndPlugin(step)


def _is_done(step: Step, seen: PodView) -> bool:
    return bool(_DONE[type(step)](step, seen))


def _seen_link(seen: PodView, name: InterfaceName) -> SeenLink | None:
    return next((link for link in seen.links if link.name == name), None)


def _device(seen: PodView, name: str) -> SeenRdma | None:
    return next((device for device in seen.rdma if device.name == name), None)


def _made(step: MakeLink, seen: PodView) -> bool:
    link = _seen_link(seen, step.name)
    return link is not None and link.alias == step.mark


def _taken(step: TakeLink, seen: PodView) -> bool:
    # Moving keeps the index unless the namespace has another link with it, so it proves nothing.
    link = _seen_link(seen, step.name)
    own = link is not None and link.kind in ("", VirtualKind.IPOIB) and not link.virtual
    if not own or link is None:
        return False
    # Of a card's own link on virtio, and before Linux 5.14, the kernel tells no function.
    return link.pci == step.pci or (link.pci is None and not link.kind)


def _bound(step: RebindFunction, seen: PodView) -> bool:
    return any(one.pci == step.pci and one.guid == step.guid for one in seen.rdma)


def _set(step: SetLink, seen: PodView) -> bool:
    link = _seen_link(seen, step.name)
    return link is not None and link.up and not any(_differing(step, link))


def _differing(step: SetLink, link: SeenLink) -> Iterator[str]:
    if step.mtu is not None and link.mtu != step.mtu:
        yield f"its MTU is {link.mtu}, not {step.mtu}"
    if step.mac is not None and link.mac.lower() != step.mac.lower():
        yield f"its MAC is {link.mac}, not {step.mac}"


def _addressed(step: AddAddress, seen: PodView) -> bool:
    link = _seen_link(seen, step.name)
    return link is not None and (step.address, step.prefix) in link.addresses


def _routed(step: AddRoute, seen: PodView) -> bool:
    return any(
        (one.name, one.to, one.via, one.table) == (step.name, step.to, step.via, step.table)
        for one in seen.routes
    )


def _ruled(step: AddRule, seen: PodView) -> bool:
    wanted = (step.source, step.table, step.priority)
    return any((one.source, one.table, one.priority) == wanted for one in seen.rules)


def _rdma_made(step: MakeRdma, seen: PodView) -> bool:
    device = _device(seen, step.name)
    return device is not None and device.netdev == step.on


def _rdma_moved(step: MoveRdma, seen: PodView) -> bool:
    same = (one for one in seen.rdma if step.pci is not None and one.pci == step.pci)
    return _device(seen, step.device) is not None or any(same)


def _listed(step: AwaitGid, seen: PodView) -> bool:
    device = _device(seen, step.device)
    return device is not None and (step.on, step.address) in device.gids


def _unset(step: SetLink, seen: PodView) -> str:
    link = _seen_link(seen, step.name)
    if link is None:
        return "the interface is not there"
    if not link.up:
        return "the interface is down"
    return " and ".join(_differing(step, link))


def _unrouted(step: AddRoute, _: PodView) -> str:
    table = f" of table {step.table}" if step.table else ""
    return f"the route to {step.to}{table} is not there"


_DONE: Mapping[type[Step], Callable[[Any, PodView], bool]] = {
    MakeLink: _made,
    TakeLink: _taken,
    SetFunction: lambda step, seen: not differing(step, seen),
    RebindFunction: _bound,
    SetLink: _set,
    Probe: lambda _, __: True,
    AddAddress: _addressed,
    AddRoute: _routed,
    AddRule: _ruled,
    SetSysctl: lambda step, seen: (step.path, step.value) in seen.sysctls,
    MakeRdma: _rdma_made,
    MoveRdma: _rdma_moved,
    AwaitPartition: lambda _, __: True,
    AwaitGid: _listed,
    Announce: lambda _, __: True,
    CallPlugin: lambda step, seen: _seen_link(seen, step.name) is not None,
}

_LACKS: Mapping[type[Step], Callable[[Any, PodView], str]] = {
    MakeLink: lambda step, _: f"the {step.kind} link on {step.parent.name} is not there",
    TakeLink: lambda step, _: f"the card's link, {step.link.name} on the node, is not there",
    SetFunction: lambda step, seen: " and ".join(differing(step, seen)),
    RebindFunction: lambda step, _: f"the RDMA device of {step.pci} has not the GUID {step.guid}",
    SetLink: _unset,
    AddAddress: lambda step, _: f"the address {step.address}/{step.prefix} is not there",
    AddRoute: _unrouted,
    AddRule: lambda step, _: f"the rule for what comes from {step.source} is not there",
    SetSysctl: lambda step, _: f"{step.path.replace('/', '.')} is not {step.value}",
    MakeRdma: lambda step, _: f"the RDMA device {step.name} is not there",
    MoveRdma: lambda step, _: f"the RDMA device {step.device} is not there",
    AwaitGid: lambda step, _: f"{step.device} lists no GID for {step.address}",
    CallPlugin: lambda step, _: f"the interface of type {step.plugins[0].type} is not there",
}
