"""A list is chained only where the plugins that the runtime finds are beside ours."""

import json

import pytest

from kube_rdma.attach.rules.callers import proven
from kube_rdma.attach.rules.conflist import plan
from kube_rdma.model.attach.cni import HOOK_PROGRAM, IPAM_PLUGIN, PLUGIN, ConfFile, Wiring

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
    """Whatever else is; ours comes with us."""
    files = listed("ptp", "portmap")
    made = proved(files, "ptp", "portmap", *more)
    assert (made, made.wiring) == (plan(files), Wiring.CHAIN)


def test_one_is_not():
    """All that are missing are named, once."""
    files = listed("ptp", "portmap", "ptp")
    made = proved(files, "portmap", *OURS)
    assert (made.wiring, made.default, made.missing) == (Wiring.NONE, "10-net.conflist", ("ptp",))
    assert not made.changes


def test_what_was_chained_before_is_not_left_so():
    """With an entry whose binary the runtime does not find, no pod would start."""
    files = listed("ptp")
    (chained,) = plan(files).writes
    made = proved((chained,), *OURS)
    assert made.missing == ("ptp",)
    assert after((chained,), made) == ["ptp"]


def test_a_list_of_our_own_goes_too():
    """It stood in for a lone plugin."""
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
    """It may come later."""
    assert proved(()).missing == ()
