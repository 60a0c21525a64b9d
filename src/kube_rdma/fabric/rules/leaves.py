"""Decides the labels of leaves: which leaves a node is on, and which nodes are a block.

fabric/nodes hands in what agents report and writes the change. A node's leaf follows from its own
report alone, so that a false report changes the leaf of no other node. A node's block is the
commonest set of leaves that has more than half of the node's ports. So a node with one cable of
many in the wrong leaf stays in its block.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from hashlib import sha256

import msgspec

from kube_base.foreign_json import Undecodable, decoded
from kube_base.natural import natural
from kube_rdma.model.fabric import FAULTS, NodeCables
from kube_rdma.model.kubernetes import LabelChange, NodeState
from kube_rdma.pools.rules.labels import VALUE

LEAF, BLOCK = "kube-rdma.io/leaf", "kube-rdma.io/block"
# The label of the first switch above a node, of other projects: "Topograph Node Labels and
# Annotations" (tier 0 is the switch closest to the node), and Alibaba Cloud's documents of ACK.
DIALECTS = {
    "write-topograph": "fabric.topograph.run/tier-0",
    "write-ack": "alibabacloud.com/asw-id",
}
# The annotations of a node in which the controller remembers the labels that it wrote, the leaf of
# each port by "card/number", and the faults of cables that it reported.
OWN, LEAVES = (f"kube-rdma.io/fabric-{what}" for what in ("labels", "leaves"))

Leaves = frozenset[str]

_KEYS = frozenset((LEAF, BLOCK, *DIALECTS.values()))
_BETWEEN = "__"  # joins the names of a set; a dot or a dash may be in a name
_ROOM = 54  # characters of 63, which a label value has, before a dash and a digest
_MOST_PORTS = 64  # that are remembered
_MOST_BESIDE = 32  # sets of leaves with one in common that are looked at, the commonest first


def leaf_value(leaves: Collection[str]) -> str:
    """Return the label value of a set of leaves: their names, or the first, the last and a digest.

    The digest tells sets apart whose names make no legal value.
    """
    names = sorted(sorted(leaves), key=natural)
    whole = _BETWEEN.join(names)
    if VALUE.fullmatch(whole) and all(VALUE.fullmatch(n) and _BETWEEN not in n for n in names):
        return whole
    ends = _BETWEEN.join(dict.fromkeys((names[0], names[-1])))
    text = re.sub(r"[^-A-Za-z0-9_.]", "-", ends)[:_ROOM].strip("-_.")
    digest = sha256("\n".join(names).encode()).hexdigest()[:8]
    return f"{text}-{digest}" if text else digest


def leaves_by_port(cables: NodeCables, remembered: Mapping[str, str]) -> Mapping[str, str]:
    """Return a node's leaves by port ("card/number"); a silent port keeps the remembered one."""
    heard = {f"{card}/{number}": at.switch for (card, number), at in cables.heard.items()}
    known = {one.card for one in cables.ports} | cables.gone
    kept = {key: leaf for key, leaf in remembered.items() if key.rpartition("/")[0] in known}
    return dict(sorted({**kept, **heard}.items())[:_MOST_PORTS])


def accepted_leaves(cables: NodeCables) -> Mapping[str, str]:
    """Return the leaf where an administrator expects each port of a node, by "card/number"."""
    return {f"{card}/{number}": at.switch for (card, number), at in cables.places.items()}


def blocks(ports: Mapping[str, Collection[str]]) -> Mapping[str, Leaves]:
    """Return each node's block: the commonest set of leaves that has over half of the node's ports.

    `ports` has the leaf of each port of a node; a node without any has no block.
    """
    own = {node: frozenset(Counter(leaves).items()) for node, leaves in ports.items() if leaves}
    nodes = Counter(frozenset(dict(count)) for count in own.values())
    beside = defaultdict[str, list[Leaves]](list)
    for some, _ in nodes.most_common():
        for leaf in some:
            beside[leaf].append(some)

    @cache
    def block(count: frozenset[tuple[str, int]]) -> Leaves:
        on = dict(count)
        alone, half = frozenset(on), sum(on.values()) / 2
        beyond = {some for leaf in on for some in beside[leaf][:_MOST_BESIDE]} | {alone}
        near = [some for some in beyond if sum(on.get(leaf, 0) for leaf in some) > half]
        return max(near, key=lambda some: (nodes[some], some == alone, sorted(some)))

    return {node: block(count) for node, count in own.items()}


def wanted_labels(leaves: Mapping[str, str], block: Leaves | None, mode: str) -> Mapping[str, str]:
    """Return the labels of a node's leaves and block, none without a block.

    A mode of DIALECTS adds another project's label for the leaves.
    """
    if not block:
        return {}
    leaf = leaf_value({*leaves.values()})
    return {LEAF: leaf, BLOCK: leaf_value(block), DIALECTS.get(mode, LEAF): leaf}


def label_change(
    node: NodeState, labels: Mapping[str, str], leaves: Mapping[str, str], faults: str = ""
) -> LabelChange | None:
    """Return the change that gives a node its labels and annotations; None when it has them.

    A label is the controller's if the annotation has it with the value that the node has. A label
    that somebody else wrote stays, and so does one whose value was changed since.
    """
    has, notes = dict(node.labels), dict(node.annotations)
    remembered = {key: value for key, value in _texts(notes.get(OWN)).items() if key in _KEYS}
    own = {key: value for key, value in remembered.items() if has.get(key) == value}
    after = {key: value for key, value in labels.items() if key in own or key not in has}
    changed: dict[str, str | None] = {k: v for k, v in after.items() if has.get(k) != v}
    changed |= dict.fromkeys(own.keys() - after.keys())
    texts = {OWN: _text(after), LEAVES: _text(leaves), FAULTS: faults or None}
    noted = {key: text for key, text in texts.items() if notes.get(key) != text}
    return LabelChange(changed, noted) if changed or noted else None


def remembered_leaves(node: NodeState) -> Mapping[str, str]:
    """Return the leaf of each port from the node's annotation; nothing if that is garbled."""
    return _texts(dict(node.annotations).get(LEAVES))


def _text(texts: Mapping[str, str]) -> str | None:
    return msgspec.json.encode(texts, order="sorted").decode() if texts else None


def _texts(text: str | None) -> Mapping[str, str]:
    try:
        return decoded(text, dict[str, str]) if text else {}
    except Undecodable:
        return {}
