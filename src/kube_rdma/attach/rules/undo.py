"""Says of each kind of Step what is wrong in a pod where it is not done, and what undoes it.

There is one row for each kind. A new kind is one row here, one sentence in attach/views, and what
runs it in adapters/kernel. tests/house/test_steps.py sees that none of them is forgotten. Whole
attachments are taken back and checked by these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules.vf import differing
from kube_rdma.model.attach import steps
from kube_rdma.model.attach.attachment import Plan, PodView, SeenLink
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pools import FunctionPlace, RebindFunction, ResetFunction, SetFunction


class StepRow(Frozen):
    """The check of one kind of Step, and its undo."""

    lacks: Callable[[Any, PodView], str]  # the fault, without a full stop; "" when it is done
    # The acts in order; none where what the Step did goes with its link, or is nothing.
    undone: Callable[[Any], tuple[steps.Undo, ...]] = lambda _: ()


def lacks(step: steps.Step, seen: PodView) -> str:
    """Return what is missing of a Step that was run, by the pod's state; empty for nothing."""
    return ROWS[type(step)].lacks(step, seen)


def undone(step: steps.Step) -> tuple[steps.Undo, ...]:
    """Return the acts that undo a Step."""
    return ROWS[type(step)].undone(step)


def _link(seen: PodView, name: InterfaceName) -> SeenLink | None:
    return next((link for link in seen.links if link.name == name), None)


def _leaves_nothing(_: Any, __: PodView) -> str:
    return ""


def _made_link(step: steps.MakeLink, seen: PodView) -> str:
    link = _link(seen, step.name)
    is_there = link is not None and link.alias == step.mark
    return "" if is_there else f"the {step.kind} link on {step.parent.name} is not there"


def _taken_link(step: steps.TakeLink, seen: PodView) -> str:
    # Moving keeps the index unless the namespace has another link with it, so it proves nothing.
    # Of a card's own link on virtio, and before Linux 5.14, the kernel names no function.
    link = _link(seen, step.name)
    is_there = (
        link is not None
        and link.kind in ("", steps.VirtualKind.IPOIB)
        and not link.virtual
        and (link.pci == step.pci or (link.pci is None and not link.kind))
    )
    return "" if is_there else f"the card's link, {step.link.name} on the node, is not there"


def _given_back(step: steps.TakeLink) -> tuple[steps.Undo, ...]:
    state = (step.mtu, step.mac, step.up, step.addresses, step.routes, step.rules)
    restored = (steps.RestoreRdma(name, kind, step.link) for name, kind in step.soft)
    return (steps.GiveBackLink(step.link, step.name, step.pci, *state), *restored)


def _bound(step: RebindFunction, seen: PodView) -> str:
    has_guid = any(one.pci == step.pci and one.guid == step.guid for one in seen.rdma)
    return "" if has_guid else f"the RDMA device of {step.pci} does not have the GUID {step.guid}"


def _set_link(step: steps.SetLink, seen: PodView) -> str:
    link = _link(seen, step.name)
    if link is None:
        return "the interface is not there"
    if not link.up:
        return "the interface is down"
    faults = []
    if step.mtu is not None and link.mtu != step.mtu:
        faults.append(f"its MTU is {link.mtu}, not {step.mtu}")
    if step.mac is not None and link.mac.lower() != step.mac.lower():
        faults.append(f"its MAC is {link.mac}, not {step.mac}")
    return " and ".join(faults)


def _address(step: steps.AddAddress, seen: PodView) -> str:
    link = _link(seen, step.name)
    has_address = link is not None and (step.address, step.prefix) in link.addresses
    return "" if has_address else f"the address {step.address}/{step.prefix} is not there"


def _route(step: steps.AddRoute, seen: PodView) -> str:
    wanted = (step.name, step.to, step.via, step.table)
    is_there = any((one.name, one.to, one.via, one.table) == wanted for one in seen.routes)
    table = f" of table {step.table}" if step.table else ""
    return "" if is_there else f"the route to {step.to}{table} is not there"


def _rule(step: steps.AddRule, seen: PodView) -> str:
    is_there = step in seen.rules
    return "" if is_there else f"the rule for what comes from {step.source} is not there"


def _sysctl(step: steps.SetSysctl, seen: PodView) -> str:
    if (step.path, step.value) in seen.sysctls:
        return ""
    has_link = any(link.name in step.path.split("/") for link in seen.links)
    if step.optional and has_link and step.path not in dict(seen.sysctls):
        return ""
    return f"{step.path.replace('/', '.')} is not {step.value}"


def _made_rdma(step: steps.MakeRdma, seen: PodView) -> str:
    is_there = any(one.name == step.name and one.netdev == step.on for one in seen.rdma)
    return "" if is_there else f"the RDMA device {step.name} is not there"


def _moved_rdma(step: steps.MoveRdma, seen: PodView) -> str:
    by_pci = step.pci is not None and any(one.pci == step.pci for one in seen.rdma)
    is_there = by_pci or any(one.name == step.device for one in seen.rdma)
    return "" if is_there else f"the RDMA device {step.device} is not there"


def _gid(step: steps.AwaitGid, seen: PodView) -> str:
    gids = {gid for one in seen.rdma if one.name == step.device for gid in one.gids}
    has_gid = (step.on, step.address) in gids
    return "" if has_gid else f"{step.device} lists no GID for {step.address}"


def _plugin(step: steps.CallPlugin, seen: PodView) -> str:
    if _link(seen, step.name) is not None:
        return ""
    types = ", ".join(plugin.type for plugin in step.plugins)
    if step.addresses:
        return f"the interface that {types} gave addresses to is not there"
    return f"the interface of type {types} is not there"


ROWS: Mapping[type[steps.Step], StepRow] = {
    steps.MakeLink: StepRow(_made_link, lambda step: (steps.RemoveLink(step.name, step.mark),)),
    steps.TakeLink: StepRow(_taken_link, _given_back),
    SetFunction: StepRow(
        lambda step, seen: " and ".join(differing(step, seen)),
        lambda step: (ResetFunction(step.place, step.previous),),
    ),
    RebindFunction: StepRow(
        _bound, lambda step: (replace(step, guid=step.previous, previous=step.guid),)
    ),
    steps.SetLink: StepRow(_set_link),
    steps.Probe: StepRow(_leaves_nothing),
    steps.AddAddress: StepRow(_address),
    steps.AddRoute: StepRow(_route),
    steps.AddRule: StepRow(
        _rule, lambda step: (steps.RemoveRule(step.source, step.table, step.priority),)
    ),
    steps.SetSysctl: StepRow(_sysctl),
    steps.MakeRdma: StepRow(_made_rdma, lambda step: (steps.RemoveRdma(step.name),)),
    steps.MoveRdma: StepRow(_moved_rdma, lambda step: (steps.GiveBackRdma(step.device, step.pci),)),
    steps.AwaitPartition: StepRow(_leaves_nothing),
    steps.AwaitGid: StepRow(_gid),
    steps.Announce: StepRow(_leaves_nothing),
    steps.CallPlugin: StepRow(_plugin, lambda step: (steps.EndPlugin(step),)),
}


ALL_PLANS = -1


def undo(plan: Plan) -> tuple[steps.Undo, ...]:
    """Return the acts that undo all Steps of a plan, whichever of them were run.

    The last Step is undone first, but RDMA devices go back before all else. On InfiniBand their way
    back makes the link again on the node, which is then found there. Addresses, routes and sysctls
    go with the link. To bind a driver again brings all of its function back to the node, even after
    a crash between unbinding and binding.
    """
    acts = [one for step in reversed(plan.steps) for one in undone(step)]
    bound = {one.pci for one in acts if isinstance(one, RebindFunction)}
    acts = [one for one in acts if not (isinstance(one, steps.GiveBackRdma) and one.pci in bound)]

    def turn(act: steps.Undo) -> int:
        match act:
            case steps.GiveBackRdma():
                return 0
            case RebindFunction():
                return 2
            case steps.GiveBackLink(pci=pci) if pci in bound:
                return 3
        return 1

    return tuple(sorted(acts, key=turn))


def undo_by_plan(plans: Sequence[Plan]) -> tuple[tuple[int, steps.Undo], ...]:
    """Return the acts that undo all of a pod's plans, each with its plan's place from the end.

    The last plan comes first. Several links that were made go at once (ALL_PLANS), where the last
    of them would: by then nothing stands on any of them. After an act that failed, the later ones
    of its plan must not be done. So a function whose link is still in the pod keeps its VLAN. Ends
    of plugins' calls are done all the same, and hold up nothing.
    """
    acts = [(n, act) for n, plan in enumerate(reversed(plans)) for act in undo(plan)]
    links = [act for _, act in acts if isinstance(act, steps.RemoveLink)]
    if len(links) < 2:
        return tuple(acts)
    at_once = (ALL_PLANS, steps.RemoveLinks(tuple(links)))
    rest = [at_once if one[1] is links[-1] else one for one in acts]
    return tuple(one for one in rest if not isinstance(one[1], steps.RemoveLink))


def looked_at(plans: Sequence[Plan]) -> tuple[tuple[str, ...], tuple[FunctionPlace, ...]]:
    """Return what else `check` has to read: the sysctls and virtual functions of the plans."""
    every = [step for plan in plans for step in plan.steps]
    paths = tuple(step.path for step in every if isinstance(step, steps.SetSysctl))
    return paths, tuple(step.place for step in every if isinstance(step, SetFunction))


def check(plan: Plan, seen: PodView) -> tuple[str, ...]:
    """Return all differences between the pod's state and a plan, as sentences."""
    faults = (lacks(step, seen) for step in plan.steps)
    return tuple(f"{plan.interface} ({plan.network}): {fault}" for fault in faults if fault)
