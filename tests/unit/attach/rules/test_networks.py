"""Refusals of a pod's networks: each sentence is written down, none is without a remedy."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.attach.rules.requests import match_entries, refuse_host_network, refuse_isolated
from kube_rdma.model.attach.attachment import NetworkAsk, NetworkKind
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState
from tests.kit.pod_networks import network, planned, wish
from tests.kit.refusals import assert_written_down, refusal
from tests.unit.attach.rules.bad_pod_networks import CASES

GOLDEN = Path(__file__).with_name("attach_refusals.txt")


def attach(asked, shares, on, leases):
    met = match_entries([each.ask for each in asked], [each.network for each in asked])
    return planned(met, shares, on, leases)


def test_every_sentence_is_written_down():
    assert_written_down(GOLDEN, lambda name: refusal(attach, *CASES[name]), CASES)


def test_an_entry_meets_its_network():
    """By namespace and name, in the order of the annotation."""
    first, second = wish(0, network("a")), wish(1, network("b"))
    found = match_entries([second.ask, first.ask], [first.network, second.network])
    assert found == (second, first)


def test_an_unknown_network_is_named_with_the_nearest():
    asks = [wish(0, network("rdma-nte")).ask, wish(1, network("rdma-nto")).ask]
    with pytest.raises(Refused) as caught:
        match_entries(asks, [network("rdma-net")])
    assert str(caught.value).splitlines()[0] == (
        "networks[0]: there is no network default/rdma-nte. Did you mean default/rdma-net? Create "
        "the NetworkAttachmentDefinition rdma-nte in namespace default, or name another one."
    )
    assert [fault.where for fault in caught.value.more] == ["networks[1]"]


def test_other_plugins_do_what_ours_cannot():
    other = network(kind=NetworkKind.OTHER)
    asked = wish(of=other, capabilities=(("bandwidth", b"{}"),))
    assert match_entries([asked.ask], [other]) == (asked,)


def test_a_pod_on_the_host_network_has_no_networks_of_its_own():
    """It is refused when it asks for some, and left alone when it does not."""
    pod = PodState("default", "train-0", "uid-1", host_network=True)
    refuse_host_network(pod, [])
    with pytest.raises(Refused, match="Remove hostNetwork: true, or the annotation"):
        refuse_host_network(pod, [wish().ask])


SPACES = st.sampled_from(["a", "b", "c", "default"])


def asks(*namespaces):
    """An entry for each network of these namespaces."""
    return [
        NetworkAsk(namespace, "net", InterfaceName(f"net{n}"), f"networks[{n}]")
        for n, namespace in enumerate(namespaces)
    ]


@given(st.lists(SPACES, max_size=4), SPACES, st.none() | st.sets(SPACES))
def test_its_own_and_those_for_everybody(named, own, global_namespaces):
    allowed = set(named) if global_namespaces is None else {own, *global_namespaces}
    refused = [f"networks[{n}]" for n, namespace in enumerate(named) if namespace not in allowed]
    places = []
    try:
        refuse_isolated(own, asks(*named), global_namespaces)
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
