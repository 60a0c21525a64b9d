"""What stands on an interface, by sysfs: a card below a bond is not idle."""

from kube_rdma.adapters.kernel.sysfs.netdev import upper_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree


def test_bond_and_vlan_are_above_and_its_own_card_is_not(tmp_path):
    for name in ("upper_bond0", "upper_eth0.7", "lower_eth9", "queues"):
        (tmp_path / "class/net/eth0" / name).mkdir(parents=True)
    tree = SysfsTree(tmp_path)
    assert sorted(upper_netdevs(tree, "eth0")) == ["bond0", "eth0.7"]
    assert upper_netdevs(tree, "gone") == ()
    assert tree.faults == []
