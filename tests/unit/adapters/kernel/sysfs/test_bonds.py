"""Cards below something: what sysfs tells of masters, bonds and vlans."""

from __future__ import annotations

from kube_rdma.adapters.kernel.sysfs.netdev import NetdevTree, upper_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.attach.rules.host_links import host_network
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.attach.attachment import SeenLink
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma.pools.rules.selection import why_not
from kube_rdma_lab.native.tree_text import unpack
from tests.unit.adapters.kernel.pod.test_namespaces import needs_root
from tests.unit.adapters.kernel.sysfs.picture import TREES
from tests.vm.guest.masters import expected, facts


@needs_root
def test_a_slave_names_its_master_and_takes_no_macvlan_itself():
    """Of a bridge, which every kernel makes; tests/vm has a bond."""
    assert facts("bridge") == expected("bridge")


def test_two_functions_of_roce_lag_are_one_card_that_shares_and_never_moves(tmp_path):
    """One RDMA device on two slaves; the second function is a card without a device."""
    unpack((TREES / "mlx5-bond" / "tree.txt").read_text(), tmp_path)
    survey = survey_at(tmp_path)
    functions = {function.position.pci: function for function in survey.functions}
    cards = [card for card in node_cards(survey) if card.devices]
    (card,) = cards
    assert len(functions) == 2
    assert why_not(PoolSpec("rdma/a", Mode.SHARED, ""), card, functions) is None
    refusal = why_not(PoolSpec("rdma/a", Mode.EXCLUSIVE, ""), card, functions)
    assert refusal == "ens1f0np0 is enslaved to bond0, which would not get it back"
    links = [
        SeenLink(name, number, 9000, "", True)
        for number, name in enumerate(("ens1f0np0", "ens1f1np1", "bond0"), 1)
    ]
    masters = [(one.master, one.bonded) for one in host_network(survey, links).links]
    assert masters == [("bond0", True), ("bond0", True), (None, False)]


def test_bond_and_vlan_are_above_and_its_own_card_is_not(tmp_path):
    for name in ("upper_bond0", "upper_eth0.7", "lower_eth9", "queues"):
        (tmp_path / "class/net/eth0" / name).mkdir(parents=True)
    tree = SysfsTree(tmp_path)
    assert sorted(upper_netdevs(tree, "eth0")) == ["bond0", "eth0.7"]
    assert upper_netdevs(tree, "gone") == ()
    assert tree.faults == []


def test_an_interface_of_a_hypervisor_is_a_device_and_other_masters_are_virtual(tmp_path):
    """netvsc's and virtio's; bonds, bridges, team and ovs-system lie in devices/virtual."""
    places = {"eth0": "LNXSYSTM:00/VMBUS:00/guid", "eth1": "pci0000:00/0000:00:03.0/virtio0"}
    places |= dict.fromkeys(("bond0", "br0"), "virtual")
    (tmp_path / "class/net").mkdir(parents=True)
    for netdev, place in places.items():
        (tmp_path / "devices" / place / "net" / netdev).mkdir(parents=True)
        link = tmp_path / "class/net" / netdev
        link.symlink_to(f"../../devices/{place}/net/{netdev}")
    (tmp_path / "devices/virtual/net/bond0/bonding").mkdir()
    masters = (*places, "gone")
    for number, master in enumerate(masters):
        (tmp_path / f"class/net/card{number}").mkdir()
        (tmp_path / f"class/net/card{number}/master").symlink_to(f"../{master}")
    tree = SysfsTree(tmp_path)
    cards = [NetdevTree(tree).of([f"card{number}"])[0] for number in range(len(masters))]
    assert [card.fast_path for card in cards] == [True, True, False, False, False]
    assert [card.bonded for card in cards] == [False, False, True, False, False]
    assert tree.faults == []
