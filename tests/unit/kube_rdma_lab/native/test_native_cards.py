"""Cards of a native node: what its tree shows, and what may happen to it."""

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.kernel.netlink.events import decode
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.device import PortState
from kube_rdma_lab.native import announce, cards, changes, trees


def shape(root):
    """Every path of a tree with where it leads or what it says; None for a folder."""
    return {
        str(path.relative_to(root)): path.readlink()
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else None
        for path in root.rglob("*")
    }


@pytest.fixture(scope="module", params=trees.names())
def tree(request, tmp_path_factory):
    """Each tree in turn, written out for a node; a test leaves it as it was."""
    root = tmp_path_factory.mktemp("node") / "sys"
    cards.write(request.param, root)
    return root


def test_a_node_shows_its_tree_and_nothing_is_wrong_with_it(tree):
    """What the node adds, its own interfaces and places to mount, is no fault of the survey."""
    assert read_survey(tree).faults == ()
    assert {"lo", "eth0"} <= {path.name for path in (tree / "class/net").iterdir()}


def test_a_port_goes_down_and_comes_back_for_every_kind_of_card(tree):
    before = read_survey(tree)
    for device in before.devices:
        changes.ports(tree, device.name, up=False)
    down = read_survey(tree)
    assert {port.state for device in down.devices for port in device.ports} <= {PortState.DOWN}
    assert down.faults == ()
    for device in before.devices:
        changes.ports(tree, device.name, up=True)
    up = {port.state for device in read_survey(tree).devices for port in device.ports}
    assert up <= {PortState.ACTIVE}


def test_a_function_is_gone_when_it_is_pulled_and_as_before_when_it_is_plugged(tree, tmp_path):
    """Each function of each tree by itself: no fault in between, nothing lost after it."""
    before = shape(tree)
    for function in read_survey(tree).functions:
        name = str(function.position.pci)
        if function.position.virtual_functions:
            with pytest.raises(Refused, match=r"has virtual functions\. Pull 0000:"):
                changes.pull(tree, tmp_path / "pulled", name)
            continue
        gone = changes.pull(tree, tmp_path / "pulled", name)
        between = read_survey(tree, brief=True)
        assert between.faults == ()
        assert name not in {str(each.position.pci) for each in between.functions}
        assert not [device for device in between.devices if str(device.pci) == name]
        changes.plug(tree, tmp_path / "pulled", gone.address)
    assert shape(tree) == before


def test_an_announcement_is_one_that_the_agent_believes():
    """The kernel takes the header off and sends the rest on as its own."""
    data = announce.datagram("remove", "infiniband", "/devices/x/infiniband/mlx5_0")
    event = decode(data[16:], sender=0)
    assert event is not None
    assert (event.action, event.subsystem) == ("remove", "infiniband")
    assert event.devpath == "/devices/x/infiniband/mlx5_0"
