"""The rule for names of resources is the kubelet's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.pools import is_extended_resource
from kube_rdma_testing.kubelet import kubelet

LETTERS = st.sampled_from([*"aZ09-._/", "kubernetes.io", "requests.", "é", "a" * 60, "\n"])
NAMES = st.lists(LETTERS, max_size=8).map("".join)


@given(NAMES | st.tuples(NAMES, NAMES).map("/".join))
def test_the_rule_for_names_is_the_kubelets(name):
    """The kubelet of tests has it written down by itself."""
    assert is_extended_resource(name) == kubelet.is_extended_resource(name)


@pytest.mark.parametrize(("length", "valid"), [(244, True), (245, False)])
def test_a_prefix_has_a_length(length, valid):
    """A quota puts nine characters before it, and the whole may have 253."""
    assert is_extended_resource(f"{'a.' * 122}aa"[-length:] + "/x") is valid
