"""The lines that scripts expect, byte for byte."""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.hardware.views.table import ibdev2netdev
from kube_rdma.model.device import Device, LinkLayer, PhysicalState, Port, PortState
from kube_rdma.model.survey import NamespaceMode, Survey

UP = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, "ens2f0", ())
DOWN = replace(UP, state=PortState.DOWN, physical_state=PhysicalState.DISABLED)


def survey(*devices):
    return Survey(
        tuple(
            Device(name, name, None, "CA", None, None, None, None, ports, ())
            for name, ports in devices
        ),
        None,
        NamespaceMode.UNKNOWN,
    )


def test_the_line_of_the_seed():
    """NVIDIA's document shows: mlx5_0 port 1 ==> ens2f0 (Up), and eno5 (Down)."""
    shown = survey(
        ("mlx5_0", (UP,)),
        ("mlx5_1", (replace(DOWN, netdev="ens2f1"),)),
        ("mlx5_2", (replace(DOWN, netdev="eno5"),)),
    )
    assert ibdev2netdev(shown) == (
        "mlx5_0 port 1 ==> ens2f0 (Up)\n"
        "mlx5_1 port 1 ==> ens2f1 (Down)\n"
        "mlx5_2 port 1 ==> eno5 (Down)\n"
    )


def test_devices_and_their_interfaces_stand_in_the_order_of_ls():
    two = (replace(UP, netdev="ens4d1"), replace(UP, number=2, netdev="ens4"))
    shown = survey(("mlx5_2", (UP,)), ("mlx5_10", (UP,)), ("mlx4_0", two))
    assert [line.split(" ==>")[0] for line in ibdev2netdev(shown).splitlines()] == [
        "mlx4_0 port 2",
        "mlx4_0 port 1",
        "mlx5_10 port 1",
        "mlx5_2 port 1",
    ]


def test_a_bond_is_named_instead_of_its_part():
    shown = survey(("mlx5_bond_0", (replace(UP, bond="bond0"),)))
    assert ibdev2netdev(shown) == "mlx5_bond_0 port 1 ==> bond0 (Up)\n"


def test_a_port_without_an_interface_has_no_line():
    assert ibdev2netdev(survey(("efa_0", (replace(UP, netdev=None),)), ("mlx5_0", ()))) == ""


def test_only_an_active_port_is_up():
    for state in PortState:
        shown = ibdev2netdev(survey(("mlx5_0", (replace(UP, state=state),))))
        assert shown.endswith("(Up)\n") == (state is PortState.ACTIVE)
