"""Shows a proposal as YAML for Helm, `kube-rdma render` and kubectl, or differences as lines.

Comments say what is proposed and why, first as a table of the groups. Names and reasons come from
reports of agents: each comment is one printable line, and YAML quotes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from kube_base.plain_text import ended, plain
from kube_rdma.install.views import manifests
from kube_rdma.lib import page
from kube_rdma.lib.json_values import json_object, json_value
from kube_rdma.lib.phrases import listed
from kube_rdma.model.discover import Deviation, HardwareGroup, Proposal
from kube_rdma.model.pools import HARDWARE

_WIDTH = 98  # of a comment, behind its sign
_MOST = 20  # sentences of one group
_ON_A_LINE = 8  # names of nodes
_HEAD = ("GROUP", "NODES", "RESOURCE", "MODE", "CARDS", "LEFT OUT", "DEVIATING")
_IMAGE = "image: {repository: registry.example.com/rdma/kube-rdma, tag: 0.2.0} # what you pushed"
_POOL = "{name: rail-%d, spec: {ranges: [{subnet: SUBNET}]}}"


def proposal_text(proposal: Proposal, part: str = "") -> str:
    """Return the proposal as YAML, or one part of it: values or policies."""
    policies = [
        _comments(_about(group)) + manifests([made])
        for group in proposal.groups
        if (made := policy(proposal, group))
    ]
    values = f"{_comments(_summary(proposal))}{_values_text(proposal)}"
    texts = {"values": [values], "policies": policies}.get(part, [values, *policies])
    return "---\n".join(texts)


def proposal_document(proposal: Proposal) -> dict[str, object]:
    """Return the proposal as JSON values. Keys are stable: none is renamed or removed."""
    groups = [
        json_object(group, without=("pool", "selector"), policy=policy(proposal, group))
        for group in proposal.groups
    ]
    return json_object(proposal, groups=groups)


def differences_page(differences: Sequence[Deviation]) -> page.Page:
    """Return a line for each difference, with its nodes."""
    if not differences:
        return ((page.Line("Nothing to change."),),)
    return (tuple(page.Sentence(_sentence(one), "  ", loose=True) for one in differences),)


def policy(proposal: Proposal, group: HardwareGroup) -> dict[str, Any] | None:
    """Return the NodePolicy of a group; None with preset efa, or without a card for pods."""
    if group.pool is None or proposal.values["preset"] == "efa":
        return None
    selector = {"nodeSelector": group.selector} if group.selector else {}
    record = json.dumps(json_value(group.layouts)).replace('}, {"id"', '},\n{"id"')
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": group.name, "annotations": {HARDWARE: record}},
        "spec": {**selector, "pools": [group.pool]},
    }


def _sentence(one: Deviation) -> str:
    return ended(f"{listed(one.nodes)}: {one.sentence}" if one.nodes else one.sentence)


def _comments(lines: Iterable[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in map(plain, lines))


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return page.wrapped(plain(text), _WIDTH, indent)


def _summary(proposal: Proposal) -> Iterator[str]:
    """Yield the table of groups, the nodes that are in none, and groups without a NodePolicy."""
    rows = tuple(page.PageRow(_row(group)) for group in proposal.groups)
    table = page.PageTable(_HEAD, rows, right=(1, 4, 5, 6), whole=True)
    yield from page.page_text(((table,),), _WIDTH).split("\n") if rows else ()
    for names, what in (
        (proposal.cardless, "has no RDMA card"),
        (proposal.unreported, "has no NodeReport, so nothing is proposed for it"),
    ):
        if names:
            yield from _wrapped(f"{page.counted(len(names), 'node')} ({listed(names)}): {what}.")
    for group in proposal.groups:
        if policy(proposal, group) is None:
            yield ""
            yield from _about(group)


def _row(group: HardwareGroup) -> tuple[str, ...]:
    pool: Mapping[str, Any] = group.pool or {"resource": "-", "mode": "-"}
    deviating = {name for one in group.deviations for name in one.nodes}
    counts = (group.offered, len(group.left_out), len(deviating))
    kind = (group.title, str(len(group.nodes)), pool["resource"], pool["mode"])
    return (*kind, *map(str, counts))


def _about(group: HardwareGroup) -> Iterator[str]:
    """Yield a group's nodes, cards that are left out, deviating nodes, and labels to write."""
    yield from _wrapped(f"{group.title}: {listed(group.nodes)}.")
    sentences = [f"{one.card} is left out: {one.why}" for one in group.left_out]
    sentences += map(_sentence, group.deviations)
    if group.pool is None:
        sentences.insert(0, "No card of these nodes can be given to pods, so they have no policy")
    for text in sentences[:_MOST]:
        yield from _wrapped(f"- {ended(text)}")
    if len(sentences) > _MOST:
        yield f"- {len(sentences) - _MOST} more: -o json has them."
    if group.pool and not group.is_labelled:
        yield "- Label these nodes, for no label of theirs tells them from others:"
        label = quote(f"{HARDWARE}={group.name}")
        for at in range(0, len(group.nodes), _ON_A_LINE):
            names = " ".join(quote(one) for one in group.nodes[at : at + _ON_A_LINE])
            yield f"    kubectl label node {names} {label}"


def _values_text(proposal: Proposal) -> str:
    left = ["Left to you: your image", _IMAGE]
    if proposal.rails:
        left += [
            "and addresses: a subnet of the fabric for each rail, in place of SUBNET.",
            "pools:",
        ]
        left += [f"- {_POOL % rail}" for rail in range(proposal.rails)]
    return f"\n{manifests([dict(proposal.values)])}{_comments(left)}"
