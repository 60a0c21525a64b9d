"""Shows the Explanation of a pod, for people and programs: `kube-rdma explain`.

What is in the way stands first, so that the first lines name cause and remedy. The other parts
follow in the order in which things happen: asked, granted, Steps, seen by programs; then notes on
the sources of all this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv6Address
from itertools import chain
from shlex import quote

from kube_base.frozen import replace
from kube_base.plain_text import ended
from kube_rdma.attach.views import describe
from kube_rdma.lib import page
from kube_rdma.lib.json_values import json_list, json_object
from kube_rdma.model import explain as model
from kube_rdma.model.finding import Finding, NotSeen, Stage

_INDENT = "  "
_WHO: Mapping[Stage | None, str] = {
    Stage.ADMISSION: "Admission",
    Stage.SCHEDULER: "The scheduler",
    Stage.KUBELET: "The kubelet",
    Stage.AGENT: "The agent",
}
_DONE: Mapping[bool | None, tuple[str, page.PageState]] = {
    True: ("all done", page.PageState.HEALTHY),
    False: ("begun, not answered yet", page.PageState.WARNING),
    None: ("", page.PageState.NONE),
}
_SOURCES: Mapping[model.StepsFrom, str] = {
    model.StepsFrom.RECORD: "as the agent has recorded them",
    model.StepsFrom.RULES: "as the agent's rules plan them",
}


def explain_page(explanation: model.Explanation) -> page.Page:
    """Return the page of `kube-rdma explain` about one pod."""
    real = bool(explanation.phase)
    return (
        (_head(explanation), *chain.from_iterable(map(_finding, explanation.findings))),
        _section("ASKED", _asked(explanation)),
        _section("PREFLIGHT", _sentences(explanation.preflight)),
        _section("GRANTED" if real else "WOULD BE GRANTED", _granted(explanation)),
        *_steps(explanation),
        _section(_inside_title(explanation), _inside(explanation)),
        _section("NOTES", _sentences(explanation.notes)),
        (page.Sentence(_verdict(explanation)),),
    )


def verdicts_page(explained: Sequence[tuple[str, model.Explanation]], file: str) -> page.Page:
    """Return the page of several pods of a file: the verdict on each and what is in its way."""
    return (
        *(
            (
                page.Line(f"{title}: {_verdict(one)}"),
                *chain.from_iterable(map(_finding, one.findings)),
            )
            for title, one in explained
        ),
        (page.Line(f"All of one: kube-rdma explain -f {quote(file)} {quote(explained[0][0])}"),),
    )


_Clues = Sequence[tuple[str, Finding]]  # each with the command that has all about it


def why_page(about: str, symptom: str, causes: _Clues, not_seen: Sequence[NotSeen]) -> page.Page:
    """Return the page of the most probable cause, with the commands that show the others."""
    head, hidden = page.Line(f"{about} · {symptom}"), tuple(page.not_seen(not_seen, "asked"))
    if not causes:
        return ((head, page.Line("Nothing was found."), *hidden),)
    cause, who = causes[0][1], _WHO.get(causes[0][1].stage, "")
    code = f"{who} ({cause.code})" if who and cause.code else who or cause.code
    texts = {"Seen": cause.problem, "Cause": cause.cause, "Fix": cause.remedy}
    commands = ", ".join(dict.fromkeys(f"kube-rdma {source}" for source, _ in causes))
    more = page.counted(len(causes) - 1, "other finding") if causes[1:] else "More"
    return (
        (
            head,
            page.titled("✗" if cause.is_error else "!", replace(cause, code=code)),
            *page.labelled({label: text for label, text in texts.items() if text}),
        ),
        (page.Sentence(f"{more}: {commands}.", _INDENT), *hidden),
    )


def why_document(
    about: str, symptom: str, causes: _Clues, not_seen: Sequence[NotSeen]
) -> dict[str, object]:
    """Return the causes as JSON values. Keys are stable: new ones may come, none is renamed."""
    found = [
        json_object(one, "code", "severity", "cause", about=one.subject, evidence=one.problem)
        | {"fix": one.remedy, "source": source}
        for source, one in causes
    ]
    answer = {"object": about, "symptom": symptom, "root": found[0] if found else None}
    return answer | {"others": found[1:], "notAsked": json_list(not_seen)}


def explain_document(explanation: model.Explanation) -> dict[str, object]:
    """Return an Explanation as JSON values.

    Keys are stable: new ones may come, none is renamed.
    """
    plans = [
        json_object(
            plan,
            "interface",
            "network",
            "done",
            steps=step_texts(plan),
            notDecided={one.word: one.meaning for one in plan.stand_ins if one.meaning},
        )
        for plan in explanation.plans
    ]
    interfaces = [
        {"interface": one.name, "network": one.network or None}
        | json_object(one, "addresses", "mtu", rdmaDevice=one.device or None, gid=one.gid or None)
        | json_object(one, "gid_index")
        for one in explanation.interfaces
    ]
    return json_object(
        explanation,
        "pod",
        node=explanation.node or None,
        phase=explanation.phase or None,
        why=explanation.why or None,
        refused=explanation.is_refused,
        asked={
            "resources": explanation.asks,
            "networks": explanation.networks,
            "claims": explanation.claims,
            "annotations": explanation.annotations,
        },
        preflight=explanation.preflight,
        granted=explanation.shares,
        stepsFrom=explanation.source,
        interfaces=plans,
        seen={
            "interfaces": interfaces,
            "deviceNodes": dict(explanation.device_nodes),
            "settings": dict(explanation.settings),
            "pinnedBytes": dict(explanation.pinned),
            "rdmaCm": explanation.rdma_cm,
            "names": [json_object(one, "dns", "address", "ready") for one in explanation.names],
            "from": {
                "interfaces": explanation.interfaces_from,
                "deviceNodes": explanation.device_nodes_from,
                "settings": model.SeenFrom.RULES,
            },
        },
        obstacles=[
            {"stage": one.stage, **page.located(one), "fatal": one.is_error}
            for one in explanation.findings
        ],
        notes=explanation.notes,
    )


def step_texts(plan: model.ExplainedPlan) -> tuple[str, ...]:
    """Return the Steps of an interface as sentences; words stand for values not decided yet."""
    texts = [*map(describe, plan.steps)]
    for one in plan.stand_ins:
        whole = re.compile(rf"(?<![\w.:-]){re.escape(one.text)}(?![\w.:-])")
        texts = [whole.sub(one.word, text) for text in texts]
    return tuple(texts)


def _section(title: str, parts: Iterable[page.Part]) -> page.Block:
    """Return a block of parts below a title; () where there are no parts."""
    made = tuple(parts)
    return (page.Line(title), *made) if made else ()


def _sentences(texts: Iterable[str]) -> Iterator[page.Part]:
    return (page.Sentence(f"{_INDENT}{ended(text)}", _INDENT) for text in texts)


def _head(explanation: model.Explanation) -> page.Sentence:
    facts = [f"pod {explanation.pod}"]
    facts.append(explanation.phase or "does not exist yet")
    facts.append(f"node {explanation.node}" if explanation.node else "on no node yet")
    return page.Sentence(" · ".join(facts), _INDENT * 2, loose=True)


def _asked(explanation: model.Explanation) -> Iterator[page.Part]:
    rows = [
        (f"{one.count} × {one.resource}", f"container {one.container}", one.offer)
        for one in explanation.asks
    ]
    rows += [(f"claim {one.name}", one.claim, one.means) for one in explanation.claims]
    rows += [(one.interface, one.name, one.means) for one in explanation.networks]
    if rows:
        before = sum(page.widths([row[:2] for row in rows])) + len(_INDENT) + 2 * len(page.GAP)
        yield page.PageList(tuple(map(page.PageRow, rows)), " " * before, ranked=True)
    for annotation in explanation.annotations:
        yield page.Sentence(f"{_INDENT}{annotation}", _INDENT * 2)


def _granted(explanation: model.Explanation) -> Iterator[page.Part]:
    doubt = "supposed" if explanation.phase else "preferred"
    return _list([_share_row(one, doubt) for one in explanation.shares])


def _share_row(share: model.ExplainedShare, doubt: str) -> tuple[str, ...]:
    name = f"{share.name} ({share.card})" if share.name not in ("", share.card) else share.card
    words = [f"share {share.share}" if share.share else "", "" if share.sure else doubt]
    return (
        share.resource,
        f"container {share.container}" if share.container else "",
        name,
        ", ".join(filter(None, words)),
    )


def _steps(explanation: model.Explanation) -> Iterator[page.Block]:
    """Yield a block of Steps for each interface; the first begins with the title."""
    what = "STEPS" if explanation.phase else "STEPS THAT WOULD BE TAKEN"
    if explanation.source:
        what = f"{what}, {_SOURCES[explanation.source]}"
    for number, plan in enumerate(explanation.plans):
        title = () if number else (page.Line(what),)
        yield (*title, *_plan(plan))


def _plan(plan: model.ExplainedPlan) -> Iterator[page.Part]:
    answer, state = _DONE[plan.done]
    title = " · ".join(filter(None, (f"{_INDENT}{plan.interface}", plan.network, answer)))
    yield page.Sentence(title, _INDENT * 2, state, loose=True)
    for place, text in enumerate(step_texts(plan), 1):
        lead = f"{_INDENT}{place:>4}  "
        yield page.Sentence(f"{lead}{text}", " " * len(lead))
    for word in plan.stand_ins:
        if word.meaning:
            yield page.Sentence(f"{_INDENT}      {word.meaning}.", " " * 8)


def _inside_title(explanation: model.Explanation) -> str:
    if not explanation.phase:
        return "WHAT PROGRAMS WOULD SEE"
    is_plan = explanation.interfaces and explanation.interfaces_from is model.SeenFrom.RULES
    if is_plan or explanation.phase == "Pending":
        return f"WHAT PROGRAMS WOULD SEE, {_SOURCES[model.StepsFrom.RULES]}"
    return "WHAT PROGRAMS SEE"


def _inside(explanation: model.Explanation) -> Iterator[page.Part]:
    """Yield the lines about what programs in the pod see; planned parts are marked as planned."""
    plan = "" if "WOULD" in _inside_title(explanation) else ", as planned"
    yield from _list([*map(_interface_row, explanation.interfaces)])
    for one in explanation.names:
        state = "" if one.ready else ", not ready, so DNS leaves it out"
        yield page.Sentence(f"{_INDENT}{one.dns} is {one.address}{state}", _INDENT * 2, loose=True)
    for way in explanation.rdma_cm:
        text = f"{_INDENT}RDMA_CM takes {way.device} by {way.address}, "
        if way.inside:
            text += f"the address of {way.interface}"
        else:
            text += f"the node's on {way.interface}, which a pod with hostNetwork has"
        yield page.Sentence(text, _INDENT * 2, loose=True)
    doubt = plan if explanation.device_nodes_from is model.SeenFrom.RULES else ""
    for container, paths in explanation.device_nodes:
        line = f"{_INDENT}container {container}, in /dev/infiniband{doubt}: {'; '.join(paths)}"
        yield page.Sentence(line, _INDENT * 2)
    for container, size in explanation.pinned:
        use = "does not use RDMA now: it is idle, or UCX or NCCL chose another transport"
        if size:
            use = f"uses RDMA now: its programs have pinned {size / (1 << 20):.1f} MiB"
        yield page.Sentence(f"{_INDENT}container {container} {use}", _INDENT * 2)
    for name, lines in explanation.settings:
        yield page.Line(f"{_INDENT}{name}{plan}")
        yield from (page.Line(f"{_INDENT * 3}{line}") for line in lines)


def _interface_row(interface: model.SeenInterface) -> tuple[str, ...]:
    gid = f"GID {_short_gid(interface.gid)}" if interface.gid else ""
    index = "" if interface.gid_index is None else f"index {interface.gid_index}"
    return (
        interface.name,
        ", ".join(interface.addresses) or "no address",
        f"MTU {interface.mtu}" if interface.mtu else "",
        interface.device,
        ", ".join(filter(None, (gid, index))),
    )


def _short_gid(gid: str) -> str:
    """Return a GID in the form in which ibv_devinfo prints it."""
    try:
        whole = IPv6Address(gid)
    except ValueError:
        return gid
    return f"::ffff:{whole.ipv4_mapped}" if whole.ipv4_mapped else str(whole)


def _finding(finding: Finding) -> Iterator[page.Part]:
    mark = page.MARKS[finding.severity]
    lead = f"{mark} {_WHO[finding.stage]}"
    text = f"{lead}, at {finding.subject}" if finding.subject else lead
    yield page.Sentence(text, _INDENT * 2, page.state_of(mark), loose=True)
    yield from page.labelled({"Why": finding.problem, "Fix": finding.remedy})


def _verdict(explanation: model.Explanation) -> str:
    if explanation.is_refused:
        who = _WHO[next(one.stage for one in explanation.findings if one.is_error)]
        return f"{who} refuses it." if explanation.phase else f"{who} would refuse it."
    if explanation.preflight and explanation.phase in ("Pending", "Failed"):
        return "It starts only after a preflight that is well."
    if explanation.phase:
        return "Nothing of kube-rdma is in its way."
    if explanation.networks and not explanation.plans:
        return "Nothing stands against it in what was seen, which was too little to plan its Steps."
    return "Nothing stands against it in what was seen."


def _list(rows: Sequence[tuple[str, ...]]) -> Iterator[page.PageList]:
    """Yield a list of rows, without the columns that are empty in every row."""
    if rows:
        kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows)]
        cells = (tuple(row[place] for place in kept) for row in rows)
        yield page.PageList(tuple(map(page.PageRow, cells)), _INDENT * 2)
