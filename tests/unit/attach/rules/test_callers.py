"""Who calls us, told by what comes along: the runtime, a meta-plugin, or a plugin for addresses."""

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.rules.callers import Role, role
from kube_rdma.model.attach.cni import Call, CniResult, Verb
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId


def call(verb, interface="net1", **facts):
    return Call(verb, "1.0.0", "net", b"{}", ContainerId("c"), InterfaceName(interface), **facts)


@pytest.mark.parametrize("verb", [Verb.ADD, Verb.DEL, Verb.CHECK, Verb.GC, Verb.STATUS])
def test_our_entry_is_known_by_its_mark(verb):
    """Whatever the interface is called, and whatever stands before us."""
    assert role(call(verb, marked=True)) is Role.CHAIN
    assert role(call(verb, "eth7", marked=True, previous=CniResult())) is Role.CHAIN


@pytest.mark.parametrize("verb", list(Verb))
def test_another_plugins_configuration_is_about_addresses(verb):
    """It names us in its ipam block; what was made before it does not matter."""
    assert role(call(verb, plugin="macvlan")) is Role.ADDRESSES
    assert role(call(verb, "eth0", plugin="bridge", previous=CniResult())) is Role.ADDRESSES


def test_a_network_of_our_type_has_nothing_before_it():
    """Also where it is the pod's only network, whose interface is eth0."""
    assert role(call(Verb.ADD)) is Role.DELEGATE
    assert role(call(Verb.ADD, "eth0")) is Role.DELEGATE


def test_an_entry_of_an_earlier_version_has_no_mark():
    """It is in the cluster's list, so the interface is the runtime's."""
    assert role(call(Verb.ADD, "eth0", previous=CniResult())) is Role.CHAIN
    assert role(call(Verb.GC)) is Role.CHAIN


@pytest.mark.parametrize("verb", [Verb.DEL, Verb.CHECK])
def test_an_end_says_nothing_of_its_beginning(verb):
    """libcni hands the result of the ADD over, which may be ours or another's."""
    assert role(call(verb, previous=CniResult())) is Role.UNTOLD
    assert role(call(verb, "eth0")) is Role.UNTOLD


def test_behind_another_plugin_of_a_network_we_are_refused():
    """The interface is there already."""
    with pytest.raises(Refused, match="behind another plugin") as refused:
        role(call(Verb.ADD, previous=CniResult()))
    assert "be the first" in refused.value.remedy
