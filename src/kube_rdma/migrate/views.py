"""The way from another plugin to kube-rdma for people and programs: `kube-rdma migrate plan`.

The text is a shell script that is meant to be pasted step by step: what is not a command is a
comment, and no command is indented, for here-documents end at the first column. What others wrote,
as an image or a version, ends no line: a page makes one line of it, and commands quote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.lib.page import Block, Page, PageState, Sentence, lines_of
from kube_rdma.lib.phrases import listed
from kube_rdma.model.migrate import (
    MigratingNode,
    MigrationSource,
    PlanStep,
    ServingPlan,
    StartingPoint,
    TakeoverPlan,
)

_NAMED = 3  # pods of a node; JSON has all
_NAMES = {
    StartingPoint.SHARED: "the shared RDMA device plugin",
    StartingPoint.SCC: "the device plugin of Alibaba SCC",
    StartingPoint.ACK: "ACK's RDMA component",
    StartingPoint.VKE: "VKE's RDMA component",
    StartingPoint.NVIDIA_2020: "NVIDIA's network operator 0.1",
    StartingPoint.NVIDIA: "NVIDIA's network operator",
}


def plan_page(plan: TakeoverPlan) -> Page:
    """All of it; a plan without a source is its notes."""
    if plan.source is None:
        return (tuple(Sentence(f"{note}.", loose=True) for note in plan.notes),)
    title = (
        f"# From {_NAMES[plan.source.start]} to kube-rdma. Nothing was changed yet.",
        "# Paste one step at a time, and go on when each of its commands ended well.",
        "# Keep this text: the way back names what is there now.",
        "#",
        *_seen(plan, plan.source),
    )
    return (
        (*map(_comment, title), *map(_note, plan.notes)),
        *_steps("There", plan.steps),
        *_steps("Back", plan.back),
    )


def plan_document(plan: TakeoverPlan) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed."""
    source = plan.source
    return {
        "start": source.start.value if source else None,
        "daemonSet": source.plugin.title if source else None,
        "policy": _policy(source) or None if source else None,
        "resources": list(plan.resources),
        "nodes": [
            {
                "name": node.name,
                "offered": {name: node.offered.get(name, "0") for name in plan.resources},
                "label": node.mark,
                "unschedulable": node.unschedulable,
                "pods": [one.title for one in plan.holders if one.node == node.name],
            }
            for node in plan.nodes
        ],
        "steps": [_step(step) for step in plan.steps],
        "wayBack": [_step(step) for step in plan.back],
        "notes": list(plan.notes),
    }


def node_plan_page(plan: ServingPlan) -> Page:
    """The way of one node to claims and back, as a script that is pasted step by step."""
    view = plan.view
    offers = ", ".join(f"{name}: {view.node.offered.get(name, '0')}" for name in view.resources)
    now = f"; labelled {view.node.mark}" if view.node.mark else ""
    title = (
        "# From shares of the device plugin to claims, by the same resource names.",
        "# Nothing was changed yet. Paste one step at a time; the way back is below.",
        "#",
        f"# Seen: {view.node.name}, kubelet {view.kubelet_version}; {offers}{now}",
        *(f"#   DeviceClass {view.classes[name]} has {name}" for name in view.resources),
    )
    return (
        (*map(_comment, title), *map(_note, plan.notes)),
        *_steps("There", plan.steps),
        *_steps("Back", plan.back),
    )


def node_plan_document(plan: ServingPlan) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed."""
    view = plan.view
    return {
        "node": view.node.name,
        "kubelet": view.kubelet_version,
        "label": view.node.mark,
        "offered": {name: view.node.offered.get(name, "0") for name in view.resources},
        "classes": {name: view.classes[name] for name in view.resources},
        "pods": [
            {"pod": pod.title, "asked": dict(pod.asked), "byClaim": sorted(pod.by_claim)}
            for pod in view.pods
        ],
        "steps": [_step(step) for step in plan.steps],
        "wayBack": [_step(step) for step in plan.back],
        "notes": list(plan.notes),
    }


def _step(step: PlanStep) -> dict[str, object]:
    return {
        "title": step.title,
        "why": step.why,
        "node": step.node or None,
        "commands": list(step.commands),
    }


def _policy(source: MigrationSource) -> str:
    policy = source.policy
    if policy is None:
        return ""
    name = f"{policy.namespace}/{policy.name}" if policy.namespace else policy.name
    return f"{policy.kind} {name}"


def _seen(plan: TakeoverPlan, source: MigrationSource) -> Iterator[str]:
    owner = f", written by {_policy(source)}" if source.policy else ""
    yield f"# Seen: DaemonSet {source.plugin.title}, image {source.plugin.image}{owner}"
    for node in plan.nodes:
        yield f"#   {_node(plan, node)}"


def _node(plan: TakeoverPlan, node: MigratingNode) -> str:
    offers = ", ".join(f"{name}: {node.offered.get(name, '0')}" for name in plan.resources)
    pods = [one.title for one in plan.holders if one.node == node.name]
    many = "1 pod holds" if len(pods) == 1 else f"{len(pods)} pods hold"
    held = f"; {many} shares ({listed(pods, _NAMED)})" if pods else ""
    mark = "; marked as kube-rdma's" if node.mark == "on" else ""
    closed = "; takes no new pods" if node.unschedulable else ""
    return f"{node.name}  {offers}{held}{mark}{closed}"


def _steps(name: str, steps: Sequence[PlanStep]) -> Iterator[Block]:
    for number, step in enumerate(steps, 1):
        title = f"# {name}, step {number} of {len(steps)}. {step.title}"
        commands = lines_of("\n".join(step.commands))
        yield (_comment(title), Sentence(f"# {step.why}", "# "), *commands)


def _comment(text: str) -> Sentence:
    """A comment that stays a line in a file; a terminal folds it, and its parts are comments."""
    return Sentence(text, "#   ", loose=True)


def _note(note: str) -> Sentence:
    return Sentence(f"# ! {note}.", "#   ", PageState.WARNING)
