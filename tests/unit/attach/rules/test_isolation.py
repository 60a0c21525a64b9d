"""Which networks a pod of a namespace may name, as Multus has it with namespaceIsolation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.attach.rules.requests import refuse_isolated
from kube_rdma.model.attach.attachment import NetworkAsk
from kube_rdma.model.ipam import InterfaceName

SPACES = st.sampled_from(["a", "b", "c", "default"])


def asks(*namespaces):
    """An entry for each network of these namespaces."""
    return [
        NetworkAsk(namespace, "net", InterfaceName(f"net{n}"), f"networks[{n}]")
        for n, namespace in enumerate(namespaces)
    ]


@given(st.lists(SPACES, max_size=4), SPACES, st.none() | st.sets(SPACES))
def test_its_own_and_those_for_everybody(named, own, everybodys):
    """Without a list, those of any."""
    allowed = set(named) if everybodys is None else {own, *everybodys}
    refused = [f"networks[{n}]" for n, namespace in enumerate(named) if namespace not in allowed]
    places = []
    try:
        refuse_isolated(own, asks(*named), everybodys)
    except Refused as caught:
        places = [one.where for one in (caught, *caught.more)]
    assert places == refused


def test_all_entries_are_told_with_what_to_do():
    """The place of each, and whose networks may be named."""
    with pytest.raises(Refused) as caught:
        refuse_isolated("a", asks("b", "a", "c"), ("default",))
    assert str(caught.value).splitlines()[0] == (
        "networks[0]: the network b/net is for pods of b, and this pod is of namespace a. Name one "
        "of a, default, or have the administrator add b to --namespace-isolation."
    )
    assert [fault.where for fault in caught.value.more] == ["networks[2]"]
