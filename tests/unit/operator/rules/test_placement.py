"""Nodes of a policy, their groups, and names of DaemonSets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.operator.rules.placement import (
    REQUIRED,
    allows,
    driver_groups,
    label_value,
    legal_names,
    peer_groups,
    policy_node,
)

LABELS = {"rack": "7", "zone": "a"}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator, *values):
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


TERMS = [
    (expression("zone", "In", "a", "b"), True),
    (expression("zone", "In", "b"), False),
    (expression("none", "In", "a"), False),
    (expression("zone", "NotIn", "b"), True),
    (expression("none", "NotIn", "b"), True),
    (expression("zone", "NotIn", "a"), False),
    (expression("zone", "Exists"), True),
    (expression("none", "Exists"), False),
    (expression("none", "DoesNotExist"), True),
    (expression("zone", "DoesNotExist"), False),
    (expression("rack", "Gt", "6"), True),
    (expression("rack", "Gt", "7"), False),
    (expression("rack", "Lt", "8"), True),
    (expression("zone", "Gt", "1"), False),
    (expression("none", "Lt", "1"), False),
    (expression("rack", "Lt", "9" * 5000), False),
    (field("In", "node-1"), True),
    (field("NotIn", "node-1"), False),
    ({}, False),
]


@pytest.mark.parametrize(("term", "holds"), TERMS)
def test_a_term_holds_as_for_the_scheduler(term, holds):
    assert allows({REQUIRED: {"nodeSelectorTerms": [term]}}, "node-1", LABELS) is holds


def test_all_expressions_of_a_term_and_any_term():
    both = {**expression("zone", "Exists"), **field("In", "node-2")}
    assert not allows({REQUIRED: {"nodeSelectorTerms": [both]}}, "node-1", LABELS)
    either = [both, expression("rack", "Exists")]
    assert allows({REQUIRED: {"nodeSelectorTerms": either}}, "node-1", LABELS)


@pytest.mark.parametrize("affinity", [None, {}])
def test_without_one_every_node_is_allowed(affinity):
    assert allows(affinity, "node-1", LABELS)


# Nodes are grouped by what a driver's image is built for; one without labels is named.

FEATURE = "feature.node.kubernetes.io"


def node(name, *, kernel="5.4.0", release="20.04", gpus=False, **changes):
    """A node with cards as Node Feature Discovery labels it; a label that is None is missing."""
    labels = {
        "kubernetes.io/arch": "amd64",
        f"{FEATURE}/pci-15b3.present": "true",
        f"{FEATURE}/kernel-version.full": kernel,
        f"{FEATURE}/system-os_release.ID": "ubuntu",
        f"{FEATURE}/system-os_release.VERSION_ID": release,
    }
    labels |= {f"{FEATURE}/pci-10de.present": "true"} if gpus else {}
    labels |= {f"{FEATURE}/{key.replace('__', '.')}": value for key, value in changes.items()}
    return policy_node(name, {key: value for key, value in labels.items() if value is not None})


def tags(grouping):
    return [group.tag for group in grouping.groups]


def test_each_kernel_and_system_is_a_group_of_its_own():
    nodes = [node("a"), node("b"), node("c", kernel="5.15.0"), node("d", release="22.04")]
    assert tags(driver_groups(nodes)) == [
        "amd64-ubuntu20.04-kver5.15.0",
        "amd64-ubuntu20.04-kver5.4.0",
        "amd64-ubuntu22.04-kver5.4.0",
    ]


def test_nodes_without_cards_are_in_none():
    grouping = driver_groups([node("a", **{"pci-15b3__present": "false"})])
    assert (grouping.groups, grouping.problem) == ((), "")


def test_the_peer_driver_wants_gpus_and_no_kernel():
    nodes = [node("a", gpus=True), node("b", gpus=True, kernel="5.15.0"), node("c")]
    assert tags(peer_groups(nodes)) == ["amd64-ubuntu20.04"]


def test_a_node_that_lacks_a_label_is_named_and_the_others_go_on():
    nodes = [
        node("a"),
        node("c", **{"kernel-version__full": None}),
        node("b", **{"system-os_release__ID": None}),
    ]
    grouping = driver_groups(nodes)
    assert tags(grouping) == ["amd64-ubuntu20.04-kver5.4.0"]
    assert grouping.problem == (
        f"node b has no label {FEATURE}/system-os_release.ID, and 1 more nodes lack labels"
    )
    assert not peer_groups(nodes).problem


# Names of DaemonSets: legal, different, and those of the original where they can be.

LEGAL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
drawn_tags = st.text("aA1_-.+ä", max_size=300)


@given(st.lists(drawn_tags))
def test_all_names_are_legal_and_different(given_tags):
    wanted = {f"ofed-driver-{tag}-ds" for tag in given_tags}
    names = legal_names(wanted)
    assert set(names) == wanted
    assert len(set(names.values())) == len(wanted)
    for wish, name in names.items():
        assert LEGAL.fullmatch(name)
        assert len(name) <= 253
        assert LABEL.fullmatch(label_value(name))
        assert len(label_value(name)) <= 63
        if LEGAL.fullmatch(wish) and len(wish) <= 253:
            assert name == wish


@given(st.sets(drawn_tags, min_size=2))
def test_labels_of_different_names_are_different(given_tags):
    names = legal_names(f"ofed-driver-{tag}-ds" for tag in given_tags).values()
    assert len({label_value(name) for name in names}) == len(given_tags)


def test_a_kernel_of_the_document_keeps_its_name_and_one_of_fedora_gets_a_legal_one():
    ubuntu = "ofed-driver-amd64-ubuntu18.04-kver4.15.0-109-generic-ds"
    fedora = "ofed-driver-amd64-rhel8.2-kver4.18.0-193.el8.x86_64-ds"
    assert legal_names([ubuntu, fedora]) == {
        ubuntu: ubuntu,
        fedora: "ofed-driver-amd64-rhel8.2-kver4.18.0-193.el8.x86-64-ds",
    }


def test_a_name_that_another_has_already_gets_a_hash_whatever_the_order():
    wanted = ["a_b", "a-b", "A-b"]
    names = legal_names(wanted)
    assert names == legal_names(reversed(wanted))
    assert names["a-b"] == "a-b"
    assert re.fullmatch(r"a-b-[0-9a-f]{8}", names["a_b"])
    assert re.fullmatch(r"a-b-[0-9a-f]{8}", names["A-b"])
