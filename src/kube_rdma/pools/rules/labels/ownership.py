"""Which labels of a Node object are kube-rdma's, and what has to change there.

Between pools/rules/labels/wanted and adapters/cluster/nodes, which writes the change. A label is
kube-rdma's while its annotation remembers it with the value that the Node object has. What another
wrote, by hand or by Node Feature Discovery, is never changed and never removed; what Node Feature
Discovery lists as its own is given up to it. Where its labels are not wanted, those that an earlier
agent wrote stay as they are: drivers of others run where they are, and are unloaded without them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_rdma.model.node import LabelChange, NodeState
from kube_rdma.pools.rules.labels.table import FEATURE, REMEMBERED, is_nfd, writes
from kube_rdma.pools.rules.labels.wanted import VALUE, WantedLabels

# Node Feature Discovery's list of its labels, those of FEATURE without the prefix. A second
# instance of it writes the same annotation with its name and a dot in front.
NFD_LIST = "nfd.node.kubernetes.io/feature-labels"


def change(node: NodeState, wanted: WantedLabels) -> LabelChange | None:
    """What to write so that the node says what is wanted; None when it does."""
    has, before = dict(node.labels), remembered(node)
    others = nfd_labels(node)
    own = {k: v for k, v in before.items() if k not in others and has.get(k) == v}
    after = {k: v for k, v in own.items() if wanted.keeps(k)}
    for key, value in wanted.labels.items():
        free = key not in has and key not in others
        may = writes(key) and not (wanted.leaves_nfd and is_nfd(key))
        if key not in after and may and (key in own or free):
            after[key] = value
    labels: dict[str, str | None] = {k: v for k, v in after.items() if has.get(k) != v}
    labels |= dict.fromkeys(own.keys() - after.keys())
    text = _text(after)
    if not labels and dict(node.annotations).get(REMEMBERED) == text:
        return None
    return LabelChange(labels, {REMEMBERED: text})


def remembered(node: NodeState) -> Mapping[str, str]:
    """The labels that an agent wrote; whatever it cannot have written there counts for nothing."""
    text = dict(node.annotations).get(REMEMBERED, "")
    entries = (entry.partition("=") for entry in text.split(","))
    return {key: value for key, _, value in entries if writes(key) and VALUE.fullmatch(value)}


def nfd_labels(node: NodeState) -> frozenset[str]:
    """The keys that Node Feature Discovery calls its own on this node."""
    lists = (v for k, v in node.annotations if k == NFD_LIST or k.endswith(f".{NFD_LIST}"))
    names = (name.strip() for text in lists for name in text.split(","))
    return frozenset(name if "/" in name else f"{FEATURE}/{name}" for name in names if name)


def _text(labels: Mapping[str, str]) -> str | None:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or None
