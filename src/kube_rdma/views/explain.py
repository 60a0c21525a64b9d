"""A pod explained, for people and programs: `kube-rdma explain`.

In the order in which things happen: what is asked, what is granted, which Steps are taken, what
programs see; then what a reader has to know of how all this is known. What is in the way stands
behind what is asked where it refuses that, else behind all.
Marks are those of views/doctor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv6Address

from kube_base.frozen import asdict
from kube_rdma.model.explain import (
    ExplainedPlan,
    ExplainedShare,
    Explanation,
    RdmaCmAddress,
    SeenFrom,
    SeenInterface,
    StandIn,
    StepsFrom,
)
from kube_rdma.model.finding import Finding, Stage
from kube_rdma.views.attach import describe
from kube_rdma.views.findings import labelled, located
from kube_rdma.views.page import block_lines
from kube_rdma.views.text import GAP, aligned, widths, wrapped

_INDENT = "  "
_WHO: Mapping[Stage | None, str] = {
    Stage.ADMISSION: "Admission",
    Stage.SCHEDULER: "The scheduler",
    Stage.KUBELET: "The kubelet",
    Stage.AGENT: "The agent",
}
_SOURCES: Mapping[StepsFrom, str] = {
    StepsFrom.RECORD: "as the agent has recorded them",
    StepsFrom.RULES: "as the agent's rules plan them",
}


def explain_text(explanation: Explanation, width: int = 100) -> str:
    """The whole; `width` in columns, tables are as wide as they are."""
    way = ("IN THE WAY", [line for one in explanation.findings for line in _finding(one, width)])
    real = bool(explanation.phase)
    sections = [
        ("ASKED", list(_asked(explanation, width))),
        *([way] if explanation.is_refused else []),
        ("GRANTED" if real else "WOULD BE GRANTED", list(_granted(explanation, width))),
        (_steps_title(explanation), list(_steps(explanation, width))),
        (_inside_title(explanation), list(_inside(explanation, width))),
        *([] if explanation.is_refused else [way]),
        ("NOTES", [line for note in explanation.notes for line in _note(note, width)]),
    ]
    blocks = [list(_head(explanation, width))]
    blocks += [[title, *lines] for title, lines in sections if lines]
    blocks.append(wrapped(_verdict(explanation), width, ""))
    return "\n\n".join("\n".join(block) for block in blocks)


def explain_document(explanation: Explanation) -> dict[str, object]:
    """The same as JSON values. Keys are stable: they are added to, never renamed or removed."""
    return {
        "pod": explanation.pod,
        "node": explanation.node or None,
        "phase": explanation.phase or None,
        "why": explanation.why or None,
        "refused": explanation.is_refused,
        "asked": {
            "resources": [asdict(one) for one in explanation.asks],
            "networks": [asdict(one) for one in explanation.networks],
            "claims": [asdict(one) for one in explanation.claims],
            "annotations": list(explanation.wishes),
        },
        "granted": [asdict(one) for one in explanation.shares],
        "stepsFrom": explanation.source,
        "interfaces": [_plan_document(one) for one in explanation.plans],
        "seen": {
            "interfaces": [_seen_document(one) for one in explanation.interfaces],
            "deviceNodes": {name: list(paths) for name, paths in explanation.doors},
            "settings": {name: list(lines) for name, lines in explanation.settings},
            "rdmaCm": [asdict(one) for one in explanation.rdma_cm],
            "from": {
                "interfaces": explanation.interfaces_from,
                "deviceNodes": explanation.doors_from,
                "settings": SeenFrom.RULES,
            },
        },
        "obstacles": [
            {"stage": one.stage, **located(one), "fatal": one.is_error}
            for one in explanation.findings
        ],
        "notes": list(explanation.notes),
    }


def step_texts(plan: ExplainedPlan) -> tuple[str, ...]:
    """The Steps as sentences, with words for what is not decided yet."""
    return tuple(_worded(describe(step), plan.stand_ins) for step in plan.steps)


def _head(explanation: Explanation, width: int) -> Iterator[str]:
    facts = [f"pod {explanation.pod}"]
    facts.append(explanation.phase or "does not exist yet")
    facts.append(f"node {explanation.node}" if explanation.node else "on no node yet")
    yield " · ".join(facts)
    if explanation.why:
        yield from wrapped(f"{_INDENT}{explanation.why}", width, _INDENT)


def _asked(explanation: Explanation, width: int) -> Iterator[str]:
    rows = [
        (f"{one.count} × {one.resource}", f"container {one.container}") for one in explanation.asks
    ]
    rows += [(f"claim {one.name}", one.claim) for one in explanation.claims]
    rows += [(one.interface, one.name) for one in explanation.networks]
    ends = [one.offer for one in explanation.asks]
    ends += [one.means for one in explanation.claims]
    ends += [one.means for one in explanation.networks]
    columns = widths(rows) if rows else []
    for row, end in zip(rows, ends, strict=True):
        lead = f"{_INDENT}{aligned(row, columns):<{sum(columns) + len(GAP)}}{GAP}"
        yield from wrapped(f"{lead}{end}".rstrip(), width, " " * len(lead))
    for wish in explanation.wishes:
        yield from wrapped(f"{_INDENT}{wish}", width, _INDENT * 2)


def _granted(explanation: Explanation, width: int) -> Iterator[str]:
    doubt = "supposed" if explanation.phase else "preferred"
    for line in _table([_share_row(one, doubt) for one in explanation.shares]):
        yield from wrapped(line, width, _INDENT * 2)


def _share_row(share: ExplainedShare, doubt: str) -> tuple[str, ...]:
    name = f"{share.name} ({share.card})" if share.name not in ("", share.card) else share.card
    words = [f"share {share.share}" if share.share else "", "" if share.sure else doubt]
    return (
        share.resource,
        f"container {share.container}" if share.container else "",
        name,
        ", ".join(filter(None, words)),
    )


def _steps_title(explanation: Explanation) -> str:
    what = "STEPS" if explanation.phase else "STEPS THAT WOULD BE TAKEN"
    return f"{what}, {_SOURCES[explanation.source]}" if explanation.source else what


def _steps(explanation: Explanation, width: int) -> Iterator[str]:
    for number, plan in enumerate(explanation.plans):
        if number:
            yield ""
        state = {True: "all done", False: "begun, not answered yet", None: ""}[plan.done]
        yield " · ".join(filter(None, (f"{_INDENT}{plan.interface}", plan.network, state)))
        for place, text in enumerate(step_texts(plan), 1):
            lead = f"{_INDENT}{place:>4}  "
            yield from wrapped(f"{lead}{text}", width, " " * len(lead))
        for word in plan.stand_ins:
            if word.meaning:
                yield from wrapped(f"{_INDENT}      {word.meaning}.", width, " " * 8)


def _inside_title(explanation: Explanation) -> str:
    if not explanation.phase:
        return "WHAT PROGRAMS WOULD SEE"
    is_plan = explanation.interfaces and explanation.interfaces_from is SeenFrom.RULES
    if is_plan or explanation.phase == "Pending":
        return f"WHAT PROGRAMS WOULD SEE, {_SOURCES[StepsFrom.RULES]}"
    return "WHAT PROGRAMS SEE"


def _inside(explanation: Explanation, width: int) -> Iterator[str]:
    """Below a title that says that it is seen, what is a plan says so itself."""
    plan = "" if "WOULD" in _inside_title(explanation) else ", as planned"
    for line in _table([*map(_interface_row, explanation.interfaces)]):
        yield from wrapped(line, width, _INDENT * 2)
    for way in explanation.rdma_cm:
        yield f"{_INDENT}{_rdma_cm(way)}"
    doubt = plan if explanation.doors_from is SeenFrom.RULES else ""
    for container, paths in explanation.doors:
        line = f"{_INDENT}container {container}, in /dev/infiniband{doubt}: {'; '.join(paths)}"
        yield from wrapped(line, width, _INDENT * 2)
    for name, lines in explanation.settings:
        yield f"{_INDENT}{name}{plan}"
        yield from (f"{_INDENT * 3}{line}" for line in lines)


def _rdma_cm(way: RdmaCmAddress) -> str:
    if way.inside:
        return f"RDMA_CM takes {way.device} by {way.address}, the address of {way.interface}"
    return (
        f"RDMA_CM takes {way.device} by {way.address}, the node's on {way.interface}, "
        "which a pod with hostNetwork has"
    )


def _interface_row(interface: SeenInterface) -> tuple[str, ...]:
    gid = f"GID {_short(interface.gid)}" if interface.gid else ""
    index = "" if interface.gid_index is None else f"index {interface.gid_index}"
    return (
        interface.name,
        ", ".join(interface.addresses) or "no address",
        f"MTU {interface.mtu}" if interface.mtu else "",
        interface.device,
        ", ".join(filter(None, (gid, index))),
    )


def _short(gid: str) -> str:
    """As ibv_devinfo writes it."""
    try:
        whole = IPv6Address(gid)
    except ValueError:
        return gid
    return f"::ffff:{whole.ipv4_mapped}" if whole.ipv4_mapped else str(whole)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    lead = f"{'✗' if finding.is_error else '!'} {_WHO[finding.stage]}"
    yield f"{lead}, at {finding.subject}" if finding.subject else lead
    yield from block_lines(labelled({"Why": finding.problem, "Fix": finding.remedy}), width)


def _note(note: str, width: int) -> list[str]:
    return wrapped(f"{_INDENT}{note}.", width, _INDENT)


def _verdict(explanation: Explanation) -> str:
    if explanation.is_refused:
        who = _WHO[next(one.stage for one in explanation.findings if one.is_error)]
        return f"{who} refuses it." if explanation.phase else f"{who} would refuse it."
    if explanation.why:
        return "The rules have nothing against it; why it does not run stands in its first lines."
    if explanation.phase:
        return "Nothing of kube-rdma is in its way."
    if explanation.networks and not explanation.plans:
        return "Nothing stands against it in what was seen, which was too little to plan its Steps."
    return "Nothing stands against it in what was seen."


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows below each other, columns that are empty in all of them left out."""
    kept = (
        [place for place in range(len(rows[0])) if any(row[place] for row in rows)] if rows else []
    )
    cells = [tuple(row[place] for place in kept) for row in rows]
    if cells:
        columns = widths(cells)
        yield from (f"{_INDENT}{aligned(row, columns)}" for row in cells)


def _worded(text: str, words: Sequence[StandIn]) -> str:
    for stand_in in words:
        text = re.sub(rf"(?<![\w.:-]){re.escape(stand_in.text)}(?![\w.:-])", stand_in.word, text)
    return text


def _plan_document(plan: ExplainedPlan) -> dict[str, object]:
    return {
        "interface": plan.interface,
        "network": plan.network,
        "done": plan.done,
        "steps": list(step_texts(plan)),
        "notDecided": {one.word: one.meaning for one in plan.stand_ins if one.meaning},
    }


def _seen_document(interface: SeenInterface) -> dict[str, object]:
    return {
        "interface": interface.name,
        "network": interface.network or None,
        "addresses": list(interface.addresses),
        "mtu": interface.mtu,
        "rdmaDevice": interface.device or None,
        "gid": interface.gid or None,
        "gidIndex": interface.gid_index,
    }
