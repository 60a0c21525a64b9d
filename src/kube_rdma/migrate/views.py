"""Shows a way to kube-rdma or to claims, for people and programs: `kube-rdma migrate`.

The text is a shell script that is meant to be pasted step by step. What is not a command is a
comment. No command is indented, for here-documents end at the first column. Text of others,
such as an image's name, cannot end a line: a page makes one line of it, and commands quote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_rdma.lib.json_values import json_object
from kube_rdma.lib.page import Block, Page, PageState, Sentence, lines_of
from kube_rdma.lib.phrases import listed
from kube_rdma.model import migrate as model

_NAMED = 3  # pods of a node; JSON has all
_NAMES = {
    model.StartingPoint.SHARED: "the shared RDMA device plugin",
    model.StartingPoint.SCC: "the device plugin of Alibaba SCC",
    model.StartingPoint.ACK: "ACK's RDMA component",
    model.StartingPoint.VKE: "VKE's RDMA component",
    model.StartingPoint.NVIDIA_2020: "NVIDIA's network operator 0.1",
    model.StartingPoint.NVIDIA: "NVIDIA's network operator",
}


def plan_page(plan: model.TakeoverPlan) -> Page:
    """Return the page of a cluster's plan as a shell script; only notes if there is no source."""
    if plan.source is None:
        return (tuple(Sentence(f"{note}.", loose=True) for note in plan.notes),)
    title = (
        f"# From {_NAMES[plan.source.start]} to kube-rdma. Nothing was changed yet.",
        "# Paste one step at a time, and go on when each of its commands ended well.",
        "# Keep this text: the way back names what is there now.",
        "#",
        *_seen(plan, plan.source),
    )
    return _script(title, plan)


def plan_document(plan: model.TakeoverPlan) -> dict[str, object]:
    """Return the plan as JSON values. Keys are stable: new ones may come, none is renamed."""
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


def node_plan_page(plan: model.ServingPlan) -> Page:
    """Return the page of a node's plan to claims and back, as a shell script."""
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
    return _script(title, plan)


def node_plan_document(plan: model.ServingPlan) -> dict[str, object]:
    """Return a node's plan as JSON values. Keys are stable: new ones may come, none is renamed."""
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


def _step(step: model.PlanStep) -> dict[str, object]:
    return json_object(step, "title", "why", node=step.node or None, commands=step.commands)


def _policy(source: model.MigrationSource) -> str:
    policy = source.policy
    if policy is None:
        return ""
    name = f"{policy.namespace}/{policy.name}" if policy.namespace else policy.name
    return f"{policy.kind} {name}"


def _seen(plan: model.TakeoverPlan, source: model.MigrationSource) -> Iterator[str]:
    """Yield comments on the plugin and the nodes that were seen."""
    owner = f", written by {_policy(source)}" if source.policy else ""
    yield f"# Seen: DaemonSet {source.plugin.title}, image {source.plugin.image}{owner}"
    for node in plan.nodes:
        offers = ", ".join(f"{name}: {node.offered.get(name, '0')}" for name in plan.resources)
        pods = [one.title for one in plan.holders if one.node == node.name]
        many = "1 pod holds" if len(pods) == 1 else f"{len(pods)} pods hold"
        held = f"; {many} shares ({listed(pods, _NAMED)})" if pods else ""
        mark = "; marked as kube-rdma's" if node.mark == "on" else ""
        closed = "; takes no new pods" if node.unschedulable else ""
        yield f"#   {node.name}  {offers}{held}{mark}{closed}"


def _script(title: Iterable[str], plan: model.TakeoverPlan | model.ServingPlan) -> Page:
    """Return a script: title and notes as comments, the steps forward, and the steps back."""
    notes = (Sentence(f"# ! {note}.", "#   ", PageState.WARNING) for note in plan.notes)
    blocks: list[Block] = [(*map(_comment, title), *notes)]
    for name, steps in (("There", plan.steps), ("Back", plan.back)):
        for number, step in enumerate(steps, 1):
            head = f"# {name}, step {number} of {len(steps)}. {step.title}"
            commands = lines_of("\n".join(step.commands))
            blocks.append((_comment(head), Sentence(f"# {step.why}", "# "), *commands))
    return tuple(blocks)


def _comment(text: str) -> Sentence:
    """Return a line of the script that is a comment, however it is wrapped."""
    return Sentence(text, "#   ", loose=True)
