"""Takes an attachment back, and compares it with what the pod has now.

The journal holds Plans, and a fresh look at the pod (PodView) is all else that is needed: after
a crash nobody knows which Step was the last, so undo is safe for all of them. CNI CHECK is `check`.
What a single Step comes to stands in attach/rules/step_table.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.attach.rules.step_table import lacks, undone
from kube_rdma.model.attach.attachment import Plan
from kube_rdma.model.attach.pod_view import PodView
from kube_rdma.model.attach.steps import (
    GiveBackLink,
    GiveBackRdma,
    RemoveLink,
    RemoveLinks,
    SetSysctl,
    Undo,
)
from kube_rdma.model.functions.step import FunctionPlace, RebindFunction, SetFunction

ALL_PLANS = -1


def undo(plan: Plan) -> tuple[Undo, ...]:
    """What takes all Steps of the plan back, whichever of them were run.

    Last Step first, but RDMA devices before everything: on InfiniBand their way back makes the
    link again on the node, which is then found there. Addresses, routes and sysctls go with the
    link. A driver that is bound again brings all of its function home, and has to: a crash
    between unbinding and binding leaves neither link nor RDMA device.
    """
    acts = [one for step in reversed(plan.steps) for one in undone(step)]
    bound = {one.pci for one in acts if isinstance(one, RebindFunction)}
    acts = [one for one in acts if not (isinstance(one, GiveBackRdma) and one.pci in bound)]

    def turn(act: Undo) -> int:
        match act:
            case GiveBackRdma():
                return 0
            case RebindFunction():
                return 2
            case GiveBackLink(pci=pci) if pci in bound:
                return 3
        return 1

    return tuple(sorted(acts, key=turn))


def undo_by_plan(plans: Sequence[Plan]) -> tuple[tuple[int, Undo], ...]:
    """What takes all of a pod's plans back, the last plan first; the links made go at once.

    They go where the last of them would: by then what stands on each of them is gone. Each act is
    with its plan's place; ALL_PLANS for that of several. What follows an act of a plan that could
    not be done must not be done: a function whose link is still in the pod keeps its VLAN.
    """
    last = len(plans) - 1
    acts = [(last - n, act) for n, plan in enumerate(reversed(plans)) for act in undo(plan)]
    links = [act for _, act in acts if isinstance(act, RemoveLink)]
    if len(links) < 2:
        return tuple(acts)
    at_once = (ALL_PLANS, RemoveLinks(tuple(links)))
    rest = [at_once if one[1] is links[-1] else one for one in acts]
    return tuple(one for one in rest if not isinstance(one[1], RemoveLink))


def looked_at(plans: Sequence[Plan]) -> tuple[tuple[str, ...], tuple[FunctionPlace, ...]]:
    """What `check` needs of a look besides links and devices: paths of sysctls, and functions."""
    steps = [step for plan in plans for step in plan.steps]
    paths = tuple(step.path for step in steps if isinstance(step, SetSysctl))
    return paths, tuple(step.place for step in steps if isinstance(step, SetFunction))


def check(plan: Plan, seen: PodView) -> tuple[str, ...]:
    """What is wrong with an attachment, one sentence each; none when it is as planned."""
    return tuple(
        f"{plan.interface} ({plan.network}): {problem}"
        for step in plan.steps
        if (problem := lacks(step, seen))
    )
