"""What RDMA netlink calls the interface of a port leaves the example machines' ports as they are.

Of a bond the kernel names the bond or its active slave, of Azure's MANA the virtual machine's own
interface (mana_get_primary_netdev), and of IPoIB and EFA none at all.
"""

from __future__ import annotations

import pytest

from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.hardware import machines
from kube_rdma.model.device import PortState
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.absence import is_away
from kube_rdma.pools.rules.node_health import node_cards

# Machine, device, port, what netlink names, the port's interface and bond.
NAMED = [
    ("azure-mana-rnic", "mana_0", 1, "eth0", "enP30832s1", None),
    ("azure-mana-rnic", "manae_0", 2, None, "enP30832s1d1", None),
    ("azure-mana", "mana_0", 1, None, "enP30832s1", None),
    ("azure-hb", "mlx5_an0", 1, "enP45424s1", "enP45424s1", None),
    ("azure-hb", "mlx5_ib0", 1, None, "ib0", None),
    ("bnxt-bond", "bnxt_re_bond0", 1, "bond0", "ens1f0np0", "bond0"),
    ("bnxt-bond", "bnxt_re_bond0", 1, "ens1f1np1", "ens1f0np0", "bond0"),
    ("bnxt-switchdev", "bnxt_re0", 1, "ens1f0np0", "ens1f0np0", None),
    ("bnxt-switchdev", "bnxt_re3", 1, "ens1f0v1", "ens1f0v1", None),
    ("cxgb4", "cxgb4_0", 1, "ens2f4", "ens2f4", None),
    ("cxgb4", "cxgb4_0", 2, "ens2f4d1", "ens2f4d1", None),
    ("efa-p4d", "rdmap16s27", 1, None, None, None),
    ("erdma", "erdma_1", 1, "eth1", "eth1", None),
    ("hns", "hns_1", 1, "enp125s0f2", "enp125s0f2", None),
    ("hns-bond", "hns_bond_0", 1, "enp125s0f2", "enp125s0f0", "bond0"),
    ("hfi1", "hfi1_1", 1, None, "ib1", None),
    ("pvrdma", "vmw_pvrdma0", 1, "ens192", "ens192", None),
]


@pytest.mark.parametrize(("machine", "device", "number", "named", "netdev", "bond"), NAMED)
def test_a_port_keeps_its_interface(machine, device, number, named, netdev, bond):
    survey = read_survey(machines.machine(machine))
    port = link_view.LinkPort(number, PortState.ACTIVE, None, named)
    answer = link_view.LinkDevice(0, device, None, (port,))
    view = link_view.LinkView((answer,), NamespaceMode.SHARED)
    merged = next(one for one in link_view.merge(survey, view).devices if one.name == device)
    shown = merged.ports[number - 1]
    assert (shown.netdev, shown.bond) == (netdev, bond)


@pytest.mark.parametrize(("machine", "device"), [("erdma", "erdma_1"), ("pvrdma", "vmw_pvrdma0")])
def test_an_interface_that_netlink_does_not_name_is_in_a_pod(machine, device):
    """sysfs tells its name alone, which may be that of another one here."""
    survey = read_survey(machines.machine(machine))
    answer = link_view.LinkDevice(0, device, None, (link_view.LinkPort(1, None, None, None),))
    view = link_view.LinkView((answer,), NamespaceMode.SHARED)
    (card,) = (one for one in node_cards(link_view.merge(survey, view)) if one.name == device)
    assert [port.netdev for port in card.devices[0].ports] == [None]
    assert is_away(card)


def test_a_port_moves_to_an_interface_that_has_nothing_to_do_with_its_own():
    survey = read_survey(machines.machine("pvrdma"))
    port = link_view.LinkPort(1, PortState.ACTIVE, None, "ens224")
    view = link_view.LinkView(
        (link_view.LinkDevice(0, "vmw_pvrdma0", None, (port,)),), NamespaceMode.SHARED
    )
    assert link_view.merge(survey, view).devices[0].ports[0].netdev == "ens224"
