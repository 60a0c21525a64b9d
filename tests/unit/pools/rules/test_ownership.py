"""Whose a label is: kube-rdma changes and removes what it wrote, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.kubernetes import NodeState
from kube_rdma.pools.rules import labels as table
from kube_rdma.pools.rules.labels import (
    NFD_LIST,
    WantedLabels,
    label_change,
    nfd_labels,
    remembered,
)

PRESENT = f"{table.FEATURE}/pci-15b3.present"
KERNEL = f"{table.KERNEL}.full"
KEYS = (PRESENT, KERNEL, table.MODE, table.RATE, "example.org/a", "kube-rdma.io/agent")
VALUES = st.sampled_from(("true", "shared", "6.8.0"))
LABELS = st.dictionaries(st.sampled_from(KEYS), VALUES)
OURS = LABELS.map(lambda labels: {k: v for k, v in labels.items() if table.writes(k)})


def node(labels, memory=(), nfd=(), **annotations):
    if memory:
        annotations[table.REMEMBERED] = ",".join(f"{k}={v}" for k, v in dict(memory).items())
    if nfd:
        annotations[NFD_LIST] = ",".join(nfd)
    return NodeState(
        "n", labels=tuple(labels.items()), annotations=tuple(sorted(annotations.items()))
    )


def after(before, written):
    if written is None:
        return before

    def merged(pairs, changes):
        both = {**dict(pairs), **changes}
        return tuple(sorted((k, v) for k, v in both.items() if v is not None))

    return NodeState(
        "n",
        labels=merged(before.labels, written.labels),
        annotations=merged(before.annotations, written.annotations),
    )


@given(LABELS, OURS, LABELS, st.frozensets(st.sampled_from(KEYS)))
def test_what_others_wrote_stays_and_one_patch_is_enough(has, memory, labels, nfd):
    names = [key.removeprefix(f"{table.FEATURE}/") for key in nfd]
    before = node(has, memory, names)
    wanted = WantedLabels(labels, frozenset({table.RATE}))
    now = after(before, label_change(before, wanted))
    ours = {k for k, v in memory.items() if has.get(k) == v} - nfd_labels(before)
    for key, value in has.items():
        assert key in ours or dict(now.labels)[key] == value
    for key in ours - labels.keys() - wanted.kept:
        assert key not in dict(now.labels)
    for key, value in labels.items():
        if table.writes(key) and key not in nfd_labels(before) and key not in has:
            assert dict(now.labels)[key] == value
    assert label_change(now, wanted) is None
    gone = after(now, label_change(now, WantedLabels()))
    assert dict(gone.labels) == {k: v for k, v in has.items() if k not in ours}
    assert table.REMEMBERED not in dict(gone.annotations)


@given(LABELS, OURS, LABELS, st.frozensets(st.sampled_from(KEYS)))
def test_no_label_of_others_is_written_where_none_is_wanted(has, memory, labels, nfd):
    names = [key.removeprefix(f"{table.FEATURE}/") for key in nfd]
    before = node(has, memory, names)
    wanted = WantedLabels(labels, leaves_nfd=True)
    now = after(before, label_change(before, wanted))
    others = {k: v for k, v in has.items() if not k.startswith("kube-rdma.io/")}
    assert others == {k: v for k, v in now.labels if not k.startswith("kube-rdma.io/")}
    ours = {k for k in others if memory.get(k) == has[k]} - nfd_labels(before)
    assert ours == {k for k in remembered(now) if k in others}
    gone = after(now, label_change(now, WantedLabels()))
    assert ours == others.keys() - dict(gone.labels).keys()


def test_a_label_that_somebody_changed_is_theirs():
    mine = {PRESENT: "true"}
    written = label_change(node({PRESENT: "false"}, mine), WantedLabels(mine))
    assert (written.labels, written.annotations) == ({}, {table.REMEMBERED: None})


def test_a_label_that_somebody_removed_comes_back():
    mine = {PRESENT: "true"}
    assert label_change(node({}, mine), WantedLabels(mine)).labels == mine


def test_node_feature_discovery_takes_a_label_over():
    has = {PRESENT: "true"}
    written = label_change(node(has, has, ["pci-15b3.present"]), WantedLabels())
    assert (written.labels, written.annotations) == ({}, {table.REMEMBERED: None})


def test_a_second_instance_of_node_feature_discovery_has_a_list_too():
    lists = {NFD_LIST: "kernel-version.full, example.org/a", f"b.{NFD_LIST}": "pci-15b3.present"}
    assert nfd_labels(node({}, **lists)) == {KERNEL, "example.org/a", PRESENT}


def test_what_no_agent_can_have_written_is_not_remembered():
    """The annotation is anybody's to change: it gives no right to labels of others."""
    text = f"node-role.kubernetes.io/worker=a,{PRESENT}=true,{KERNEL}=,x,=,{table.MODE}=a b"
    assert remembered(node({}, **{table.REMEMBERED: text})) == {PRESENT: "true"}
