"""Recorded cards of a native node: what its tree shows, and what may happen to it."""

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


@pytest.fixture(params=trees.names())
def tree(request, tmp_path):
    """Each tree in turn, written out for a node."""
    cards.write(request.param, tmp_path / "sys")
    return tmp_path / "sys"


@pytest.fixture
def dgx(tmp_path):
    """The tree with eight InfiniBand cards."""
    cards.write("dgx-like", tmp_path / "sys")
    return tmp_path / "sys"


def test_a_node_shows_its_tree_and_nothing_is_wrong_with_it(tree):
    """What the node adds, its own interfaces and places to mount, is no fault of the survey."""
    survey = read_survey(tree)
    assert survey.faults == ()
    assert {"lo", "eth0"} <= {path.name for path in (tree / "class/net").iterdir()}


def test_a_node_has_an_interface_for_each_of_its_functions_and_none_for_virtual_ones(tmp_path):
    shown = cards.write("lab-node", tmp_path / "sys")
    assert set(shown.interfaces) == {
        "ens2f0",
        "ens3f0",
        "ens4f0",
        *(f"ens4f0v{n}" for n in range(4)),
    }
    assert cards.write("mlx5-bond", tmp_path / "bond").interfaces == ("ens1f0np0", "ens1f1np1")


def test_a_node_has_the_device_nodes_of_all_its_cards(dgx):
    paths = [char.path for char in cards.read(dgx).devices]
    assert sorted(paths) == sorted(
        [f"/dev/infiniband/{kind}{n}" for kind in ("uverbs", "umad") for n in range(8)]
        + ["/dev/infiniband/rdma_cm"]
    )


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
        name = str(function.seat.pci)
        if function.seat.virtual_functions:
            with pytest.raises(Refused, match=r"has virtual functions\. Pull 0000:"):
                changes.pull(tree, tmp_path / "pulled", name)
            continue
        gone = changes.pull(tree, tmp_path / "pulled", name)
        between = read_survey(tree)
        assert between.faults == ()
        assert name not in {str(each.seat.pci) for each in between.functions}
        assert not [device for device in between.devices if str(device.pci) == name]
        changes.plug(tree, tmp_path / "pulled", gone.address)
    assert shape(tree) == before


def test_a_card_is_pulled_by_its_device_its_interface_or_its_address(dgx, tmp_path):
    names = ("mlx5_1", "ib1", "0000:06:00.0")
    functions = [changes.function(dgx, name) for name in names]
    assert functions[0] == functions[1] == functions[2]
    assert functions[0].interfaces == ("ib1",)
    assert {member.subsystem for member in functions[0].members} == {
        "infiniband",
        "infiniband_mad",
        "infiniband_verbs",
        "net",
        "pci",
    }


def test_virtual_functions_that_are_pulled_are_counted_by_their_physical_one(tmp_path):
    root = tmp_path / "sys"
    cards.write("mlx5-roce-pf-vfs", root)
    physical = next(path.parent for path in root.glob("devices/**/sriov_numvfs"))
    before = int((physical / "sriov_numvfs").read_text())
    virtual = (physical / "virtfn0").resolve().name
    changes.pull(root, tmp_path / "pulled", virtual)
    assert (physical / "sriov_numvfs").read_text() == f"{before - 1}\n"
    changes.plug(root, tmp_path / "pulled", virtual)
    assert (physical / "sriov_numvfs").read_text() == f"{before}\n"


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda dgx: changes.ports(dgx, "mlx5_9", up=True), "shows no 'mlx5_9'. Choose an RDMA"),
        (lambda dgx: changes.pull(dgx, dgx.parent / "p", "lo"), "lo is on no PCI function"),
        (lambda dgx: changes.plug(dgx, dgx.parent / "p", "0000:04:00.0"), "Pull one first"),
        (lambda dgx: trees.write("dgx", dgx.parent / "other"), "Choose one of bnxt-re, dgx-like"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(dgx, act, words):
    with pytest.raises(Refused, match=words):
        act(dgx)


def test_an_announcement_is_one_that_the_agent_believes():
    """The kernel takes the header off and sends the rest on as its own."""
    data = announce.datagram("remove", "infiniband", "/devices/x/infiniband/mlx5_0")
    event = decode(data[16:], sender=0)
    assert event is not None
    assert (event.action, event.subsystem) == ("remove", "infiniband")
    assert event.devpath == "/devices/x/infiniband/mlx5_0"
