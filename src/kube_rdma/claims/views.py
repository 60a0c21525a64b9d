"""Shows an explained claim to people and programs: `kube-rdma explain claim/NAME`.

One sentence gives the result. What is asked and held follows, then the nodes: the worst outcome
first, and of nodes that fail the nearest. On each node, devices that are not taken come before
those that would be taken. Marks are those of reports/views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kube_rdma.lib.page import Line, Page, Sentence, state_of
from kube_rdma.lib.phrases import listed
from kube_rdma.model.claims import claim as model
from kube_rdma.model.claims.devices import SliceDevice

_MARKS: Mapping[model.ClaimOutcome, str] = {
    model.ClaimOutcome.REFUSED: "✗",
    model.ClaimOutcome.NOT_MET: "✗",
    model.ClaimOutcome.NOT_JUDGED: "?",
    model.ClaimOutcome.MET: "✓",
}
_INDENT = "  "
_DEEP = "    "
MOST_NODES = 8  # that are shown with their devices
_MOST_NAMES = 3  # of devices that have the same against them


def claim_page(explanation: model.ClaimExplanation) -> Page:
    """Return the page that explains a claim."""
    claim = explanation.claim
    state = "allocated" if claim.allocated is not None else "not allocated"
    users = f"for {', '.join(_users(claim))}" if claim.users else ""
    title = " · ".join(filter(None, (f"claim {claim.claim}", state, users)))
    notes = (Sentence(f"{_INDENT}{note}", _DEEP) for note in explanation.notes)
    return (
        (Sentence(title, _DEEP, loose=True),),
        (Sentence(explanation.headline),),
        (Line("ASKED"), *_asked(claim)),
        (Line("HELD"), *_held(claim.devices)) if claim.devices else (),
        (Line("NODES"), *_nodes(explanation.nodes)) if explanation.nodes else (),
        (Line("NOTES"), *notes) if explanation.notes else (),
    )


def claim_document(explanation: model.ClaimExplanation) -> dict[str, object]:
    """Return the JSON document that explains a claim.

    Keys are stable: they are added to, never renamed or removed.
    """
    claim = explanation.claim
    return {
        "claim": str(claim.claim),
        "allocated": claim.allocated is not None,
        "met": explanation.is_met,
        "summary": explanation.headline,
        "reservedFor": _users(claim),
        "held": [_device_document(one.id, one.request) for one in claim.devices],
        "nodes": [_node_document(one) for one in explanation.nodes],
        "notes": list(explanation.notes),
    }


def _node_document(verdict: model.ClaimVerdict) -> dict[str, object]:
    return {
        "node": verdict.node,
        "outcome": verdict.outcome,
        "why": verdict.why or None,
        "request": verdict.stuck or None,
        "wanted": verdict.wanted,
        "lacking": verdict.lacking,
        "devices": [
            {
                **_device_document(one.device, one.request),
                "chosen": one.chosen,
                "reason": one.objection.reason if one.objection else None,
                "text": one.objection.text if one.objection else None,
            }
            for one in verdict.devices
        ],
    }


def _device_document(device: SliceDevice, request: str) -> dict[str, object]:
    names = {"driver": device.driver, "pool": device.pool, "device": device.name}
    return {**names, "request": request}


def _users(claim: model.ResourceClaim) -> list[str]:
    return [f"{user.resource}/{user.name}" for user in claim.users]


def _asked(claim: model.ResourceClaim) -> Iterator[Sentence]:
    for request in claim.requests:
        for number, choice in enumerate(request.choices):
            lead = f"{_INDENT}{choice.name}  "
            either = "else " if number else ""
            yield Sentence(f"{lead}{either}{_wanted(choice)}", _DEEP)
            for selector in choice.selectors:
                yield Sentence(f"{_DEEP}with {' '.join(selector.split())}", _DEEP * 2)
    for one in claim.constraints:
        verb = "differ" if one.distinct else "agree"
        whose = f"devices of {', '.join(one.requests)}" if one.requests else "all devices"
        yield Sentence(f"{_INDENT}{whose} {verb} in {one.attribute}", _DEEP)


def _wanted(choice: model.ClaimRequest) -> str:
    count = "all devices" if choice.every else f"{choice.count} ×"
    admin = ", with admin access" if choice.admin else ""
    return f"{count} of class {choice.device_class}{admin}".replace("× of class", "× class")


def _held(held: Iterable[model.AllocationResult]) -> Iterator[Sentence]:
    for result in held:
        text = f"{_INDENT}{result.device}  pool {result.pool}, request {result.request}"
        yield Sentence(text, _DEEP, loose=True)


def _nodes(nodes: tuple[model.ClaimVerdict, ...]) -> Iterator[Sentence]:
    drivers = {one.device.driver for node in nodes for one in node.devices}
    for verdict in nodes[:MOST_NODES]:
        yield _marked("", f"{_MARKS[verdict.outcome]} {_state(verdict)}", _DEEP)
        yield from _devices(verdict, several=len(drivers) > 1)
    more = len(nodes) - MOST_NODES
    if more > 0:
        yield Sentence(f"… and {more} more; --node shows one of them, --json all", loose=True)


def _marked(indent: str, text: str, below: str) -> Sentence:
    """Return a sentence whose first character is a mark, which decides its colour."""
    return Sentence(f"{indent}{text}", below, state_of(text[0]))


def _state(verdict: model.ClaimVerdict) -> str:
    if verdict.outcome == model.ClaimOutcome.MET:
        return f"{verdict.node}  can meet it"
    if verdict.outcome == model.ClaimOutcome.NOT_MET:
        lacks = f"lacks {verdict.lacking} of {verdict.wanted}, for request {verdict.stuck}"
        return f"{verdict.node}  {lacks}" + ("" if verdict.devices else ": it has no device")
    return f"{verdict.node}  {verdict.why}"


def _devices(verdict: model.ClaimVerdict, *, several: bool) -> Iterator[Sentence]:
    """Yield a line for each verdict, with the names of all devices that have it."""
    lines: dict[str, list[str]] = {}
    for looked in sorted(verdict.devices, key=lambda looked: looked.chosen):
        names = lines.setdefault(_about(looked), [])
        names.append(_name(verdict.node, looked.device, several=several))
    for text, names in lines.items():
        whose = f"{text[0]} {listed(names, _MOST_NAMES)}"
        yield _marked(_DEEP, f"{whose}  {text[2:]}", _DEEP * 2)


def _about(looked: model.DeviceVerdict) -> str:
    request, objection = looked.request, looked.objection
    if looked.chosen:
        return f"✓ would be taken for {request}"
    if objection is None:
        return f"· could be had for {request}, and leads to no whole answer"
    choice = f"{request}: " if "/" in request else ""
    return f"✗ {choice}{' '.join(objection.text.split())}"


def _name(node: str, device: SliceDevice, *, several: bool) -> str:
    pool = f"{device.pool}/" if device.pool != node else ""
    return f"{device.driver}/{pool}{device.name}" if several else f"{pool}{device.name}"
