"""The caller of kube-rdma by its configuration; a list whose plugins the runtime finds."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.rules.conflist import Role, plan, proven, role
from kube_rdma.model.attach.cni import (
    HOOK_PROGRAM,
    IPAM_PLUGIN,
    PLUGIN,
    Call,
    CniResult,
    ConfFile,
    Verb,
    Wiring,
)
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
    with pytest.raises(Refused, match="behind another plugin") as refused:
        role(call(Verb.ADD, previous=CniResult()))
    assert "be the first" in refused.value.remedy


OURS = {PLUGIN, IPAM_PLUGIN, HOOK_PROGRAM}
MULTUS = '{"cniVersion": "1.1.0", "name": "m", "type": "multus-shim"}'


def listed(*types):
    """The cluster's list with these plugins."""
    plugins = [{"type": one} for one in types]
    text = json.dumps({"cniVersion": "1.0.0", "name": "net", "plugins": plugins})
    return (ConfFile("10-net.conflist", text),)


def after(files, made):
    (file,) = made.writes or files
    return [one["type"] for one in json.loads(file.text)["plugins"]]


def proved(files, *binaries):
    return proven(plan(files), files, binaries)


@pytest.mark.parametrize("more", [(), ("loopback",), OURS])
def test_all_of_its_plugins_are_there(more):
    files = listed("ptp", "portmap")
    made = proved(files, "ptp", "portmap", *more)
    assert (made, made.wiring) == (plan(files), Wiring.CHAIN)


def test_one_is_not():
    made = proved(listed("ptp", "portmap", "ptp"), "portmap", *OURS)
    assert (made.wiring, made.default, made.missing) == (Wiring.NONE, "10-net.conflist", ("ptp",))
    assert not made.changes


def test_what_was_chained_before_is_not_left_so():
    """With an entry whose binary the runtime does not find, no pod would start."""
    (chained,) = plan(listed("ptp")).writes
    made = proved((chained,), *OURS)
    assert made.missing == ("ptp",)
    assert after((chained,), made) == ["ptp"]


def test_a_list_of_our_own_goes_too():
    lone = ConfFile("10-net.conf", '{"cniVersion": "1.0.0", "name": "net", "type": "ptp"}')
    files = (lone, *plan((lone,)).writes)
    assert proved(files, "ptp").wiring is Wiring.CHAIN
    made = proved(files)
    assert (made.missing, made.removes) == (("ptp",), ("00-kube-rdma.conflist",))


def test_behind_a_meta_plugin_it_is_said_and_nothing_else():
    """It is not called through us; but what it calls it looks for beside itself."""
    files = (ConfFile("00-multus.conf", MULTUS), *listed("ptp"))
    made = proved(files, "ptp")
    assert (made.wiring, made.missing) == (Wiring.DELEGATE, ("multus-shim",))
    assert proved(files, "multus-shim").missing == ()


def test_without_a_network_nothing_is_missing():
    assert proved(()).missing == ()
