"""Names of DaemonSets: legal, different, and those of the original where they can be."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.operator.rules.placement import label_value, legal_names

LEGAL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
tags = st.text("aA1_-.+ä", max_size=300)


@given(st.lists(tags))
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


@given(st.sets(tags, min_size=2))
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
