"""What stands on an interface, by sysfs: a card below a bond is not idle."""

from kube_rdma.adapters.kernel.sysfs.netdev import is_paravirtual, upper_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree


def test_bond_and_vlan_are_above_and_its_own_card_is_not(tmp_path):
    for name in ("upper_bond0", "upper_eth0.7", "lower_eth9", "queues"):
        (tmp_path / "class/net/eth0" / name).mkdir(parents=True)
    tree = SysfsTree(tmp_path)
    assert sorted(upper_netdevs(tree, "eth0")) == ["bond0", "eth0.7"]
    assert upper_netdevs(tree, "gone") == ()
    assert tree.faults == []


def test_an_interface_of_a_hypervisor_is_known_by_its_driver(tmp_path):
    """netvsc's and virtio's; a card has a driver of its own, and a bond has no device."""
    drivers = {"eth0": "hv_netvsc", "eth1": "virtio_net", "ens1f0": "mlx5_core"}
    for netdev, driver in drivers.items():
        device = tmp_path / "class/net" / netdev / "device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(f"../../../../bus/{driver}")
    (tmp_path / "class/net/bond0/bonding").mkdir(parents=True)
    tree = SysfsTree(tmp_path)
    paravirtual = [is_paravirtual(tree, netdev) for netdev in (*drivers, "bond0", "gone")]
    assert paravirtual == [True, True, False, False, False]
    assert tree.faults == []
